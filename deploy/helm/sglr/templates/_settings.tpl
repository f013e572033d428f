{{/* Decisions that follow from the values, each made in one place. */}}

{{/* The seconds of a duration such as 90s, 10m or 1h. Takes (list "router.shutdown.drain" "10m"). */}}
{{- define "sglr.seconds" -}}
{{- $text := index . 1 -}}
{{- if not (regexMatch "^[0-9]+(s|m|h)$" $text) -}}
{{- fail (printf "%s is %q; expected a duration such as 90s, 10m or 1h" (index . 0) $text) -}}
{{- end -}}
{{- $number := regexFind "^[0-9]+" $text | int -}}
{{- $unit := dict "s" 1 "m" 60 "h" 3600 -}}
{{- mul $number (get $unit (regexFind "[smh]$" $text)) -}}
{{- end -}}

{{/* preStop + settle + drain + margin: what a router needs to end without cutting a stream. */}}
{{- define "sglr.router.grace" -}}
{{- $shutdown := .Values.router.shutdown -}}
{{- $needed := 0 -}}
{{- range $part := list "preStop" "settle" "drain" "margin" -}}
{{- $needed = add $needed (include "sglr.seconds" (list (printf "router.shutdown.%s" $part) (get $shutdown $part)) | int) -}}
{{- end -}}
{{- if $shutdown.gracePeriod -}}
{{- $given := include "sglr.seconds" (list "router.shutdown.gracePeriod" $shutdown.gracePeriod) | int -}}
{{- if lt $given (int $needed) -}}
{{- fail (printf "router.shutdown.gracePeriod is %s, but preStop + settle + drain + margin take %ds: streams would be cut by SIGKILL" $shutdown.gracePeriod (int $needed)) -}}
{{- end -}}
{{- $given -}}
{{- else -}}
{{- $needed -}}
{{- end -}}
{{- end -}}

{{- define "sglr.router.scheme" -}}
{{- ternary "https" "http" (not (empty .Values.router.tls.secretName)) -}}
{{- end -}}

{{/* Seconds from the first signal until a router ends the streams that still run. */}}
{{- define "sglr.router.deadline" -}}
{{- $shutdown := .Values.router.shutdown -}}
{{- add (include "sglr.seconds" (list "router.shutdown.settle" $shutdown.settle)) (include "sglr.seconds" (list "router.shutdown.drain" $shutdown.drain)) -}}
{{- end -}}

{{/* The namespaces that are watched, as a JSON list; [] is the whole cluster. */}}
{{- define "sglr.namespaces" -}}
{{- if and .Values.watch.clusterWide .Values.watch.namespaces -}}
{{- fail "watch.namespaces is set, but watch.clusterWide is true: set it to false, or name no namespaces" -}}
{{- end -}}
{{- if .Values.watch.clusterWide -}}
[]
{{- else -}}
{{- .Values.watch.namespaces | default (list .Release.Namespace) | uniq | sortAlpha | toJson -}}
{{- end -}}
{{- end -}}

{{/* How routers prove who they are: token, tokenKeys, mtls or none. */}}
{{- define "sglr.push.auth" -}}
{{- $tls := .Values.push.tls.mode -}}
{{- $auth := .Values.push.auth -}}
{{- if eq $auth "auto" -}}
{{- $auth = ternary "none" (ternary "token" "mtls" .Values.watch.clusterWide) (eq $tls "disabled") -}}
{{- end -}}
{{- if and (ne $auth "none") (eq $tls "disabled") -}}
{{- fail (printf "push.auth is %q, but push.tls.mode is disabled: credentials must not travel in the clear" $auth) -}}
{{- end -}}
{{- if and (eq $auth "token") (not .Values.watch.clusterWide) -}}
{{- fail "push.auth is \"token\", which asks the whole cluster's API, but watch.clusterWide is false: use tokenKeys or mtls" -}}
{{- end -}}
{{- $auth -}}
{{- end -}}

{{/* "true" where routers show a service-account token, else nothing. */}}
{{- define "sglr.push.byToken" -}}
{{- if has (include "sglr.push.auth" .) (list "token" "tokenKeys") -}}true{{- end -}}
{{- end -}}

{{- define "sglr.push.serverSecret" -}}
{{- if eq .Values.push.tls.mode "secret" -}}
{{- required "push.tls.secret.server is needed when push.tls.mode is secret" .Values.push.tls.secret.server -}}
{{- else -}}
{{- include "sglr.operator" . }}-push
{{- end -}}
{{- end -}}

{{- define "sglr.push.clientSecret" -}}
{{- if eq .Values.push.tls.mode "secret" -}}
{{- required "push.tls.secret.client is needed when push.tls.mode is secret and push.auth is mtls" .Values.push.tls.secret.client -}}
{{- else -}}
{{- include "sglr.router" . }}-push
{{- end -}}
{{- end -}}

{{/* The names that the push server's certificate is made for. */}}
{{- define "sglr.push.names" -}}
{{- $name := include "sglr.operator" . -}}
{{- list (printf "%s.%s.svc" $name .Release.Namespace) $name (printf "%s.%s" $name .Release.Namespace) | toJson -}}
{{- end -}}

{{- define "sglr.push.target" -}}
{{ include "sglr.operator" . }}.{{ .Release.Namespace }}.svc:{{ .Values.operator.ports.push }}
{{- end -}}
