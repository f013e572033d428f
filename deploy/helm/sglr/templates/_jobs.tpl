{{/* The pod of a job that talks to the API server. Takes (dict "root" $ "account" "..." "args" (list ...) "settings" "configMap"). */}}
{{- define "sglr.jobPod" -}}
metadata:
  labels:
{{ include "sglr.labels" (dict "root" .root "part" "jobs") | indent 4 }}
spec:
  restartPolicy: OnFailure
  serviceAccountName: {{ .account }}
  automountServiceAccountToken: true
  enableServiceLinks: false
{{- include "sglr.pullSecrets" .root | nindent 2 }}
{{- with .root.Values.jobs.nodeSelector }}
  nodeSelector:
{{ toYaml . | indent 4 }}
{{- end }}
{{- with .root.Values.jobs.tolerations }}
  tolerations:
{{ toYaml . | indent 4 }}
{{- end }}
  securityContext:
{{ include "sglr.podSecurity" .root | indent 4 }}
  containers:
    - name: job
      image: {{ include "sglr.image" .root }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      command: [python3]
      args:
{{ toYaml .args | indent 8 }}
      resources:
{{ toYaml .root.Values.jobs.resources | indent 8 }}
      securityContext:
{{ include "sglr.containerSecurity" .root | indent 8 }}
      volumeMounts:
        - {name: job, mountPath: /job, readOnly: true}
        - {name: tmp, mountPath: /tmp}
  volumes:
    - name: job
      configMap: {name: {{ .settings }}}
    - name: tmp
      emptyDir: {}
{{- end -}}
