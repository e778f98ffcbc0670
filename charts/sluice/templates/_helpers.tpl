{{/* Name of all objects of one release. The name of a Service begins with a letter and has no dot. */}}
{{- define "sluice.name" -}}
{{- if not (regexMatch "^[a-z][-a-z0-9]*$" .Release.Name) -}}
{{- fail (printf "the release cannot be called %q: its Service is named after it, of a-z, 0-9 and '-', with a letter first" .Release.Name) -}}
{{- end -}}
{{- if contains "sluice" .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-sluice" .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{/* Labels that never change, because selectors use them. */}}
{{- define "sluice.selectorLabels" -}}
app.kubernetes.io/name: sluice-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "sluice.labels" -}}
{{ include "sluice.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: sluice
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "sluice.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "sluice.gatewayImage" -}}
{{ .Values.gateway.image | default (printf "sluice-gateway:%s" .Chart.AppVersion) }}
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
# The operator never deletes these objects. The admission plugin OwnerReferencesPermissionEnforcement requires `delete` to change the owners of an
# object. The operator changes owners when a pipeline is orphaned and when another pipeline takes its objects over.
- apiGroups: [""]
  resources: [services, serviceaccounts]
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
