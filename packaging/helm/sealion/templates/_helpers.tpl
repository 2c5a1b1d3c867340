{{- define "sealion.name" -}}
{{- $name := ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) -}}
{{ $name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "sealion.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sealion.labels" -}}
{{ include "sealion.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "sealion.kind" -}}
{{ ternary "StatefulSet" .Values.workload .Values.persistence.enabled }}
{{- end }}

{{- define "sealion.proxied" -}}
{{ ternary "yes" "" (or .Values.ingress.enabled .Values.gateway.enabled) }}
{{- end }}

{{- define "sealion.check" -}}
{{- if and .Values.persistence.enabled (eq .Values.workload "DaemonSet") }}
{{- fail "persistence needs workload: Deployment, whose pods then are those of a StatefulSet" }}
{{- end }}
{{- if and .Values.autoscaling.enabled (eq .Values.workload "DaemonSet") }}
{{- fail "a DaemonSet has a pod on each node: set autoscaling.enabled to false" }}
{{- end }}
{{- if and .Values.files.existingClaim .Values.files.hostPath }}
{{- fail "set one of files.existingClaim and files.hostPath" }}
{{- end }}
{{- if and .Values.gateway.enabled (not .Values.gateway.name) }}
{{- fail "set gateway.name to the gateway that the route is attached to" }}
{{- end }}
{{- end }}

{{- define "sealion.config" -}}
{{- if .Values.config }}
{{- .Values.config }}
{{- else -}}
[[listen]]
address = "0.0.0.0:8443"

[[listen]]
address = "0.0.0.0:8080"
tls = false
{{- if include "sealion.proxied" . }}
# The controller ends TLS.
plain = "serve"
client_address = "x-forwarded-for"
trusted_proxies = {{ toJson .Values.trustedProxies }}
{{- else }}
# Redirects to HTTPS, on the port that clients see.
https_port = {{ .Values.service.httpsPort }}
{{- end }}

[limits]
grace = "45s"

[metrics]
listen = "0.0.0.0:9443"
{{- if .Values.ticketKeys.secretName }}

[tls.session_tickets]
keys = "/run/secrets/ticket-keys"
{{- end }}

[[site]]
root = "/srv/www"
{{- if .Values.certificate.secretName }}
certificates = [{ cert = "/run/secrets/tls/tls.crt", key = "/run/secrets/tls/tls.key" }]
{{- end }}
{{- end }}
{{- end }}

{{- /* The content of `extraVolumes`, which the server reads at its start alone. Empty without a cluster, as for `helm template`. */}}
{{- define "sealion.volumes" -}}
{{- range .Values.extraVolumes }}
{{- with .secret }}
{{- with lookup "v1" "Secret" $.Release.Namespace .secretName }}{{ toJson .data }}{{ end }}
{{- end }}
{{- with .configMap }}
{{- with lookup "v1" "ConfigMap" $.Release.Namespace .name }}{{ toJson .data }}{{ toJson .binaryData }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
