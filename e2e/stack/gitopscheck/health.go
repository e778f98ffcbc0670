package main

import (
	"fmt"

	"github.com/argoproj/gitops-engine/pkg/health"
	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
