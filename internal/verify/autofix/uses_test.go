package autofix

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A narrower role keeps the rights to all kinds that a tenant delivers. It omits the rights that
// no tenant may have, and the patch names them.
func TestPatchKeepsUsedRights(t *testing.T) {
	t.Parallel()
	odd := []schema.GroupResource{
		{Resource: "configmaps"}, {Resource: "endpoints"},
		{Group: "networking.k8s.io", Resource: "networkpolicies"},
		{Group: "gateway.networking.k8s.io", Resource: "httproutes"},
		{Group: "image.toolkit.fluxcd.io", Resource: "imagepolicies"},
		{Group: "source.toolkit.fluxcd.io", Resource: "ocirepositories"},
		{Group: "flagger.app", Resource: "canaries"},
		{Group: "cert-manager.io", Resource: "certificates"},
	}
	const useful = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: useful\nrules:\n  - apiGroups: [\"\", apps]\n    resources: [configmaps, deployments]\n    verbs: [get, list, watch, create, update, patch, delete, deletecollection]\n"
	for name, tc := range map[string]struct {
		reason   string
		role     string
		delivers []schema.GroupResource
		kind     string // of the role that the tenant gets
		note     string
	}{
		"Nothing":   {"a role of the fleet is enough", useful, nil, "ClusterRole", ""},
		"Little":    {"a role of the fleet allows what is delivered", useful, odd[:1], "ClusterRole", ""},
		"Odd":       {"a role of the fleet does not allow all of it", useful, odd, "Role", ""},
		"Forbidden": {"role bindings are what the tenant gets out with", "", append(odd, schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "rolebindings"}), "Role", "# tenant team delivers rolebindings.rbac.authorization.k8s.io, which the narrower role leaves out: deliver these from the platform's repository\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := twoClusters()
			if tc.role != "" {
				files["clusters/staging/role.yaml"] = tc.role
			}
			tenant := team
			tenant.Delivers = tc.delivers
			patch, err := Patch(fleetOf(t, files), fixOf(t, "I8-api"), tenant)
			if err != nil {
				t.Fatal(err)
			}
			if tc.note != "" && !strings.HasPrefix(patch, tc.note) || tc.note == "" && strings.Contains(patch, "leaves out") {
				t.Errorf("%s: the patch begins with %q", tc.reason, patch[:min(len(patch), 200)])
			}
			after := fleetOf(t, files)
			apply(t, after, patch, "git", "apply")
			tree, err := load(load1(t, after.Dir))
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range tree.objects("RoleBinding") {
				kind := yamledit.Str(b.node, "roleRef", "kind")
				role, ours := tree.role(kind, yamledit.Str(b.node, "roleRef", "name"), b.namespace)
				if !ours || kind != tc.kind || !safe(role.node) {
					t.Errorf("%s: %s is bound to a %s", tc.reason, b.name(), kind)
					continue
				}
				for _, r := range lacking(role.node, tc.delivers) {
					t.Errorf("%s: the role does not allow %s", tc.reason, r)
				}
				for _, r := range tc.delivers {
					if !forbids(alwaysDenied, r) && !strings.Contains(read(t, after, role.file), r.Resource) {
						t.Errorf("%s: the role does not name %s", tc.reason, r)
					}
				}
			}
		})
	}
}
