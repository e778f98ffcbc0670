package main

import (
	"context"
	"fmt"

	"github.com/argoproj/argo-cd/v3/common"
	"github.com/argoproj/gitops-engine/pkg/diff"
	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/gitops-engine/pkg/utils/tracing"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Difference is what a sync of a manifest would change, by each of the ways in which Argo CD looks; empty for nothing.
type Difference struct {
	Name string `json:"name"`
	// ServerSide is found by a dry run of the sync.
	ServerSide string `json:"serverSide"`
	// Structured is found by the schema and the owners of fields, as for Applications with ServerSideApply=true.
	Structured string `json:"structured"`
	// Plain is found by the two objects alone, as for Applications without it.
	Plain string `json:"plain"`
}

// Cluster is one that is synced to.
type cluster struct {
	kubectl *kube.KubectlCmd
	config  *rest.Config
	parser  *managedfields.GvkParser
	runner  diff.ServerSideDryRunner
}

func connect(kubeconfig string) (*kube.KubectlCmd, *rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	// Asked once for each object of a chart; the default of 5 requests a second is for controllers.
	config.QPS, config.Burst = 100, 100
	return &kube.KubectlCmd{Log: logr.Discard(), Tracer: tracing.NopTracer{}}, config, nil
}

func differences(kubeconfig string) error {
	kubectl, config, err := connect(kubeconfig)
	if err != nil {
		return err
	}
	resources, parser, err := kubectl.LoadOpenAPISchema(config)
	if err != nil {
		return err
	}
	applier, stop, err := kube.ManageServerSideDiffDryRuns(config, resources, tracing.NopTracer{}, logr.Discard(),
		func(string) (kube.CleanupFunc, error) { return func() {}, nil })
	if err != nil {
		return err
	}
	defer stop()
	cluster := cluster{kubectl: kubectl, config: config, parser: parser, runner: diff.NewK8sServerSideDryRunner(applier)}
	return answer(func(manifest map[string]any) (Difference, error) {
		object := &unstructured.Unstructured{Object: manifest}
		found, err := cluster.difference(object)
		if err != nil {
			err = fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
		return found, err
	})
}

func (cluster *cluster) difference(wanted *unstructured.Unstructured) (Difference, error) {
	live, err := cluster.kubectl.GetResource(context.Background(), cluster.config, wanted.GroupVersionKind(),
		wanted.GetName(), wanted.GetNamespace())
	if err != nil {
		return Difference{}, err
	}
	found := Difference{Name: wanted.GetKind() + "/" + wanted.GetName()}
	ways := []struct {
		into *string
		way  []diff.Option
	}{
		// What webhooks change is a difference, too: we have none.
		{&found.ServerSide, []diff.Option{diff.WithServerSideDiff(true), diff.WithServerSideDryRunner(cluster.runner),
			diff.WithIgnoreMutationWebhook(false)}},
		{&found.Structured, []diff.Option{diff.WithStructuredMergeDiff(true)}},
		{&found.Plain, nil},
	}
	for _, way := range ways {
		options := append([]diff.Option{diff.WithManager(common.ArgoCDSSAManager), diff.WithGVKParser(cluster.parser),
			diff.WithLogr(logr.Discard())}, way.way...)
		result, err := diff.Diff(wanted.DeepCopy(), live.DeepCopy(), options...)
		if err != nil {
			return Difference{}, err
		}
		if result.Modified {
			*way.into = fmt.Sprintf("is %s, would be %s", result.NormalizedLive, result.PredictedLive)
		}
	}
	return found, nil
}
