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
{{ ternary "StatefulSet" "Deployment" .Values.persistence.enabled }}
{{- end }}
