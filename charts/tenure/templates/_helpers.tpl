{{- /* tenure.image is the image of the manager and the proxy. */ -}}
{{- define "tenure.image" -}}
{{- $tag := .Values.image.tag -}}
{{- if not (or $tag .Values.image.digest) }}{{ $tag = .Chart.AppVersion }}{{ end -}}
{{- .Values.image.repository }}{{ with $tag }}:{{ . }}{{ end }}{{ with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- /* tenure.check refuses namespaces that cannot be Flux's, and shards on a cluster that cannot have them. */ -}}
{{- define "tenure.check" -}}
{{- if or (eq .Release.Namespace "default") (hasPrefix "kube-" .Release.Namespace) -}}
{{- fail (printf "the chart cannot be installed in the namespace %s: the manager runs where Flux does: name Flux's namespace, usually with --namespace flux-system" .Release.Namespace) -}}
{{- end -}}
{{- if and .Values.shards.enabled (not (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy")) -}}
{{- fail "shards need Kubernetes 1.36: this cluster does not serve MutatingAdmissionPolicies at admissionregistration.k8s.io/v1: set shards.enabled to false" -}}
{{- end -}}
{{- end -}}

{{- /* tenure.apiServerPorts are the ports of the API server in network policies. */ -}}
{{- define "tenure.apiServerPorts" -}}
{{- $ports := list -}}
{{- range .Values.networkPolicies.apiServerPorts }}{{ $ports = append $ports (dict "port" (int .) "protocol" "TCP") }}{{ end -}}
{{- toJson $ports -}}
{{- end -}}
