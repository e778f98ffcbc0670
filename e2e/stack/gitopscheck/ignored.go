package main

import (
	argo "github.com/argoproj/argo-cd/v3/util/argo/diff"
	"github.com/argoproj/argo-cd/v3/util/argo/normalizers"
	"github.com/argoproj/gitops-engine/pkg/sync"
	jsonpatch "github.com/evanphx/json-patch"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
)

// differ tells Argo CD which differences its settings ignore.
func differ(settings *settings, parser *managedfields.GvkParser) (argo.DiffConfig, error) {
	return argo.NewDiffConfigBuilder().
		WithDiffSettings(nil, settings.overrides, false, normalizers.IgnoreNormalizerOpts{}).
		WithTracking("", "label").
		WithNoCache().
		WithGVKParser(parser).
		Build()
}

// respected gives the manifests as Argo CD syncs them with RespectIgnoreDifferences=true: what is ignored has the value that it has in the
// cluster. It is controller/sync.go's normalizeTargetResources, which Argo CD does not export, for kinds that its client does not know.
func respected(result sync.ReconciliationResult, config argo.DiffConfig) ([]*unstructured.Unstructured, error) {
	normalized, err := argo.Normalize(result.Live, result.Target, config)
	if err != nil {
		return nil, err
	}
	targets := make([]*unstructured.Unstructured, len(result.Target))
	for at, live := range result.Live {
		target := normalized.Targets[at]
		if target == nil || live == nil {
			targets[at] = result.Target[at]
			continue
		}
		if targets[at], err = patched(target, normalized.Lives[at], live); err != nil {
			return nil, err
		}
	}
	return targets, nil
}

// patched is the target with what leads from one object to the other.
func patched(target, from, to *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	texts := make([][]byte, 3)
	for at, object := range []*unstructured.Unstructured{target, from, to} {
		text, err := object.MarshalJSON()
		if err != nil {
			return nil, err
		}
		texts[at] = text
	}
	patch, err := jsonpatch.CreateMergePatch(texts[1], texts[2])
	if err != nil {
		return nil, err
	}
	text, err := jsonpatch.MergePatch(texts[0], patch)
	if err != nil {
		return nil, err
	}
	result := &unstructured.Unstructured{}
	return result, result.UnmarshalJSON(text)
}
