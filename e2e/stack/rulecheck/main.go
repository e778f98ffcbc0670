// Rulecheck reads Prometheus rules and queries with Prometheus's own code: its parsers, its rule manager and its engine.
//
//	rulecheck queries      a JSON list of queries on standard input; what each of them asks for as JSON on standard output
//	rulecheck rules FILE.. the groups of rule files are read as Prometheus reads them
//	rulecheck test FILE..  unit tests of rules, in the format of `promtool test rules`
//
// It ends with status 0 when all is well, else with 1 and what is wrong on standard error. promtool itself would do the last two,
// but is compiled with the service discovery of every cloud: 315 CPU-seconds, where this takes 102.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(words []string) error {
	if len(words) == 1 && words[0] == "queries" {
		return queries(os.Stdin, os.Stdout)
	}
	if len(words) < 2 {
		return errors.New("usage: rulecheck queries | rules FILE.. | test FILE..")
	}
	check, known := map[string]func(string) error{"rules": rules, "test": test}[words[0]]
	if !known {
		return fmt.Errorf("there is no %q: queries, rules or test", words[0])
	}
	var wrong []error
	for _, file := range words[1:] {
		wrong = append(wrong, check(file))
	}
	return errors.Join(wrong...)
}

// rules reads a rule file, its queries and its templates.
func rules(file string) error {
	_, wrong := rulefmt.ParseFile(file, false, model.UTF8Validation)
	return errors.Join(wrong...)
}
