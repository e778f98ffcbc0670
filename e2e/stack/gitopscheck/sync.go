package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	argo "github.com/argoproj/argo-cd/v3/common"
	"github.com/argoproj/argo-cd/v3/util/argo/diff"
	"github.com/argoproj/gitops-engine/pkg/sync"
	"github.com/argoproj/gitops-engine/pkg/sync/common"
	"github.com/argoproj/gitops-engine/pkg/sync/syncwaves"
	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/kubectl/pkg/util/openapi"
)

// Time between two looks at a sync that waits; Argo CD looks whenever an object of the Application changes.
const round = 500 * time.Millisecond

// Operation is one sync. It is Running when it was given up before it ended.
type Operation struct {
	Phase   string `json:"phase"`
	Message string `json:"message"`
	// Applied are in that order; a manifest whose wave was not reached is missing.
	Applied []Applied `json:"applied"`
}

// Applied is a manifest that was.
type Applied struct {
	Name    string `json:"name"`
	Wave    int    `json:"wave"`
	Code    string `json:"code"`
	Message string `json:"message"`
	// Changed says that the object is another one than before the sync, its status aside.
	Changed bool `json:"changed"`
}

// Syncer is what stays the same in all rounds of a sync.
type syncer struct {
	settings  *settings
	options   []string
	differ    diff.DiffConfig
	kubectl   *kube.KubectlCmd
	config    *rest.Config
	resources openapi.Resources
	namespace string
	manifests []*unstructured.Unstructured
}

// Every object of the manifests is in a namespace.
type namespaced struct{}

func (namespaced) IsNamespaced(schema.GroupKind) (bool, error) { return true, nil }

type objects = map[kube.ResourceKey]*unstructured.Unstructured

// synchronize does what Argo CD's controller does for an Application with these options (separated by commas): it asks the engine again and again, each
// time with the objects as they are by then and with what became of the sync so far. Without the two seconds that Argo CD rests after
// each wave: a wave must wait for a pipeline because of its health, not because the operator was quick enough to write a status. It gives up when
// time is up, or after so many looks: that a sync does not get on is shown by what it decided, not by how long it was watched.
func synchronize(configMap, kubeconfig, namespace, options, timeout, most string) error {
	limit, err := time.ParseDuration(timeout)
	if err != nil {
		return err
	}
	looks, err := strconv.Atoi(most)
	if err != nil {
		return err
	}
	settings, err := readSettings(configMap)
	if err != nil {
		return fmt.Errorf("%s: %w", configMap, err)
	}
	manifests, err := items[map[string]any]()
	if err != nil {
		return err
	}
	kubectl, config, err := connect(kubeconfig)
	if err != nil {
		return err
	}
	resources, parser, err := kubectl.LoadOpenAPISchema(config)
	if err != nil {
		return err
	}
	differ, err := differ(settings, parser)
	if err != nil {
		return err
	}
	syncer := syncer{settings: settings, options: strings.Split(options, ","), differ: differ, kubectl: kubectl,
		config: config, resources: resources, namespace: namespace}
	for _, manifest := range manifests {
		object := &unstructured.Unstructured{Object: manifest}
		object.SetNamespace(namespace)
		syncer.manifests = append(syncer.manifests, object)
	}
	operation, err := syncer.run(time.Now().Add(limit), looks)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(operation)
}

// run looks at most so many times, or any number of times for 0.
func (syncer *syncer) run(deadline time.Time, looks int) (*Operation, error) {
	before, err := syncer.live()
	if err != nil {
		return nil, err
	}
	started, live := meta.Now(), before
	phase, message, results := common.OperationRunning, "", []common.ResourceSyncResult(nil)
	for look := 1; ; look++ {
		engine, cleanup, err := syncer.engine(live, sync.WithInitialState(phase, message, results, started))
		if err != nil {
			return nil, err
		}
		engine.Sync()
		phase, message, results = engine.GetState()
		cleanup()
		if phase.Completed() || look == looks || time.Now().After(deadline) {
			break
		}
		time.Sleep(round)
		if live, err = syncer.live(); err != nil {
			return nil, err
		}
	}
	after, err := syncer.live()
	if err != nil {
		return nil, err
	}
	return &Operation{Phase: string(phase), Message: message, Applied: syncer.applied(results, before, after)}, nil
}

// engine takes one step with the options of Argo CD. It takes objects out of the map.
func (syncer *syncer) engine(live objects, state sync.SyncOpt) (sync.SyncContext, func(), error) {
	rest := make(objects, len(live))
	for key, object := range live {
		rest[key] = object
	}
	manifests := make([]*unstructured.Unstructured, len(syncer.manifests))
	for at, manifest := range syncer.manifests {
		manifests[at] = manifest.DeepCopy()
	}
	result := sync.Reconcile(manifests, rest, syncer.namespace, namespaced{})
	if slices.Contains(syncer.options, "RespectIgnoreDifferences=true") {
		targets, err := respected(result, syncer.differ)
		if err != nil {
			return nil, nil, err
		}
		result.Target = targets
	}
	return sync.NewSyncContext("", result, syncer.config, syncer.config, syncer.kubectl, syncer.namespace,
		syncer.resources, state, sync.WithLogr(logr.Discard()), sync.WithHealthOverride(syncer.settings.overrides),
		sync.WithServerSideApply(slices.Contains(syncer.options, "ServerSideApply=true")),
		sync.WithServerSideApplyManager(argo.ArgoCDSSAManager))
}

// live gives the manifests' objects that are there.
func (syncer *syncer) live() (objects, error) {
	found := objects{}
	for _, manifest := range syncer.manifests {
		object, err := syncer.kubectl.GetResource(context.Background(), syncer.config, manifest.GroupVersionKind(),
			manifest.GetName(), syncer.namespace)
		if errors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", manifest.GetKind(), manifest.GetName(), err)
		}
		found[kube.GetResourceKey(object)] = object
	}
	return found, nil
}

func (syncer *syncer) applied(results []common.ResourceSyncResult, before, after objects) []Applied {
	waves := map[kube.ResourceKey]int{}
	for _, manifest := range syncer.manifests {
		waves[kube.GetResourceKey(manifest)] = syncwaves.Wave(manifest)
	}
	applied := make([]Applied, len(results))
	for at, result := range results {
		key := result.ResourceKey
		applied[at] = Applied{
			Name:    key.Kind + "/" + key.Name,
			Wave:    waves[key],
			Code:    string(result.Status),
			Message: result.Message,
			Changed: !reflect.DeepEqual(withoutStatus(before[key]), withoutStatus(after[key])),
		}
	}
	return applied
}

// withoutStatus leaves what a sync may write, and when and by whom it was written.
func withoutStatus(object *unstructured.Unstructured) map[string]any {
	if object == nil {
		return nil
	}
	rest := object.DeepCopy()
	var owners []meta.ManagedFieldsEntry
	for _, owner := range rest.GetManagedFields() {
		if owner.Subresource == "" {
			owners = append(owners, owner)
		}
	}
	rest.SetManagedFields(owners)
	if _, reports := rest.Object["status"]; reports {
		// Whoever writes the status changes it, too.
		rest.SetResourceVersion("")
		delete(rest.Object, "status")
	}
	return rest.Object
}
