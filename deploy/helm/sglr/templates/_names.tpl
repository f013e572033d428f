{{/* Names and labels. */}}

{{- define "sglr.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 39 | trimSuffix "-" -}}
{{- end -}}

{{/* A CronJob's name has 52 characters at most, and the longest suffix added to it is "-certificates". */}}
{{- define "sglr.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 39 | trimSuffix "-" -}}
{{- else if contains (include "sglr.name" .) .Release.Name -}}
{{- .Release.Name | trunc 39 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "sglr.name" .) | trunc 39 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "sglr.operator" -}}{{ include "sglr.fullname" . }}-operator{{- end -}}
{{- define "sglr.router" -}}{{ include "sglr.fullname" . }}-router{{- end -}}
{{- define "sglr.demo" -}}{{ include "sglr.fullname" . }}-demo{{- end -}}

{{/* What never changes for a part: a Deployment's selector is immutable. Takes (dict "root" $ "part" "router"). */}}
{{- define "sglr.selector" -}}
app.kubernetes.io/name: {{ include "sglr.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "sglr.labels" -}}
{{ include "sglr.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: sglr
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "sglr.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A part's ServiceAccount. Takes (dict "root" $ "part" "router"). */}}
{{- define "sglr.account" -}}
{{- $account := (index .root.Values .part).serviceAccount -}}
{{- if $account.create -}}
{{- $account.name | default (printf "%s-%s" (include "sglr.fullname" .root) .part) -}}
{{- else -}}
{{- required (printf "%s.serviceAccount.name is needed when %s.serviceAccount.create is false" .part .part) $account.name -}}
{{- end -}}
{{- end -}}
