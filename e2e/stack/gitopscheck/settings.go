package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/lua"
	"sigs.k8s.io/yaml"
)

// What Argo CD's ConfigMap says of one kind stands under this, the matter, and GROUP_KIND.
const customizations = "resource.customizations."

// Settings are what Argo CD is told about kinds.
type settings struct {
	overrides lua.ResourceHealthOverrides
}

// readSettings takes the scripts of a ConfigMap as Argo CD does; a matter that it does not know is an error here.
func readSettings(file string) (*settings, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var configMap struct {
		Data map[string]string `json:"data"`
	}
	if err := yaml.UnmarshalStrict(text, &configMap); err != nil {
		return nil, err
	}
	overrides := lua.ResourceHealthOverrides{}
	for key, value := range configMap.Data {
		matter, kind, known := strings.Cut(strings.TrimPrefix(key, customizations), ".")
		if !known || !strings.HasPrefix(key, customizations) {
			return nil, fmt.Errorf("%s is not about a kind", key)
		}
		kind = strings.Replace(kind, "_", "/", 1)
		override := overrides[kind]
		if err := set(&override, matter, value); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		overrides[kind] = override
	}
	return &settings{overrides: overrides}, nil
}

func set(override *v1alpha1.ResourceOverride, matter, value string) error {
	switch matter {
	case "health":
		override.HealthLua = value
	case "actions":
		override.Actions = value
		_, err := override.GetActions()
		return err
	case "ignoreDifferences":
		return yaml.UnmarshalStrict([]byte(value), &override.IgnoreDifferences)
	case "ignoreResourceUpdates":
		return yaml.UnmarshalStrict([]byte(value), &override.IgnoreResourceUpdates)
	default:
		return fmt.Errorf("Argo CD is told nothing about %s", matter)
	}
	return nil
}
