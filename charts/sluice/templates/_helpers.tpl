{{/* Name of all objects of one release. That of a Service begins with a letter and has no dot. */}}
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

{{/* Labels that never change: selectors are made of them. */}}
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
What the operator does in the namespaces that it looks after, and nothing else. Kept in one place for the ClusterRole and
the Roles. Objects that are never deleted by the operator (they go with their TracePipeline) have no `delete`.
*/}}
{{- define "sluice.rules" -}}
# `patch` for the finalizer by which a pipeline is held until its gateways are drained; nothing of its spec is ever written.
- apiGroups: [sluice.dev]
  resources: [tracepipelines]
  verbs: [get, list, watch, patch]
- apiGroups: [sluice.dev]
  resources: [tracepipelines/finalizers]
  verbs: [update]
- apiGroups: [sluice.dev]
  resources: [tracepipelines/status]
  verbs: [patch]
# The StatefulSet is deleted, without its pods, when volumes have grown: what it makes claims from cannot be changed.
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
# Queue volumes: `patch` for their size, the mark of those that are drained, and to take the StatefulSet out of the owners of those that
# are to outlive it; they, those whose gateway is seen to be empty when another volume takes their place or its pipeline is deleted, and
# claims that never had a volume are all that is deleted.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, patch{{ if .Values.volumes.delete }}, delete{{ end }}]
# None of them is deleted: that right is asked for, by the admission plugin OwnerReferencesPermissionEnforcement, of whoever changes the
# owners of an object, as when a pipeline's objects are left to themselves and when another takes them over.
- apiGroups: [""]
  resources: [services, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
# Of a kind that the cluster may not have: it comes with the Prometheus operator.
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [get, create, patch, delete]
# Configs and schema Jobs are named by their content, so old ones are left behind by each change; Jobs that drain volumes end.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
# Why a gateway or a schema Job does not come up is written in its pods. One that Kubernetes leaves broken with a revision that
# nobody means any more is deleted, so that it comes back; so is one that is empty and gets a new volume. Until its process is seen
# to have ended without writing anything more, a finalizer keeps its name from the next one: patch.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch, delete]
# With gateway.resources.resize: InPlace, more memory for the pod of a gateway that was killed for it.
- apiGroups: [""]
  resources: [pods/resize]
  verbs: [patch]
# Whether a named Secret exists and has its keys. Kubernetes cannot grant the metadata alone; set watchNamespaces to keep
# this right out of other namespaces.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
# Why the pods of a StatefulSet are not made (a quota, a rule of the namespace) is said in its events and nowhere else.
- apiGroups: [""]
  resources: [events]
  verbs: [list]
{{- end }}

{{/*
What the operator does beside namespaces, whichever it looks after. With `clusterRole.tracePipelines` a namespace that is deleted,
which takes the operator's Role in it along, does not wait for ever for its pipelines to be let go; it is a right to pipelines
elsewhere, too.
*/}}
{{- define "sluice.clusterRules" -}}
{{- if and .Values.watchNamespaces .Values.clusterRole.tracePipelines }}
- apiGroups: [sluice.dev]
  resources: [tracepipelines]
  verbs: [get, list, watch, patch]
{{- end }}
# Whether the storage class that a pipeline names exists, and whether it lets volumes grow.
- apiGroups: [storage.k8s.io]
  resources: [storageclasses]
  verbs: [get]
{{- end }}
