package main

import (
	"fmt"
	"sort"

	"github.com/argoproj/argo-cd/v3/util/lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Action is one that Argo CD offers for an object.
type Action struct {
	Name     string `json:"name"`
	Disabled bool   `json:"disabled"`
	// Result is the object that is left of this one.
	Result map[string]any `json:"result"`
}

// actions finds the actions that are offered for an object and does each of them, also those that are shown as disabled.
func actions(settings *settings, object *unstructured.Unstructured) ([]Action, error) {
	vm := lua.VM{ResourceOverrides: settings.overrides}
	discovery, err := vm.GetResourceActionDiscovery(object)
	if err != nil {
		return nil, fmt.Errorf("find the script that offers actions: %w", err)
	}
	offered, err := vm.ExecuteResourceActionDiscovery(object, discovery)
	if err != nil {
		return nil, fmt.Errorf("offer actions: %w", err)
	}
	sort.Slice(offered, func(one, other int) bool { return offered[one].Name < offered[other].Name })
	done := make([]Action, len(offered))
	for at, action := range offered {
		result, err := do(vm, object, action.Name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", action.Name, err)
		}
		done[at] = Action{Name: action.Name, Disabled: action.Disabled, Result: result}
	}
	return done, nil
}

func do(vm lua.VM, object *unstructured.Unstructured, name string) (map[string]any, error) {
	action, err := vm.GetResourceAction(object, name)
	if err != nil {
		return nil, fmt.Errorf("find its script: %w", err)
	}
	impacted, err := vm.ExecuteResourceAction(object.DeepCopy(), action.ActionLua, nil)
	if err != nil {
		return nil, err
	}
	if len(impacted) != 1 || impacted[0].K8SOperation != lua.PatchOperation {
		return nil, fmt.Errorf("it does more than to change the object: %v", impacted)
	}
	return impacted[0].UnstructuredObj.Object, nil
}
