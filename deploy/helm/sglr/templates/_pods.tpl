{{/* What all pods have in common; every container runs under the restricted Pod Security Standard. */}}

{{- define "sglr.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "sglr.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "sglr.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Placement of a part's pods. Takes (dict "root" $ "part" "router"). */}}
{{- define "sglr.placement" -}}
{{- $values := index .root.Values .part }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
{{ toYaml . | indent 2 }}
{{- end }}
topologySpreadConstraints:
{{- if $values.topologySpreadConstraints }}
{{ toYaml $values.topologySpreadConstraints | indent 2 }}
{{- else }}
{{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - topologyKey: {{ $key }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
{{ include "sglr.selector" $ | indent 8 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The pod's own name and place, and a user name: kopf asks for one, and a uid has none. */}}
{{- define "sglr.podEnv" -}}
- name: USER
  value: sglr
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_UID
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- end -}}

{{/* Pod annotations of a part: the user's, and a checksum of what its pods only read at their start. */}}
{{- define "sglr.podAnnotations" -}}
checksum/settings: {{ toJson (list .root.Values.push .root.Values.watch (index .root.Values .part).extraArgs) | sha256sum }}
{{- with (index .root.Values .part).podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}
