package layout

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckOperator(t *testing.T) {
	t.Parallel()
	const instance = "apiVersion: v1\nkind: Namespace\nmetadata: {name: flux-system}\n---\napiVersion: fluxcd.controlplane.io/v1\nkind: FluxInstance\nmetadata: {name: flux}\n"
	for name, tc := range map[string]struct {
		reason, file, content, want string
	}{
		"Instance":  {"a FluxInstance behind another object", "clusters/prod/flux-system/flux.yml", instance, "clusters/prod/flux-system/flux.yml has a FluxInstance"},
		"Elsewhere": {"the folder of another cluster", "clusters/staging/flux.yaml", instance, ""},
		"Patch":     {"the name in another object", "clusters/prod/kustomization.yaml", "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\npatches: [{target: {kind: FluxInstance}, path: p.yaml}]\n", ""},
		"Group":     {"a kind of another group", "clusters/prod/flux.yaml", strings.ReplaceAll(instance, "fluxcd.controlplane.io", "example.com"), ""},
		"Broken":    {"a file that is no YAML", "clusters/prod/flux.yaml", "FluxInstance: [", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, filepath.FromSlash(tc.file))
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(tc.content), 0o600)); err != nil {
				t.Fatal(err)
			}
			err := CheckOperator(dir, "./clusters/prod/")
			if tc.want == "" && err != nil || tc.want != "" && (!errors.Is(err, ErrOperator) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: want %q, got %v", tc.reason, tc.want, err)
			}
		})
	}
}
