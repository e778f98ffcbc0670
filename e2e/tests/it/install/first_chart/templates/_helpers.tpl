{{/* Name of all objects of one release. */}}
{{- define "sluice.name" -}}
{{- if contains "sluice" .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-sluice" .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{/* Labels that never change: selectors are made of them. */}}
{{- define "sluice.selectorLabels" -}}
app.kubernetes.io/name: sluice-operator
app.kubernetes.io/instance: {{ .Release.Name }}
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
- apiGroups: [sluice.dev]
  resources: [tracepipelines]
  verbs: [get, list, watch]
- apiGroups: [sluice.dev]
  resources: [tracepipelines/status]
  verbs: [patch]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [services, serviceaccounts]
  verbs: [get, list, watch, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch]
# Configs and schema Jobs are named by their content, so old ones are left behind by each change.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
# Why a gateway or a schema Job does not come up is written in its pods.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
# Whether a named Secret exists and has its keys. Kubernetes cannot grant the metadata alone; set watchNamespaces to keep
# this right out of other namespaces.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}
