package profile_test

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/profile"
)

const managerFile = "infrastructure/tenure/manager/manager.yaml"

// The manager's image is the one that was named last; one that was never named
// follows Tenure's version.
func TestManagerImage(t *testing.T) {
	t.Parallel()
	const ours, mirror = "image: tenure.dev/tenure-server:v", "registry.example.com:5000/mirror/tenure-server:v1"
	digest := "registry.example.com/tenure-server@sha256:" + strings.Repeat("a", 64)
	plain := small(t, nil)
	apply(t, plain, "clusters/one", profile.Options{Tenants: true, ManagerImage: "registry.example.com/x:1"})
	locked := read(t, plain)
	for _, tt := range []struct{ reason, before, wanted, want, fails string }{
		{reason: "nothing is named", want: ours},
		{reason: "an image is named", wanted: mirror, want: mirror},
		{reason: "a digest is named", wanted: digest, want: digest},
		{reason: "it was named before", before: mirror, want: mirror},
		{reason: "another was named before", before: mirror, wanted: digest, want: digest},
		{reason: "an older one of ours follows", before: "tenure.dev/tenure-server:v0.0.1", want: ours},
		{reason: "neither a tag nor a digest says which", wanted: "registry.example.com/tenure-server", fails: "HOST/REPOSITORY:TAG"},
		{reason: "YAML in it would be written", wanted: "a/b:c\n  x: y", fails: "as the manager's image"},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			dir := small(t, nil)
			if tt.before != "" {
				dir = fleetOf(t, locked)
				write(t, dir, managerFile, strings.Replace(locked[managerFile], "registry.example.com/x:1", tt.before, 1))
			}
			plan, err := profile.Make(load(t, dir, "clusters/one"), profile.Options{Tenants: true, ManagerImage: tt.wanted})
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("got error %v, want one with %q", err, tt.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := plan.Write(dir); err != nil {
				t.Fatal(err)
			}
			if got := read(t, dir)[managerFile]; !strings.Contains(got, tt.want) || strings.Count(got, "image: ") != 1 {
				t.Errorf("the image is not %q in\n%s", tt.want, got)
			}
		})
	}
}

// In another namespace everything of the manager's is there too.
func TestManagerNamespace(t *testing.T) {
	t.Parallel()
	moved := strings.NewReplacer("namespace: flux-system", "namespace: gitops")
	dir := small(t, map[string]string{folder + "gotk-components.yaml": moved.Replace(components), folder + "gotk-sync.yaml": moved.Replace(sync)})
	apply(t, dir, "clusters/one", profile.Options{Tenants: true})
	if got := read(t, dir)[managerFile]; strings.Contains(got, "namespace: flux-system") || !strings.Contains(got, "namespace: gitops") {
		t.Errorf("it is not in gitops:\n%s", got)
	}
}
