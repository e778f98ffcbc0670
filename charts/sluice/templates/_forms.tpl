{{/*
Texts of one form, each with what is said of another form. values.schema.json checks types and choices; Helm would answer a `pattern` there with the
regular expression alone.
*/}}
{{- define "sluice.forms" -}}
registry:
  is: '^[A-Za-z0-9][-A-Za-z0-9.]*(:[0-9]+)?(/[-a-z0-9._]+)*/?$'
  words: a registry without https://, with a path in lower case if there is one, such as registry.example.com/observability
repository:
  is: '^{{ include "sluice.repositoryForm" . }}$'
  words: a repository without a tag and in lower case, such as sluice-operator or registry.example.com/sluice-operator
image:
  is: '^{{ include "sluice.repositoryForm" . }}(:[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?(@sha256:[0-9a-f]{64})?$'
  words: an image, which is a repository in lower case and a tag or a digest, such as registry.example.com/sluice-gateway:0.1.0
tag:
  is: '^[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}$'
  words: a tag of letters, digits, '.', '_' and '-', such as 0.1.0
digest:
  is: '^sha256:[0-9a-f]{64}$'
  words: a digest, which is sha256:... with 64 of 0-9 and a-f; without one, leave it empty
part of a name:
  is: '^[a-z0-9]([-a-z0-9]{0,48}[a-z0-9])?$'
  words: 1 to 50 of a-z, 0-9 and '-', with a letter or digit at both ends, such as traces
name of a Service:
  is: '^[a-z]([-a-z0-9]{0,48}[a-z0-9])?$'
  words: 1 to 50 of a-z, 0-9 and '-', with a letter first and a letter or digit last, such as sluice-operator
namespace:
  is: '^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$'
  words: the name of a namespace, which is 1 to 63 of a-z, 0-9 and '-', with a letter or digit at both ends, such as tracing
name:
  is: '^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$'
  words: the name of an object, which is 1 to 253 of a-z, 0-9, '-' and '.', with a letter or digit at both ends, such as sluice-operator
share:
  is: '^([0-9]|[1-9][0-9]|100)%$'
  words: a number such as 1, or a percentage from 0% to 100% such as 50%
interval:
  is: '^[1-9][0-9]*(ms|s|m|h)$'
  words: a whole number of ms, s, m or h, such as 30s
option:
  is: '^-'
  words: an option of the operator, such as --flag=value
path:
  is: '^/'
  words: an absolute path, such as /etc/extra
label:
  is: '^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'
  words: the value of a label, which is up to 63 of a-z, A-Z, 0-9, '-', '_' and '.', with a letter or digit at both ends, such as team-a
label key:
  is: '^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'
  words: a key of labels, annotations or taints, which is up to 63 of a-z, A-Z, 0-9, '-', '_' and '.', with a letter or digit at both ends, behind a domain and '/' if there is one, such as example.com/team
volume:
  is: '^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$'
  words: the name of a volume, which is 1 to 63 of a-z, 0-9 and '-', with a letter or digit at both ends, such as extra
resource:
  is: '^(cpu|memory|ephemeral-storage|hugepages-[0-9A-Za-z]+|[-a-z0-9.]+/[-A-Za-z0-9._]+)$'
  words: a resource, which is cpu, memory, ephemeral-storage, or one such as example.com/gpu
quantity:
  is: '^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+)?$'
  words: a quantity, such as 100m or 256Mi
log level:
  is: '^([A-Za-z0-9_:]+=)?(?i:off|error|warn|info|debug|trace)(,([A-Za-z0-9_:]+=)?(?i:off|error|warn|info|debug|trace))*$'
  words: off, error, warn, info, debug or trace, or several with parts of the program, such as info,sluice_operator=debug
selector:
  is: '^{{ include "sluice.requirement" . }}(,{{ include "sluice.requirement" . }})*$'
  words: a label selector, such as team=a or team notin (a, b)
{{- end }}

{{/* A repository with its registry, if there is one. Only the host of a registry may have letters in upper case. */}}
{{- define "sluice.repositoryForm" -}}
([A-Za-z0-9][-A-Za-z0-9.]*(:[0-9]+)?/)?[a-z0-9][-a-z0-9._]*(/[a-z0-9][-a-z0-9._]*)*
{{- end }}

{{/* One requirement of a label selector, as the operator reads it (operator/plan/src/ground/selector.rs). */}}
{{- define "sluice.requirement" -}}
\s*(!?\s*[-A-Za-z0-9_./]+|[-A-Za-z0-9_./]+\s*(=|==|!=)\s*[-A-Za-z0-9_.]*|[-A-Za-z0-9_./]+\s+(in|notin)\s*[(]\s*[-A-Za-z0-9_.]*(\s*,\s*[-A-Za-z0-9_.]*)*\s*[)])\s*
{{- end }}

{{/* Fails at the first value of another form. An empty one is not set. */}}
{{- define "sluice.checkForms" -}}
{{- $forms := include "sluice.forms" . | fromYaml -}}
{{- range include "sluice.formed" . | fromYamlArray -}}
{{- $form := index $forms .form -}}
{{- if and (kindIs "string" .is) .is (not (regexMatch $form.is .is)) -}}
{{- fail (printf "%s: %q is not %s" .at .is $form.words) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The values that have a form, as a list of place, value and form. */}}
{{- define "sluice.formed" -}}
{{- $found := list
  (dict "at" "global.imageRegistry" "is" .Values.global.imageRegistry "form" "registry")
  (dict "at" "image.registry" "is" .Values.image.registry "form" "registry")
  (dict "at" "image.repository" "is" .Values.image.repository "form" "repository")
  (dict "at" "image.tag" "is" .Values.image.tag "form" "tag")
  (dict "at" "image.digest" "is" .Values.image.digest "form" "digest")
  (dict "at" "nameOverride" "is" .Values.nameOverride "form" "part of a name")
  (dict "at" "fullnameOverride" "is" .Values.fullnameOverride "form" "name of a Service")
  (dict "at" "pipelineSelector" "is" .Values.pipelineSelector "form" "selector")
  (dict "at" "logLevel" "is" .Values.logLevel "form" "log level")
  (dict "at" "serviceAccount.name" "is" .Values.serviceAccount.name "form" "name")
  (dict "at" "priorityClassName" "is" .Values.priorityClassName "form" "name")
  (dict "at" "podDisruptionBudget.maxUnavailable" "is" .Values.podDisruptionBudget.maxUnavailable "form" "share")
  (dict "at" "serviceMonitor.interval" "is" .Values.serviceMonitor.interval "form" "interval")
  (dict "at" "gatewayPodMonitor.interval" "is" .Values.gatewayPodMonitor.interval "form" "interval")
-}}
{{- $gateway := .Values.gateway.image -}}
{{- if kindIs "map" $gateway -}}
{{- range list "registry" "repository" "tag" "digest" -}}
{{- $found = append $found (dict "at" (printf "gateway.image.%s" .) "is" (index $gateway .) "form" .) -}}
{{- end -}}
{{- end -}}
{{- if kindIs "string" $gateway -}}
{{- $found = append $found (dict "at" "gateway.image" "is" $gateway "form" "image") -}}
{{- end -}}
{{- range .Values.watchNamespaces -}}
{{- $found = append $found (dict "at" "watchNamespaces" "is" . "form" "namespace") -}}
{{- end -}}
{{- range $at, $secrets := dict "global.imagePullSecrets" .Values.global.imagePullSecrets "imagePullSecrets" .Values.imagePullSecrets -}}
{{- range $secrets -}}
{{- $name := . -}}
{{- if kindIs "map" . -}}
{{- $name = .name -}}
{{- end -}}
{{- $found = append $found (dict "at" $at "is" $name "form" "name") -}}
{{- end -}}
{{- end -}}
{{- range .Values.tolerations -}}
{{- $found = append $found (dict "at" "tolerations.key" "is" .key "form" "label key") -}}
{{- end -}}
{{- range .Values.extraArgs -}}
{{- $found = append $found (dict "at" "extraArgs" "is" . "form" "option") -}}
{{- end -}}
{{- range .Values.extraVolumes -}}
{{- $found = append $found (dict "at" "extraVolumes.name" "is" .name "form" "volume") -}}
{{- end -}}
{{- range .Values.extraVolumeMounts -}}
{{- $found = append $found (dict "at" "extraVolumeMounts.mountPath" "is" .mountPath "form" "path") -}}
{{- end -}}
{{- $labels := dict "commonLabels" .Values.commonLabels "podLabels" .Values.podLabels "serviceMonitor.labels" .Values.serviceMonitor.labels
  "gatewayPodMonitor.labels" .Values.gatewayPodMonitor.labels "prometheusRule.labels" .Values.prometheusRule.labels
  "dashboards.labels" .Values.dashboards.labels "nodeSelector" .Values.nodeSelector -}}
{{- range $at, $all := $labels -}}
{{- range $key, $value := $all -}}
{{- $found = append $found (dict "at" $at "is" $key "form" "label key") -}}
{{- $found = append $found (dict "at" (printf "%s.%s" $at $key) "is" $value "form" "label") -}}
{{- end -}}
{{- end -}}
{{- range $at, $all := dict "podAnnotations" .Values.podAnnotations "serviceAccount.annotations" .Values.serviceAccount.annotations -}}
{{- range $key, $_ := $all -}}
{{- $found = append $found (dict "at" $at "is" $key "form" "label key") -}}
{{- end -}}
{{- end -}}
{{- range $of, $amounts := .Values.resources -}}
{{- range $resource, $amount := $amounts -}}
{{- $found = append $found (dict "at" (printf "resources.%s" $of) "is" $resource "form" "resource") -}}
{{- $found = append $found (dict "at" (printf "resources.%s.%s" $of $resource) "is" $amount "form" "quantity") -}}
{{- end -}}
{{- end -}}
{{ toYaml $found }}
{{- end }}

{{/*
Fails at memory of less than 1Mi, of requests and of limits. Kubernetes takes 256 as bytes and 256m as a quarter of a byte, and no container starts
with such a limit. Chosen: a number with a forgotten or a smaller unit is below 1Mi, and what a program needs is not. The forms were checked.
*/}}
{{- define "sluice.checkMemory" -}}
{{- $units := dict "" 1 "n" 0.000000001 "u" 0.000001 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18
  "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 -}}
{{- range $of, $amounts := .Values.resources -}}
{{- range $resource, $amount := $amounts -}}
{{- if and (eq $resource "memory") (not (kindIs "invalid" $amount)) -}}
{{- $text := toString $amount -}}
{{- $unit := regexFind "([numkMGTPE]|[KMGTPE]i)$" $text -}}
{{- if lt (mulf (trimSuffix $unit $text) (index $units $unit)) 1048576.0 -}}
{{- fail (printf "resources.%s.memory: %s is less than 1Mi: a number without a unit is bytes, and m is a thousandth of a byte; write Mi or Gi, such as 256Mi" $of $text) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
