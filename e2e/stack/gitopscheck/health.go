package main

import (
	"fmt"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/gitops-engine/pkg/health"
	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Health is what two tools make of an object.
type Health struct {
	// Argo is empty when Argo CD has no opinion.
	Argo        string `json:"argo"`
	ArgoMessage string `json:"argoMessage"`
	// Kstatus is Current, InProgress, Failed, Terminating, NotFound or Unknown.
	Kstatus        string `json:"kstatus"`
	KstatusMessage string `json:"kstatusMessage"`
}

func healths(settings *settings, object *unstructured.Unstructured) (Health, error) {
	if object.GetKind() == "Application" {
		if err := readable(object); err != nil {
			return Health{}, fmt.Errorf("as Argo CD reads it: %w", err)
		}
	}
	// As Argo CD asks: the scripts of its settings first, then what is built into it.
	argo, err := health.GetResourceHealth(object, settings.overrides)
	if err != nil {
		return Health{}, fmt.Errorf("Argo CD's health: %w", err)
	}
	if argo == nil {
		argo = &health.HealthStatus{}
	}
	result, err := status.Compute(object)
	if err != nil {
		return Health{}, fmt.Errorf("kstatus: %w", err)
	}
	return Health{
		Argo:           string(argo.Status),
		ArgoMessage:    argo.Message,
		Kstatus:        result.Status.String(),
		KstatusMessage: result.Message,
	}, nil
}

// readable fails for an Application with a field that Argo CD does not know, or of another type.
func readable(object *unstructured.Unstructured) error {
	text, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	return yaml.UnmarshalStrict(text, &v1alpha1.Application{})
}
