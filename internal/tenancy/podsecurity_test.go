package tenancy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodSecurityLevel(t *testing.T) {
	t.Parallel()
	exempt := []v1alpha1.Exemption{{Rule: PodSecurityExemption, Kind: "Namespace", Namespace: "apps", Name: "apps", Reason: "drivers"}}
	for name, tc := range map[string]struct {
		reason     string
		have       string
		own        bool
		tenant     string
		exemptions []v1alpha1.Exemption
		want       string
	}{
		"none":                   {"a namespace that is a tenant's by label alone has a level", "", false, "", nil, "baseline"},
		"privileged":             {"privileged by hand is not a decision", "privileged", false, "", nil, "baseline"},
		"not a level":            {"what is no level is taken for none", "open", false, "", nil, "baseline"},
		"exempt":                 {"privileged by exemption is", "privileged", false, "", exempt, ""},
		"exempt without level":   {"the exemption is from having a level", "", false, "", exempt, ""},
		"other exemption":        {"an exemption is for one namespace", "privileged", false, "", []v1alpha1.Exemption{{Rule: PodSecurityExemption, Kind: "Namespace", Namespace: "web", Name: "web"}}, "baseline"},
		"stronger":               {"a stronger level stays", "restricted", false, "", nil, ""},
		"left by a Tenant":       {"one that a Tenant left behind is not lowered", "restricted", true, "", nil, ""},
		"the Tenant's":           {"a Tenant says its own", "", false, "restricted", nil, "restricted"},
		"privileged Tenant":      {"privileged is a decision in a Tenant", "", false, "privileged", nil, "privileged"},
		"stronger than Tenant's": {"a level that the platform gave stays when it is stronger", "restricted", false, "baseline", nil, ""},
		"weaker than Tenant's":   {"and not when it is weaker", "privileged", false, "baseline", nil, "baseline"},
		"lowered":                {"what the manager wrote it lowers", "restricted", true, "baseline", nil, "baseline"},
		"exempt with a Tenant":   {"a Tenant has a field of its own for that", "privileged", false, "baseline", exempt, "baseline"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := Namespace{Name: "apps", Labels: map[string]string{v1alpha1.LabelTenant: "dev"}, OwnLevel: tc.own}
			if tc.have != "" {
				ns.Labels[labelPodSecurity] = tc.have
			}
			if tc.tenant != "" {
				ns.Tenant = &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "dev"}, Spec: v1alpha1.TenantSpec{Namespaces: v1alpha1.TenantNamespaces{PodSecurity: tc.tenant}}}
			}
			objects, err := Desired(ns, &v1alpha1.TenancyProfile{Spec: v1alpha1.TenancyProfileSpec{Exemptions: tc.exemptions}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, objects.Labels[labelPodSecurity]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestTrustedLabels(t *testing.T) {
	t.Parallel()
	labels := func(by string) map[string]string {
		return map[string]string{
			v1alpha1.LabelTenant: "dev", v1alpha1.LabelMadeBy: by, "tier": "gold", "team": "dev",
			"app.kubernetes.io/name": "x", "kubernetes.io/metadata.name": "apps", labelPodSecurity: "baseline",
		}
	}
	tenant := &v1alpha1.Tenant{Spec: v1alpha1.TenantSpec{Namespaces: v1alpha1.TenantNamespaces{Labels: map[string]string{"tier": "silver", "team": "dev"}}}}
	owners := map[string]string{v1alpha1.LabelTenant: "dev", v1alpha1.LabelMadeBy: v1alpha1.MadeByOwner, labelPodSecurity: "baseline"}
	if diff := cmp.Diff(owners, TrustedLabels(labels(v1alpha1.MadeByOwner), nil)); diff != "" {
		t.Errorf("what an owner chose counts (-want +got):\n%s", diff)
	}
	owners["team"] = "dev"
	if diff := cmp.Diff(owners, TrustedLabels(labels(v1alpha1.MadeByOwner), tenant)); diff != "" {
		t.Errorf("the Tenant's labels count with its values alone (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(labels("platform"), TrustedLabels(labels("platform"), tenant)); diff != "" {
		t.Errorf("labels of a namespace that was adopted do not count (-want +got):\n%s", diff)
	}
}

// TestProtectedKey checks the keys by which something is decided, and others of the same domains.
func TestProtectedKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		"tenure.dev/tenant": true, "a.tenure.dev/b": true, "capsule.clastix.io/tenant": true, "a.clastix.io/b": true, "pod-security.kubernetes.io/enforce": true,
		"projectcapsule.dev/cordoned": true, "owner.projectcapsule.dev/promote": true, "reconcile.projectcapsule.dev/requestedAt": true,
		"clastix.io/a": true, "quota.resources.capsule.clastix.io/a.b_v1": true, "used.resources.capsule.clastix.io/a.b_v1": true, "quota.capsule.clastix.io/used-a": true, "clusterrolenames.capsule.clastix.io/0": true,
		"acme.projectcapsule.dev/team": false, "acme.capsule.clastix.io/team": false, "projectcapsule.dev.acme.example/team": false, "app.kubernetes.io/name": false, "kustomize.toolkit.fluxcd.io/name": false, "team": false,
	} {
		if got := ProtectedKey(key); got != want {
			t.Errorf("%s: %t, want %t", key, got, want)
		}
	}
}
