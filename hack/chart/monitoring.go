package main

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
)

// monitoringTemplate returns the template of the objects of config/monitoring. It fails on a cluster
// that does not serve their kinds: Helm's own error names neither the value nor the reason.
func monitoringTemplate() (string, error) {
	objects, err := flux.ReadObjects(config.Monitoring())
	if err != nil {
		return "", err
	}
	dashboard := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"dashboard.json": string(config.Dashboard())},
	}}
	dashboard.SetName("tenure-dashboard")
	dashboard.SetNamespace(fluxNamespace)
	// Grafana's sidecar loads ConfigMaps with the first label.
	dashboard.SetLabels(map[string]string{"grafana_dashboard": "1", "app.kubernetes.io/name": "tenure"})

	text := notice + `{{- if .Values.monitoring.enabled }}
{{- if not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1/PodMonitor") }}
{{- fail "monitoring.enabled needs the kinds of the Prometheus operator, and this cluster serves no PodMonitor: install the operator first, or set monitoring.enabled to false" }}
{{- end }}
`
	for _, o := range append(objects, dashboard) {
		object, err := yaml.Marshal(o.Object)
		if err != nil {
			return "", fmt.Errorf("cannot make a template of %s: %w", o.GetKind(), err)
		}
		filled := fill(strings.ReplaceAll(string(object), fluxNamespace, namespaceMark))
		text += "---\n" + strings.Replace(filled, "\n  labels:\n", "\n  labels:\n    {{- with .Values.monitoring.labels }}\n    {{- toYaml . | nindent 4 }}\n    {{- end }}\n", 1)
	}
	return text + "{{- end }}\n", nil
}
