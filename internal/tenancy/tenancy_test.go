package tenancy

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files anew")

// posture is a profile as the API server has it, defaults included.
func posture() *v1alpha1.TenancyProfile {
	p := &v1alpha1.TenancyProfile{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProfileName}}
	p.Spec.PlatformNamespaces = []string{"flux-system"}
	p.Spec.Tenants.Sources.Git = []v1alpha1.AddressPattern{"https://git.example.com/acme/*"}
	p.Spec.Tenants.Bounds = v1alpha1.Bounds{
		MinInterval: metav1.Duration{Duration: 30 * time.Second}, MaxTimeout: metav1.Duration{Duration: 15 * time.Minute}, MaxObjects: 100,
	}
	return p
}

func TestDesiredGolden(t *testing.T) {
	t.Parallel()
	kinds := []string{"kustomizations.kustomize.toolkit.fluxcd.io", "gitrepositories.source.toolkit.fluxcd.io"}
	for name, tc := range map[string]struct {
		reason string
		ns     Namespace
	}{
		"labelled":    {"a namespace that brings nothing gets everything", Namespace{Name: "apps", Labels: map[string]string{v1alpha1.LabelTenant: "dev-team"}, Kinds: kinds}},
		"own-account": {"who brings the account says what it may do", Namespace{Name: "apps", Labels: map[string]string{v1alpha1.LabelFluxTenant: "dev-team"}, Kinds: kinds, OwnAccount: true}},
		"own-binding": {"a binding that is brought is not doubled", Namespace{Name: "apps", Labels: map[string]string{v1alpha1.LabelFluxTenant: "dev-team"}, Kinds: kinds, OwnBinding: true}},
		"no-kinds":    {"what the cluster does not have is not counted", Namespace{Name: "apps", Labels: map[string]string{v1alpha1.LabelCapsuleTenant: "dev-team"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, err := Desired(tc.ns, posture())
			if err != nil {
				t.Fatalf("%s: Desired(): %v", tc.reason, err)
			}
			compareGolden(t, tc.reason, name, objects.List())
		})
	}
}

// compareGolden compares objects with a file in testdata.
func compareGolden(t *testing.T, reason, name string, objects []client.Object) {
	t.Helper()
	var got strings.Builder
	for _, o := range objects {
		document, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		got.WriteString("---\n" + string(document))
	}
	golden := filepath.Join("testdata", name+".yaml")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("%s: -want, +got (go test -update writes it anew):\n%s", reason, diff)
	}
}

func TestDesiredRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ reason, namespace, label, tenant, want string }{
		{"not a tenant's", "apps", "team", "x", "is not a tenant's"},
		{"the platform's", "flux-system", v1alpha1.LabelTenant, "x", "is the platform's"},
		{"Kubernetes' own", "kube-system", v1alpha1.LabelFluxTenant, "x", "is the platform's"},
		{"no name", "apps", v1alpha1.LabelTenant, "", "cannot have an account of that name"},
		{"a name that no account can have", "apps", v1alpha1.LabelTenant, "Dev_Team", "cannot have an account of that name"},
		{"a name with a dot could be another's with a hyphen in a file", "apps", v1alpha1.LabelTenant, "dev.team", "cannot have an account of that name"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			_, err := Desired(Namespace{Name: tc.namespace, Labels: map[string]string{tc.label: tc.tenant}}, posture())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Desired(): want an error with %q, got %v", tc.want, err)
			}
		})
	}
}

// FuzzDesired holds what must be so whatever a namespace is called and labelled.
func FuzzDesired(f *testing.F) {
	f.Add("apps", v1alpha1.LabelTenant, "dev-team", false, false, int32(100))
	f.Add("flux-system", v1alpha1.LabelFluxTenant, "x", true, false, int32(0))
	f.Add("kube-system", v1alpha1.LabelCapsuleTenant, "", false, true, int32(-1))
	f.Add("a:b", "x", "system:masters", false, false, int32(1))
	f.Fuzz(func(t *testing.T, name, label, value string, account, binding bool, bound int32) {
		profile := posture()
		profile.Spec.Tenants.Bounds.MaxObjects = bound
		before := profile.DeepCopy()
		ns := Namespace{Name: name, Labels: map[string]string{label: value}, OwnAccount: account, OwnBinding: binding, Kinds: CountedKinds()}
		objects, err := Desired(ns, profile)
		if diff := cmp.Diff(before, profile); diff != "" {
			t.Fatalf("the profile was changed: %s", diff)
		}
		if err != nil {
			return
		}
		if slices.Contains([]string{"flux-system", "kube-system"}, name) {
			t.Fatal("the platform's namespace became a tenant's")
		}
		again, err := Desired(ns, profile)
		if err != nil || !equality.Semantic.DeepEqual(objects, again) {
			t.Fatalf("asked twice, it says two things: %v", err)
		}
		if account && (objects.Account != nil || objects.Binding != nil) {
			t.Error("an account that is brought was given rights")
		}
		rights := false
		for _, o := range objects.List() {
			_, gives := o.(*rbacv1.RoleBinding)
			rights = rights || gives
			if rights && (o == client.Object(objects.Quota) || o == client.Object(objects.Parameters)) {
				t.Errorf("somebody has rights before %T %s holds", o, o.GetName())
			}
			if o.GetNamespace() != name {
				t.Errorf("%T %s lies in namespace %q", o, o.GetName(), o.GetNamespace())
			}
			if !UpToDate(o, o) || Brought(o, profile.Spec.PlatformNamespaces) {
				t.Errorf("%T %s would be written again and again", o, o.GetName())
			}
		}
		if b := objects.Binding; b != nil {
			if b.RoleRef.Kind != "ClusterRole" || b.RoleRef.Name != Role {
				t.Errorf("the binding gives %v", b.RoleRef)
			}
			for _, s := range b.Subjects {
				if s.Name != "gotk:"+name+":reconciler" && (s.Kind != "ServiceAccount" || s.Namespace != name || s.Name != value) {
					t.Errorf("the binding names %v", s)
				}
			}
		}
	})
}

func TestUpToDate(t *testing.T) {
	t.Parallel()
	desired := func() *Objects {
		o, err := Desired(Namespace{Name: "apps", Labels: map[string]string{v1alpha1.LabelTenant: "dev-team"}, Kinds: CountedKinds()}, posture())
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	for _, tc := range []struct {
		reason string
		change func(*Objects) (existing, desired client.Object)
		want   bool
	}{
		{"what others add to an account", func(o *Objects) (client.Object, client.Object) {
			have := o.Account.DeepCopy()
			have.Annotations, have.Secrets = map[string]string{"x": "y"}, []corev1.ObjectReference{{Name: "x"}}
			return have, o.Account
		}, true},
		{"our label is gone", func(o *Objects) (client.Object, client.Object) {
			have := o.Account.DeepCopy()
			delete(have.Labels, LabelManaged)
			return have, o.Account
		}, false},
		{"one more subject", func(o *Objects) (client.Object, client.Object) {
			have := o.Binding.DeepCopy()
			have.Subjects = append(have.Subjects, have.Subjects[0])
			return have, o.Binding
		}, false},
		{"one more count", func(o *Objects) (client.Object, client.Object) {
			have := o.Quota.DeepCopy()
			have.Spec.Hard["pods"] = have.Spec.Hard["count/alerts.notification.toolkit.fluxcd.io"]
			return have, o.Quota
		}, false},
		{"another posture", func(o *Objects) (client.Object, client.Object) {
			have := o.Parameters.DeepCopy()
			have.Spec.Tenants.KubeConfigs = []string{"x"}
			return have, o.Parameters
		}, false},
		{"no finalizer", func(o *Objects) (client.Object, client.Object) {
			have := o.Parameters.DeepCopy()
			have.Finalizers = nil
			return have, o.Parameters
		}, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			if got := UpToDate(tc.change(desired())); got != tc.want {
				t.Errorf("UpToDate() = %v", got)
			}
		})
	}
}

func TestReadProfile(t *testing.T) {
	t.Parallel()
	const valid = "spec: {platformNamespaces: [flux-system], platformAccounts: [flux-system/tenure-manager, flux-system/source-controller], tenants: {bounds: {minInterval: 30s, maxTimeout: 15m}}}"
	for _, tc := range []struct{ reason, content, want string }{
		{"the defaults", valid, ""},
		{"Flux would not be the platform", strings.Replace(valid, "flux-system", "tools", 1), "does not contain flux-system"},
		{"the manager would not be the platform", strings.Replace(valid, "flux-system/tenure-manager", "flux-system/other", 1), "spec.platformAccounts does not contain flux-system/tenure-manager"},
		{"a tenant would be the platform", strings.Replace(valid, "flux-system/source-controller", "apps/source-controller", 1), "spec.platformAccounts[1] is apps/source-controller, and apps is none of spec.platformNamespaces"},
		{"everybody breaks the glass", strings.Replace(valid, "spec: {", "spec: {breakGlass: [admins, system:authenticated], ", 1), "spec.breakGlass contains system:authenticated"},
		{"a whole tenant breaks the glass", strings.Replace(valid, "spec: {", "spec: {breakGlass: ['system:serviceaccounts:apps'], ", 1), "to which every tenant belongs"},
		{"a typo would be an exemption from nothing", strings.Replace(valid, "spec: {", "spec: {exemptions: [{rule: tenure-sorces}], ", 1), `there is no such rule (rules: tenure-sources)`},
		{"older than the schema", strings.Replace(valid, "30s", "soon", 1), "soon"},
		{"a selector that selects nothing", strings.Replace(valid, "tenants: {", "tenants: {storage: {classes: {selector: {matchExpressions: [{key: a, operator: Is}]}}}, ", 1), `spec.tenants.storage.classes.selector is invalid: "Is"`},
		{"no bound", strings.Replace(valid, "30s", "0s", 1), "above zero"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(tc.content), &u.Object); err != nil {
				t.Fatal(err)
			}
			_, err := ReadProfile(u, []string{"tenure-sources"}, "flux-system")
			if tc.want == "" {
				if err != nil {
					t.Errorf("ReadProfile(): %v", err)
				}
				return
			}
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("ReadProfile(): want %q, got %v", tc.want, err)
			}
		})
	}
}

// TestCountedKinds compares with the CRDs of Flux: a kind that Flux adds is one
// that a tenant can have any number of. The kinds of flux-operator, whose licence does not let
// its CRDs be here, are counted too.
func TestCountedKinds(t *testing.T) {
	t.Parallel()
	var crds []string
	for _, manifests := range [][]byte{config.FluxComponents(), config.FluxImageComponents(), config.FluxSourceWatcherCRDs()} {
		for document := range strings.SplitSeq(string(manifests), "\n---\n") {
			var meta metav1.PartialObjectMetadata
			if err := yaml.Unmarshal([]byte(document), &meta); err != nil {
				t.Fatal(err)
			}
			// The platform alone makes ExternalArtifacts.
			if meta.Kind == "CustomResourceDefinition" && !strings.HasPrefix(meta.Name, "externalartifacts.") {
				crds = append(crds, meta.Name)
			}
		}
	}
	crds = append(crds, "resourcesetinputproviders.fluxcd.controlplane.io", "resourcesets.fluxcd.controlplane.io")
	slices.Sort(crds)
	if diff := cmp.Diff(crds, CountedKinds()); diff != "" {
		t.Errorf("-Flux's kinds, +counted:\n%s", diff)
	}
}
