{{/*
Values that are missing get their defaults: Helm deletes a value that is set to `null`, and `helm upgrade --reuse-values` from an older chart
does not have the newer ones. Each template starts with this, which also checks the texts that have a form, and memory. `merge` would also replace `false`, 0 and "". What is not listed has no default
here: without it, nothing is rendered. A security context is one value: within it, a missing field stays missing (OpenShift).
*/}}
{{- define "sluice.defaultValues" -}}
{{- include "sluice.setMissing" (list .Values (include "sluice.defaults" . | fromYaml)) -}}
{{- include "sluice.checkForms" . -}}
{{- include "sluice.checkMemory" . -}}
{{- end }}

{{- define "sluice.setMissing" -}}
{{- $values := index . 0 -}}
{{- range $key, $default := index . 1 -}}
{{- $value := index $values $key -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := set $values $key $default -}}
{{- else if and (kindIs "map" $value) (kindIs "map" $default) (not (hasSuffix "ecurityContext" $key)) -}}
{{- include "sluice.setMissing" (list $value $default) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "sluice.defaults" -}}
global: {}
image:
  repository: sluice-operator
  pullPolicy: IfNotPresent
gateway:
  image:
    repository: sluice-gateway
replicas: 2
clusterRole:
  enabled: true
  aggregate: true
  tracePipelines: false
volumes:
  delete: true
logLevel: info
logFormat: json
crds:
  enabled: true
  keep: true
rbac:
  create: true
serviceAccount:
  create: true
podDisruptionBudget:
  enabled: true
  maxUnavailable: 1
networkPolicy:
  enabled: true
serviceMonitor:
  enabled: false
  interval: 30s
gatewayPodMonitor:
  enabled: false
  interval: 30s
prometheusRule:
  enabled: false
dashboards:
  enabled: false
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
podSecurityContext:
  runAsGroup: 65532
  runAsNonRoot: true
  runAsUser: 65532
  seccompProfile:
    type: RuntimeDefault
securityContext:
  allowPrivilegeEscalation: false
  capabilities:
    drop: [ALL]
  readOnlyRootFilesystem: true
{{- end }}

{{/* Name of all objects of one release. The name of a Service begins with a letter and has no dot. */}}
{{- define "sluice.name" -}}
{{- $name := .Values.fullnameOverride | default (include "sluice.unchecked" (list .Release.Name (.Values.nameOverride | default "sluice"))) -}}
{{- if not (regexMatch "^[a-z][-a-z0-9]*$" $name) -}}
{{- fail (printf "the release cannot be called %q: its Service would be %q, and needs a name of a-z, 0-9 and '-', with a letter first; set fullnameOverride" .Release.Name $name) -}}
{{- end -}}
{{ $name }}
{{- end }}

{{- define "sluice.unchecked" -}}
{{- $release := index . 0 -}}
{{- if contains (index . 1) $release -}}
{{ $release | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" $release (index . 1) | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{/* Name of the Lease. No override changes it: the operators of before and after an upgrade with another name must have one Lease. */}}
{{- define "sluice.lease" -}}
{{ include "sluice.unchecked" (list .Release.Name "sluice") }}
{{- end }}

{{/* Labels that never change, because selectors use them: Kubernetes refuses to change the selector of a Deployment. */}}
{{- define "sluice.selectorLabels" -}}
app.kubernetes.io/name: sluice-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "sluice.labels" -}}
{{ include "sluice.labelsWith" (list . dict) }}
{{- end }}

{{/* Labels of an object that has more of its own. Argument: the root, and these labels, which come before `commonLabels`. */}}
{{- define "sluice.labelsWith" -}}
{{- $root := index . 0 -}}
{{- $more := merge (dict) (index . 1 | default dict) ($root.Values.commonLabels | default dict) -}}
{{- $fixed := include "sluice.selectorLabels" $root | fromYaml -}}
{{- $_ := set $fixed "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $fixed "app.kubernetes.io/component" "operator" -}}
{{- $_ := set $fixed "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $fixed "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- range $key := keys $more -}}
{{- if hasKey $fixed $key -}}
{{- fail (printf "the label %q cannot be set (commonLabels, podLabels, or labels of a monitor): the chart sets it" $key) -}}
{{- end -}}
{{- end -}}
{{- merge $fixed $more (dict "app.kubernetes.io/part-of" "sluice") | toYaml -}}
{{- end }}

{{/* Registry of both images, without a slash at its end. */}}
{{- define "sluice.registry" -}}
{{ .Values.global.imageRegistry | default .Values.image.registry | default "" | trimSuffix "/" }}
{{- end }}

{{/* Reference of an image. Argument: the place of its values, its registry, its values, and its tag if they have none. */}}
{{- define "sluice.reference" -}}
{{- $prefix := ternary "" (printf "%s/" .registry) (empty .registry) -}}
{{- $host := printf "%s/" (splitList "/" .registry | first) -}}
{{- if and $prefix (hasPrefix $host .image.repository) -}}
{{- fail (printf "%s.repository: %q begins with the registry %q, which is set too: remove it from the repository" .at .image.repository .registry) -}}
{{- end -}}
{{- if not (or (kindIs "string" .image.tag) (kindIs "invalid" .image.tag)) -}}
{{- fail (printf "%s.tag: %s is a number, and YAML drops a zero at the end of a number (1.10 is 1.1): write the tag in quotes, such as tag: \"1.10\", or use --set-string" .at (toJson .image.tag)) -}}
{{- end -}}
{{- if .image.digest -}}
{{ $prefix }}{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ $prefix }}{{ .image.repository }}:{{ .image.tag | default .tag }}
{{- end -}}
{{- end }}

{{- define "sluice.image" -}}
{{ include "sluice.reference" (dict "at" "image" "registry" (include "sluice.registry" .) "image" .Values.image "tag" .Chart.AppVersion) }}
{{- end }}

{{/* The text that `gateway.image` was up to version 0.1.0 is a whole reference. */}}
{{- define "sluice.gatewayImage" -}}
{{- $image := .Values.gateway.image | default (dict "repository" "sluice-gateway") -}}
{{- if kindIs "string" $image -}}
{{ $image }}
{{- else -}}
{{- $registry := .Values.global.imageRegistry | default $image.registry | default (include "sluice.registry" .) | trimSuffix "/" -}}
{{ include "sluice.reference" (dict "at" "gateway.image" "registry" $registry "image" $image "tag" (.Values.image.tag | default .Chart.AppVersion)) }}
{{- end -}}
{{- end }}

{{/* Names of pull Secrets, separated by commas. */}}
{{- define "sluice.pullSecrets" -}}
{{- $names := list -}}
{{- range concat (.Values.global.imagePullSecrets | default list) (.Values.imagePullSecrets | default list) -}}
{{- if kindIs "string" . -}}
{{- $names = append $names . -}}
{{- else -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- end -}}
{{ join "," (uniq $names) }}
{{- end }}

{{- define "sluice.imagePullSecrets" -}}
{{- with include "sluice.pullSecrets" . -}}
imagePullSecrets:
{{- range splitList "," . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "sluice.serviceAccount" -}}
{{- $account := .Values.serviceAccount -}}
{{- if $account.create -}}
{{ $account.name | default (include "sluice.name" .) }}
{{- else -}}
{{ required "serviceAccount.create: false needs serviceAccount.name: the ServiceAccount with the operator's rights" $account.name }}
{{- end -}}
{{- end }}

{{- define "sluice.topologySpreadConstraints" -}}
{{- $selector := dict "matchLabels" (include "sluice.selectorLabels" . | fromYaml) -}}
{{- with .Values.topologySpreadConstraints -}}
topologySpreadConstraints:
{{- range . }}
{{- $constraint := ternary . (merge (dict "labelSelector" $selector) .) (hasKey . "labelSelector") }}
{{ list $constraint | toYaml | indent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* Labels of a pod of `helm test`. No selector of the release has them but one of the NetworkPolicy. */}}
{{- define "sluice.testLabels" -}}
app.kubernetes.io/name: sluice-test
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* A pod of `helm test`. Argument: the root, and name, image, pullPolicy and args. It stays if it fails. */}}
{{- define "sluice.test" -}}
{{- $root := index . 0 -}}
{{- with index . 1 -}}
apiVersion: v1
kind: Pod
metadata:
  name: {{ include "sluice.name" $root }}-test-{{ .name }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels:
    {{- include "sluice.testLabels" $root | nindent 4 }}
    {{- with $root.Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    helm.sh/hook: test
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with include "sluice.imagePullSecrets" $root }}
  {{- . | nindent 2 }}
  {{- end }}
  securityContext:
    {{- toYaml $root.Values.podSecurityContext | nindent 4 }}
  containers:
    - name: {{ .name }}
      image: {{ .image | quote }}
      imagePullPolicy: {{ .pullPolicy }}
      args:
        {{- toYaml .args | nindent 8 }}
      resources:
        requests: {cpu: 10m, memory: 32Mi}
        limits: {memory: 64Mi}
      securityContext:
        {{- toYaml $root.Values.securityContext | nindent 8 }}
  {{- with $root.Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{/*
The operator's rights in the namespaces that it manages. One definition for the ClusterRole and the Roles. Objects that the operator never
deletes, because Kubernetes deletes them with their TracePipeline, have no `delete`.
*/}}
{{- define "sluice.rules" -}}
# `patch` is for the finalizer that holds a pipeline until its gateways are drained. The operator never writes a spec.
- apiGroups: [sluice.dev]
  resources: [tracepipelines]
  verbs: [get, list, watch, patch]
# The operator reads connections and never writes their spec.
- apiGroups: [sluice.dev]
  resources: [traceconnections]
  verbs: [list, watch]
- apiGroups: [sluice.dev]
  resources: [traceconnections/status]
  verbs: [patch]
- apiGroups: [sluice.dev]
  resources: [tracepipelines/finalizers]
  verbs: [update]
- apiGroups: [sluice.dev]
  resources: [tracepipelines/status]
  verbs: [patch]
# After volumes have grown, the operator deletes the StatefulSet without its pods, because volumeClaimTemplates are immutable.
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
# Queue volumes. `patch` is for their size, for the label of drained ones, and to remove the StatefulSet from the owners of volumes that stay.
# The operator deletes a claim in three cases: a Job has drained it; its gateway reported that it is empty, when the volume is replaced or
# the pipeline deleted; or it never had a volume.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, patch{{ if .Values.volumes.delete }}, delete{{ end }}]
# The operator deletes those of an edge that a spec no longer has, and never those of gateways. The admission plugin
# OwnerReferencesPermissionEnforcement requires `delete` to change the owners of an object. The operator changes owners when a pipeline is
# orphaned and when another pipeline takes its objects over.
- apiGroups: [""]
  resources: [services, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
# The edge of a pipeline (spec.edge), and the autoscaler of its pods.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
# This kind exists only if the Prometheus operator's CRDs are installed.
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [get, create, patch, delete]
# Configs and schema Jobs are named by their content, so each change leaves an old one to delete. Jobs that drain volumes end.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
# Pods show why a gateway or a schema Job does not start. The operator deletes pods that are stuck on an obsolete revision, and a drained
# pod whose volume is replaced. `patch` is for a finalizer: it keeps the pod's name until its process has ended without writing any more.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch, delete]
# With gateway.resources.resize: InPlace, the operator gives more memory to the pod of an OOM-killed gateway.
- apiGroups: [""]
  resources: [pods/resize]
  verbs: [patch]
# The operator checks that a named Secret exists and has its keys, notices when its content changes, and reads Kafka's logins for its own
# questions to Kafka. Kubernetes cannot grant access to metadata only. Set watchNamespaces to
# limit this right to some namespaces.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
# Only the events of a StatefulSet say why its pods are not created (a quota, a rule of the namespace).
- apiGroups: [""]
  resources: [events]
  verbs: [list]
{{- end }}

{{/*
The operator's rights outside namespaces. When a namespace is deleted, Kubernetes deletes the operator's Role in it. With
`clusterRole.tracePipelines` the operator can still remove the finalizers of its pipelines. It is a right to the pipelines of all namespaces.
*/}}
{{- define "sluice.clusterRules" -}}
{{- if and .Values.watchNamespaces .Values.clusterRole.tracePipelines }}
- apiGroups: [sluice.dev]
  resources: [tracepipelines]
  verbs: [get, list, watch, patch]
{{- end }}
# The operator checks that the StorageClass of a pipeline exists and whether it allows volume expansion.
- apiGroups: [storage.k8s.io]
  resources: [storageclasses]
  verbs: [get]
{{- end }}
