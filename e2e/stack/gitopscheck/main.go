// Gitopscheck looks at TracePipelines as the tools of GitOps do, with their own code: Argo CD's health, actions, differences and
// syncs, and kstatus, by which Flux and others wait.
//
//	gitopscheck health CONFIGMAP          a JSON list of objects; how each of them is
//	gitopscheck actions CONFIGMAP         a JSON list of objects; what may be done with each of them, and what becomes of it
//	gitopscheck differences KUBECONFIG    a JSON list of manifests; what a sync of each of them would change in a cluster
//	gitopscheck sync CONFIGMAP KUBECONFIG NAMESPACE OPTIONS TIMEOUT LOOKS
//	                                      a JSON list of manifests; syncs them as an Application with these syncOptions does,
//	                                      separated by commas, and answers with what became of it by TIMEOUT, or within so many
//	                                      LOOKS at the objects (0: any number)
//
// CONFIGMAP is a file with the data of argocd-cm. Lists are read from standard input, answers are written to standard output in the same
// order. A sync has one answer, also when it fails or time is up. It ends with status 0 when all could be answered, else with 1 and what is wrong on standard error.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	// Whole numbers stay whole.
	kubejson "sigs.k8s.io/json"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(words []string) error {
	switch {
	case len(words) == 2 && words[0] == "health":
		return with(words[1], healths)
	case len(words) == 2 && words[0] == "actions":
		return with(words[1], actions)
	case len(words) == 2 && words[0] == "differences":
		return differences(words[1])
	case len(words) == 7 && words[0] == "sync":
		return synchronize(words[1], words[2], words[3], words[4], words[5], words[6])
	}
	return errors.New("usage: gitopscheck health CONFIGMAP | actions CONFIGMAP | differences KUBECONFIG" +
		" | sync CONFIGMAP KUBECONFIG NAMESPACE OPTIONS TIMEOUT LOOKS")
}

// with answers for every object under the settings of a file.
func with[Answer any](file string, each func(*settings, *unstructured.Unstructured) (Answer, error)) error {
	settings, err := readSettings(file)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return answer(func(object map[string]any) (Answer, error) {
		return each(settings, &unstructured.Unstructured{Object: object})
	})
}

// answer reads a list and writes one answer for each item of it.
func answer[Item, Answer any](each func(Item) (Answer, error)) error {
	asked, err := items[Item]()
	if err != nil {
		return err
	}
	answers := make([]Answer, len(asked))
	for at, item := range asked {
		if answers[at], err = each(item); err != nil {
			return fmt.Errorf("item %d: %w", at, err)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(answers)
}

// items reads a list.
func items[Item any]() ([]Item, error) {
	var raw []json.RawMessage
	if err := json.NewDecoder(os.Stdin).Decode(&raw); err != nil {
		return nil, fmt.Errorf("standard input is no JSON list: %w", err)
	}
	items := make([]Item, len(raw))
	for at, text := range raw {
		if err := kubejson.UnmarshalCaseSensitivePreserveInts(text, &items[at]); err != nil {
			return nil, fmt.Errorf("item %d: %w", at, err)
		}
	}
	return items, nil
}
