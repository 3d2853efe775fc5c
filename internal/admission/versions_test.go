package admission_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestEveryVersion checks that the policies and webhooks match their resources in every version. An API server may serve
// more versions of a kind than the tests know, such as those of an older Flux, and a tenant chooses the version. The API server
// finds equal resources in other versions only for kinds that one definition serves, and it hands an object to the rules in the version of
// the request if the rules name all versions.
func TestEveryVersion(t *testing.T) {
	t.Parallel()
	// Kubernetes has one version of these resources of its core, and of Ingresses.
	only := []string{"namespaces", "pods", "pods/ephemeralcontainers", "pods/resize", "persistentvolumeclaims", "services"}
	kinds := map[string]int{}
	for name, manifests := range map[string][]byte{
		"policies": config.Policies(), "warnings": config.WarnPolicies(), "defaults": config.Defaults(), "shards": config.Shards(),
		"Capsule": config.CapsulePolicies(), "manager": config.Manager(),
	} {
		objects, err := flux.ReadObjects(manifests)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			var rules []any
			for _, path := range [][]string{
				{"spec", "matchConstraints", "resourceRules"}, {"spec", "matchConstraints", "excludeResourceRules"},
				{"spec", "matchResources", "resourceRules"}, {"spec", "matchResources", "excludeResourceRules"},
			} {
				found, _, _ := unstructured.NestedSlice(o.Object, path...)
				rules = append(rules, found...)
			}
			webhooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
			for _, w := range webhooks {
				found, _, _ := unstructured.NestedSlice(w.(map[string]any), "rules")
				rules = append(rules, found...)
			}
			for _, rule := range rules {
				groups, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "apiGroups")
				versions, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "apiVersions")
				resources, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "resources")
				kinds[o.GetKind()]++
				one := slices.Equal(groups, []string{""}) && !slices.ContainsFunc(resources, func(r string) bool { return !slices.Contains(only, r) })
				one = one || slices.Equal(groups, []string{"networking.k8s.io"}) && slices.Equal(resources, []string{"ingresses"})
				if one && slices.Equal(versions, []string{"v1"}) {
					continue
				}
				if diff := cmp.Diff([]string{"*"}, versions); diff != "" {
					t.Errorf("%s: %s %s matches %v of %v in some versions only (-want, +got):\n%s", name, o.GetKind(), o.GetName(), resources, groups, diff)
				}
			}
		}
	}
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		if kinds[kind] == 0 {
			t.Errorf("the test has read no rules of a %s", kind)
		}
	}
}

// TestOneVersionOfFlux fails if the Flux of this release serves a kind in several versions: then specChanged needs each
// field that a rule demands and that one of the versions does not have.
func TestOneVersionOfFlux(t *testing.T) {
	t.Parallel()
	objects, err := flux.ReadObjects(slices.Concat(config.FluxComponents(), []byte("\n---\n"), config.FluxImageComponents()))
	if err != nil {
		t.Fatal(err)
	}
	kinds := 0
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		kinds++
		if versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions"); len(versions) != 1 {
			t.Errorf("%s has %d versions, want 1", o.GetName(), len(versions))
		}
	}
	if kinds == 0 {
		t.Error("the test has read no definitions")
	}
}

// TestOlderVersion checks that a tenant removes no fields of an object by an update in a version that does not have
// them. The API server shows the rules neither the old nor the new fields then. Until Flux 2.7, a Kustomization is
// served in v1beta2, without decryption.serviceAccountName and namePrefix.
func TestOlderVersion(t *testing.T) {
	admin, _, restConfig := cluster(t)
	tenant := hostile(t, restConfig)
	manager := newClient(t, restConfig, rest.ImpersonationConfig{UserName: admission.ManagerUser, Groups: []string{"system:masters"}})
	define := func(change func(versions []any) []any) {
		t.Helper()
		changeVersions(t, admin, "kustomizations.kustomize.toolkit.fluxcd.io", change)
	}
	define(func(versions []any) []any {
		older := runtime.DeepCopyJSONValue(versions[0]).(map[string]any)
		older["name"], older["storage"] = "v1beta2", false
		fields := []string{"schema", "openAPIV3Schema", "properties", "spec", "properties"}
		unstructured.RemoveNestedField(older, append(slices.Clone(fields), "namePrefix")...)
		unstructured.RemoveNestedField(older, append(fields, "decryption", "properties", "serviceAccountName")...)
		return append(versions, older)
	})
	var all []*unstructured.Unstructured
	defer func() {
		for _, o := range all {
			if err := admin.Delete(t.Context(), o); err != nil {
				t.Error(err)
			}
		}
		define(func(versions []any) []any { return versions[:1] })
	}()
	as := func(version string, u *unstructured.Unstructured) *unstructured.Unstructured {
		u = u.DeepCopy()
		u.SetAPIVersion("kustomize.toolkit.fluxcd.io/" + version)
		return u
	}
	made := func(by client.Client, version, namespace, name, spec string) *unstructured.Unstructured {
		t.Helper()
		u := as(version, parse(t, kustomization("suspend: true, "+spec)))
		u.SetNamespace(namespace)
		u.SetName(name)
		if by == admin && namespace != "tools" {
			u.SetLabels(map[string]string{"kustomize.toolkit.fluxcd.io/name": "tenants", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"})
		}
		testwait.For(t, "a Kustomization "+namespace+"/"+name+" in "+version, patience, func() (bool, string) {
			err := by.Create(t.Context(), u)
			return err == nil, fmt.Sprint(err)
		})
		all = append(all, as("v1", u))
		return u
	}
	patch := func(by client.Client, version string, u *unstructured.Unstructured, content string, options ...client.PatchOption) error {
		return by.Patch(t.Context(), as(version, u), client.RawPatch(types.MergePatchType, []byte(content)), options...)
	}
	const (
		label   = `{"metadata":{"labels":{"a":"b"}}}`
		request = `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"now"}}}`
		key     = "serviceAccountName: hostile, decryption: {provider: sops, secretRef: {name: key}}"
		account = "serviceAccountName: hostile, decryption: {provider: sops, serviceAccountName: hostile}, namePrefix: a-"
		neither = "serviceAccountName: hostile, namePrefix: a-"
	)

	// Without rules, the fields are gone.
	anyones := made(admin, "v1", "tools", "older", account)
	testwait.For(t, "Kustomizations to be served in v1beta2", patience, func() (bool, string) {
		err := patch(admin, "v1beta2", anyones, label)
		return err == nil, fmt.Sprint(err)
	})
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(anyones), anyones); err != nil {
		t.Fatal(err)
	}
	spec, _ := anyones.Object["spec"].(map[string]any)
	if decryption, _ := spec["decryption"].(map[string]any); decryption["provider"] != "sops" || decryption["serviceAccountName"] != nil || spec["namePrefix"] != nil {
		t.Fatalf("the update in v1beta2 has left %v", spec)
	}

	for _, namespace := range []string{"hostile", "hostile-own"} {
		byKey, byAccount, undecrypted := made(tenant, "v1", namespace, "by-key", key), made(tenant, "v1", namespace, "by-account", account), made(tenant, "v1", namespace, "undecrypted", neither)
		platforms, older := made(admin, "v1", namespace, "platforms", key+", namePrefix: a-"), made(admin, "v1beta2", namespace, "older", neither)
		const keyless, belongs = "needs a key of its own in spec.decryption.secretRef", "belongs to the platform"
		for _, tc := range []struct {
			reason  string
			by      client.Client
			version string
			object  *unstructured.Unstructured
			patch   string
			want    string
		}{
			{"an account to decrypt with is lost", tenant, "v1beta2", byAccount, label, keyless},
			{"also by a request to reconcile", tenant, "v1beta2", byAccount, request, keyless},
			{"a key is not", tenant, "v1beta2", byKey, label, ""},
			{"nothing is decrypted", tenant, "v1beta2", undecrypted, label, ""},
			{"the version has the account", tenant, "v1", byAccount, label, ""},
			{"fields of the platform's object are lost", tenant, "v1beta2", platforms, request, belongs},
			{"by an update without a change", tenant, "v1beta2", platforms, `{}`, belongs},
			{"the version has all fields", tenant, "v1", platforms, request, ""},
			{"the platform wrote its object in the older version", tenant, "v1beta2", older, request, ""},
			{"which has no fields that the newer one does not have", tenant, "v1", older, request, ""},
			{"the platform itself", admin, "v1beta2", older, request, ""},
			{"the manager asks for a reconciliation", manager, "v1", platforms, request, ""},
			{"the manager loses fields", manager, "v1beta2", platforms, request, "the manager must not update Kustomization"},
		} {
			t.Run(namespace+": "+tc.reason, func(t *testing.T) {
				check(t, patch(tc.by, tc.version, tc.object, tc.patch, client.DryRunAll), tc.want)
			})
		}
		// A new object has only the fields of its version.
		err := tenant.Create(t.Context(), as("v1beta2", parse(t, strings.Replace(kustomization(account), "namespace: apps", "namespace: "+namespace, 1))), client.DryRunAll)
		check(t, err, keyless)
	}
}
