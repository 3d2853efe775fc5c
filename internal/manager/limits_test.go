package manager

import (
	"fmt"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestLimitsToNothing checks that limits which allow nothing replace limits which allow
// something: {} in the place of an object with fields.
func TestLimitsToNothing(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	create(t, admin, tenantManifest("strict", `{namespaces: {create: [strict-one]}, network: {hosts: {allowed: ["*.example.com"]}}, storage: {classes: {expression: "^fast"}}}`))
	condition(t, admin, "strict", "Ready", "InPlace", "")
	parameters := &v1alpha1.TenantParameters{ObjectMeta: metav1.ObjectMeta{Namespace: "strict-one", Name: v1alpha1.ParametersName}}
	become := func(reason string, hosts, expressions int) {
		t.Helper()
		testwait.For(t, reason, patience, func() (bool, string) {
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(parameters), parameters); err != nil {
				return false, err.Error()
			}
			limits := parameters.Spec.Tenants
			if limits.Network.Hosts == nil || limits.Storage.Classes == nil {
				return false, "there is no limit"
			}
			return len(limits.Network.Hosts.Allowed) == hosts && len(limits.Storage.Classes.Expression) == expressions, fmt.Sprint(limits.Network.Hosts, limits.Storage.Classes)
		})
	}
	become("the limits to be there", 1, len("^fast"))
	change := func(hosts, classes string) {
		t.Helper()
		patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/network/hosts","value":%s},{"op":"replace","path":"/spec/storage/classes","value":%s}]`, hosts, classes)
		if err := admin.Patch(t.Context(), &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "strict"}}, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	change(`{}`, `{}`)
	become("the limits to allow nothing", 0, 0)
	condition(t, admin, "strict", "Ready", "InPlace", "")
	change(`{"allowed":["a.example.com","b.example.com"]}`, `{}`)
	become("the limits to allow two hosts", 2, 0)
	change(`{}`, `{}`)
	become("the limits to allow nothing again", 0, 0)
}

// TestHostsSeparate checks that Tenants with the same hosts say so, also one that nobody
// changed, until the hosts are separate. Tenants without hosts may have every name.
func TestHostsSeparate(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	const others = "tenants without network.hosts (%s and *)"
	create(t, admin, tenantManifest("hosts-none", `{}`))
	create(t, admin, tenantManifest("hosts-a", `{network: {hosts: {allowed: ["a.hosts.example.com"]}}}`))
	condition(t, admin, "hosts-a", "HostsSeparate", "Overlapping", fmt.Sprintf(others, "a.hosts.example.com"))
	create(t, admin, tenantManifest("hosts-b", `{network: {hosts: {allowed: ["*.hosts.example.com"]}}}`))
	condition(t, admin, "hosts-b", "HostsSeparate", "Overlapping", "tenant hosts-a (*.hosts.example.com and a.hosts.example.com)")
	condition(t, admin, "hosts-a", "HostsSeparate", "Overlapping", "tenant hosts-b")
	condition(t, admin, "hosts-a", "Ready", "InPlace", "")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"network":{"hosts":{"allowed":["b.hosts.example.com"]}}}}`))
	if err := admin.Patch(t.Context(), &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "hosts-b"}}, patch); err != nil {
		t.Fatal(err)
	}
	for tenant, host := range map[string]string{"hosts-a": "a.hosts.example.com", "hosts-b": "b.hosts.example.com"} {
		message := "other tenants may use the same hosts: " + fmt.Sprintf(others, host)
		testwait.For(t, "tenant "+tenant+" to share hosts only with tenants that have none", patience, func() (bool, string) {
			is := apimeta.FindStatusCondition(condition(t, admin, tenant, "HostsSeparate", "Overlapping", "").Status.Conditions, "HostsSeparate")
			return is.Message == message, is.Message
		})
	}
}

// TestClassesOneByOne takes the label from the last selected class of a kind while another kind
// still has one, and then from that, too.
func TestClassesOneByOne(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	const selector = "{selector: {matchLabels: {one-by-one: gold}}}"
	create(t, admin, "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: one-by-one, labels: {one-by-one: gold}}, provisioner: example.com/x}")
	create(t, admin, "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: one-by-one, labels: {one-by-one: gold}}, value: 1}")
	create(t, admin, tenantManifest("onebyone", "{namespaces: {create: [onebyone-a]}, storage: {classes: "+selector+"}, workloads: {priorityClasses: "+selector+"}}"))
	become := func(reason string, storage, priority int) {
		t.Helper()
		parameters := &v1alpha1.TenantParameters{}
		testwait.For(t, reason, patience, func() (bool, string) {
			if err := admin.Get(t.Context(), client.ObjectKey{Namespace: "onebyone-a", Name: v1alpha1.ParametersName}, parameters); err != nil {
				return false, err.Error()
			}
			is := parameters.Spec.SelectedClasses
			return is != nil && len(is.StorageClasses) == storage && len(is.PriorityClasses) == priority, fmt.Sprint(is)
		})
	}
	unlabel := func(kind string) {
		t.Helper()
		if err := admin.Patch(t.Context(), parse(t, kind), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"one-by-one":null}}}`))); err != nil {
			t.Fatal(err)
		}
	}
	become("both classes to be selected", 1, 1)
	unlabel("{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: one-by-one}}")
	become("the priority class alone to be selected", 0, 1)
	unlabel("{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: one-by-one}}")
	become("no class to be selected", 0, 0)
}
