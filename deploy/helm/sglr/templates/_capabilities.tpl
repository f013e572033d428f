{{/* What the cluster serves. Everything that depends on it asks here. */}}

{{/* Whether the cluster serves an API version, "true" or "". Takes (list $ "policy/v1"). */}}
{{- define "sglr.serves" -}}
{{- if (index . 0).Capabilities.APIVersions.Has (index . 1) -}}true{{- end -}}
{{- end -}}

{{/* Whether the cluster is at least of a version, "true" or "". Takes (list $ "1.24"). */}}
{{- define "sglr.atLeast" -}}
{{- if semverCompare (printf ">=%s.0-0" (index . 1)) (index . 0).Capabilities.KubeVersion.Version -}}true{{- end -}}
{{- end -}}

{{- define "sglr.api.pdb" -}}
{{- ternary "policy/v1" "policy/v1beta1" (eq "true" (include "sglr.serves" (list . "policy/v1"))) -}}
{{- end -}}

{{- define "sglr.api.hpa" -}}
{{- ternary "autoscaling/v2" "autoscaling/v2beta2" (eq "true" (include "sglr.serves" (list . "autoscaling/v2"))) -}}
{{- end -}}

{{- define "sglr.api.cronjob" -}}
{{- ternary "batch/v1" "batch/v1beta1" (eq "true" (include "sglr.atLeast" (list . "1.21"))) -}}
{{- end -}}
