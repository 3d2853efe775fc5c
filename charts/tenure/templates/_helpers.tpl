{{- /* tenure.image is the image of the manager and the proxy. */ -}}
{{- define "tenure.image" -}}
{{- $tag := .Values.image.tag -}}
{{- if not (or $tag .Values.image.digest) }}{{ $tag = .Chart.AppVersion }}{{ end -}}
{{- .Values.image.repository }}{{ with $tag }}:{{ . }}{{ end }}{{ with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- /* tenure.check refuses namespaces that cannot be Flux's. */ -}}
{{- define "tenure.check" -}}
{{- if or (eq .Release.Namespace "default") (hasPrefix "kube-" .Release.Namespace) -}}
{{- fail (printf "the chart cannot be installed in the namespace %s: the manager runs where Flux does: name Flux's namespace, usually with --namespace flux-system" .Release.Namespace) -}}
{{- end -}}
{{- end -}}
