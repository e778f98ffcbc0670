package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/promqltest"
	rule "github.com/prometheus/prometheus/rules"
	"go.yaml.in/yaml/v2"
)

// unitTests is a file of `promtool test rules`, as far as it is about alerts. Anything else in it is refused.
type unitTests struct {
	RuleFiles          []string       `yaml:"rule_files"`
	EvaluationInterval model.Duration `yaml:"evaluation_interval"`
	Tests              []unitTest     `yaml:"tests"`
}

type unitTest struct {
	Name        string         `yaml:"name"`
	Interval    model.Duration `yaml:"interval"`
	InputSeries []struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	} `yaml:"input_series"`
	AlertRuleTests []alertTest `yaml:"alert_rule_test"`
}

type alertTest struct {
	EvalTime  model.Duration `yaml:"eval_time"`
	Alertname string         `yaml:"alertname"`
	ExpAlerts []struct {
		ExpLabels      map[string]string `yaml:"exp_labels"`
		ExpAnnotations map[string]string `yaml:"exp_annotations"`
	} `yaml:"exp_alerts"`
}

// test runs the unit tests of a file, and sees to it that each alert is seen to fire and to keep quiet.
func test(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var tests unitTests
	if err := yaml.UnmarshalStrict(text, &tests); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for i, name := range tests.RuleFiles {
		tests.RuleFiles[i] = filepath.Join(filepath.Dir(file), name)
	}
	var wrong []error
	seen := map[string]map[bool]bool{}
	for _, one := range tests.Tests {
		if err := errors.Join(one.run(&tests, seen)...); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %s: %w", file, one.Name, err))
		}
	}
	return errors.Join(append(wrong, untried(file, seen))...)
}

// untried names the alerts that no test sees fire, or keep quiet.
func untried(file string, seen map[string]map[bool]bool) error {
	var wrong []error
	for name, how := range seen {
		if !how[true] {
			wrong = append(wrong, fmt.Errorf("%s: no test sees %s fire", file, name))
		}
		if !how[false] {
			wrong = append(wrong, fmt.Errorf("%s: no test sees %s keep quiet", file, name))
		}
	}
	return errors.Join(wrong...)
}

func (one *unitTest) run(tests *unitTests, seen map[string]map[bool]bool) (wrong []error) {
	loader, err := promqltest.NewLazyLoader(one.load(), promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
	if err != nil {
		return []error{err}
	}
	defer func() { wrong = append(wrong, loader.Close()) }()
	loader.SubqueryInterval = time.Duration(tests.EvaluationInterval)
	manager := rule.NewManager(&rule.ManagerOptions{
		QueryFunc:  rule.EngineQueryFunc(loader.QueryEngine(), loader.Storage()),
		Appendable: loader.Storage(),
		Context:    context.Background(),
		NotifyFunc: func(context.Context, string, ...*rule.Alert) {},
		Logger:     promslog.NewNopLogger(),
	})
	groups, failures := manager.LoadGroups(time.Duration(one.Interval), labels.EmptyLabels(), "", nil, false, tests.RuleFiles...)
	if failures != nil {
		return failures
	}
	alerts := alertsOf(groups)
	for name := range alerts {
		if seen[name] == nil {
			seen[name] = map[bool]bool{}
		}
	}
	return one.evaluate(loader, groups, alerts, tests, seen)
}

// evaluate steps through the time of the test, and compares what fires when it is asked for.
func (one *unitTest) evaluate(
	loader *promqltest.LazyLoader,
	groups map[string]*rule.Group,
	alerts map[string]*rule.AlertingRule,
	tests *unitTests,
	seen map[string]map[bool]bool,
) (wrong []error) {
	step := time.Duration(tests.EvaluationInterval)
	last := time.Duration(0)
	for _, asked := range one.AlertRuleTests {
		last = max(last, time.Duration(asked.EvalTime))
	}
	for at := time.Duration(0); at <= last; at += step {
		now := time.Unix(0, 0).UTC().Add(at)
		loader.WithSamplesTill(now, func(err error) {
			if err != nil {
				wrong = append(wrong, err)
				return
			}
			for _, group := range groups {
				group.Eval(loader.Context(), now)
				for _, of := range group.Rules() {
					if of.LastError() != nil {
						wrong = append(wrong, fmt.Errorf("%s at %s: %w", of.Name(), at, of.LastError()))
					}
				}
			}
		})
		for _, asked := range one.AlertRuleTests {
			if due := time.Duration(asked.EvalTime); due >= at && due < at+step {
				wrong = append(wrong, asked.compare(alerts[asked.Alertname], seen))
			}
		}
	}
	return wrong
}

// compare looks at one alert now.
func (asked *alertTest) compare(alert *rule.AlertingRule, seen map[string]map[bool]bool) error {
	if alert == nil {
		return fmt.Errorf("there is no alert %s", asked.Alertname)
	}
	var found, expected []string
	for _, active := range alert.ActiveAlerts() {
		if active.State == rule.StateFiring {
			found = append(found, told(active.Labels, active.Annotations))
		}
	}
	for _, one := range asked.ExpAlerts {
		of := labels.NewBuilder(labels.FromMap(one.ExpLabels)).Set(labels.AlertName, asked.Alertname).Labels()
		expected = append(expected, told(of, labels.FromMap(one.ExpAnnotations)))
	}
	slices.Sort(found)
	slices.Sort(expected)
	seen[asked.Alertname][len(found) > 0] = true
	if slices.Equal(found, expected) {
		return nil
	}
	return fmt.Errorf("%s at %s: these fire:\n  %s\nand these should:\n  %s", asked.Alertname, asked.EvalTime,
		strings.Join(found, "\n  "), strings.Join(expected, "\n  "))
}

func told(of, annotations labels.Labels) string {
	return of.String() + " " + annotations.String()
}

func alertsOf(groups map[string]*rule.Group) map[string]*rule.AlertingRule {
	alerts := map[string]*rule.AlertingRule{}
	for _, group := range groups {
		for _, of := range group.Rules() {
			if alert, is := of.(*rule.AlertingRule); is {
				// Else the series that say since when it is pending would not be made.
				alert.SetRestored(true)
				alerts[alert.Name()] = alert
			}
		}
	}
	return alerts
}

// load is the series as the engine's own test language has them.
func (one *unitTest) load() string {
	text := fmt.Sprintf("load %v\n", time.Duration(one.Interval).String())
	for _, series := range one.InputSeries {
		text += fmt.Sprintf("  %s %s\n", series.Series, series.Values)
	}
	return text
}
