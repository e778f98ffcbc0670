package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// Asked is what one query asks for.
type Asked struct {
	Query string `json:"query"`
	// Error is why it cannot be read; empty when it can.
	Error string `json:"error,omitempty"`
	// Selectors are its metrics with the labels that they are chosen by.
	Selectors []Selector `json:"selectors"`
	// Groupings are labels that results are kept apart or brought together by, with the metrics below them.
	Groupings []Grouping `json:"groupings"`
}

// Selector is one metric with the labels that it is chosen by.
type Selector struct {
	Metric string   `json:"metric"`
	Labels []string `json:"labels"`
}

// Grouping is the labels of one `by`, `without`, `on` or `ignoring`.
type Grouping struct {
	Labels  []string `json:"labels"`
	Metrics []string `json:"metrics"`
}

func queries(from io.Reader, to io.Writer) error {
	var texts []string
	if err := json.NewDecoder(from).Decode(&texts); err != nil {
		return fmt.Errorf("read the queries: %w", err)
	}
	asked := make([]Asked, 0, len(texts))
	for _, text := range texts {
		asked = append(asked, ask(text))
	}
	return json.NewEncoder(to).Encode(asked)
}

func ask(text string) Asked {
	asked := Asked{Query: text, Selectors: []Selector{}, Groupings: []Grouping{}}
	expression, err := parser.ParseExpr(text)
	if err != nil {
		asked.Error = err.Error()
		return asked
	}
	asked.Selectors = selectors(expression)
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.AggregateExpr:
			asked.group(node.Grouping, node.Expr)
		case *parser.BinaryExpr:
			if node.VectorMatching != nil {
				asked.group(slices.Concat(node.VectorMatching.MatchingLabels, node.VectorMatching.Include), node)
			}
		}
		return nil
	})
	return asked
}

func (asked *Asked) group(names []string, below parser.Node) {
	if len(names) == 0 {
		return
	}
	grouping := Grouping{Labels: names}
	for _, selector := range selectors(below) {
		grouping.Metrics = append(grouping.Metrics, selector.Metric)
	}
	asked.Groupings = append(asked.Groupings, grouping)
}

// selectors are those of a node and all below it.
func selectors(node parser.Node) []Selector {
	found := []Selector{}
	parser.Inspect(node, func(node parser.Node, _ []parser.Node) error {
		selector, is := node.(*parser.VectorSelector)
		if !is {
			return nil
		}
		one := Selector{Metric: selector.Name, Labels: []string{}}
		for _, matcher := range selector.LabelMatchers {
			if matcher.Name == labels.MetricName {
				one.Metric = matcher.Value
			} else {
				one.Labels = append(one.Labels, matcher.Name)
			}
		}
		found = append(found, one)
		return nil
	})
	return found
}
