package tenant

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// profileHosts are the hosts of the profile; empty for a profile without hosts.
type profileHosts string

func (h profileHosts) Profile(context.Context) (*v1alpha1.TenancyProfile, error) {
	profile := &v1alpha1.TenancyProfile{}
	if h != "" {
		profile.Spec.Tenants.Network.Hosts = &v1alpha1.AllowedNames{Allowed: []v1alpha1.ValuePattern{v1alpha1.ValuePattern(h)}}
	}
	return profile, nil
}

// withHosts returns a Tenant with hosts, or without any if there are none.
func withHosts(name string, hosts ...v1alpha1.ValuePattern) *v1alpha1.Tenant {
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if len(hosts) > 0 {
		tenant.Spec.Network.Hosts = &v1alpha1.AllowedNames{Allowed: hosts}
	}
	return tenant
}

func TestHosts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		profile profileHosts
		others  []client.Object
		want    metav1.ConditionStatus
		message string
	}{
		{"no other tenant", "", nil, metav1.ConditionTrue, "no other tenant may use the same hosts"},
		{"others have other hosts", "", []client.Object{withHosts("b", "b.example.com")}, metav1.ConditionTrue, "no other tenant may use the same hosts"},
		{"a tenant without hosts may have every name", "", []client.Object{withHosts("b")}, metav1.ConditionFalse, "other tenants may use the same hosts: tenants without network.hosts (a.example.com and *)"},
		{"a tenant without hosts has those of the profile", "b.example.com", []client.Object{withHosts("b")}, metav1.ConditionTrue, "no other tenant may use the same hosts"},
		{"the profile has the same host", "*.example.com", []client.Object{withHosts("b")}, metav1.ConditionFalse, "other tenants may use the same hosts: the TenancyProfile (a.example.com and *.example.com)"},
		{"both", "", []client.Object{withHosts("b"), withHosts("c", "a*")}, metav1.ConditionFalse, "other tenants may use the same hosts: tenants without network.hosts (a.example.com and *), tenant c (a.example.com and a*)"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			own := withHosts("a", "a.example.com")
			r := &Reconciler{Client: cluster(t, append(tc.others, own)...)}
			profile, _ := tc.profile.Profile(t.Context())
			f := &reconcileState{tenant: own, profile: profile}
			if err := r.hosts(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			if c := f.hostsSeparate(); c.Status != tc.want || c.Message != tc.message {
				t.Errorf("got %s: %s\nwant %s: %s", c.Status, c.Message, tc.want, tc.message)
			}
		})
	}
}

// TestHostsOfProfile leaves out Tenants of Capsule's, which have the hosts of the profile but the wildcards: they set none.
func TestHostsOfProfile(t *testing.T) {
	t.Parallel()
	ofCapsule := withHosts("oil")
	ofCapsule.Spec.Network.Hosts = &v1alpha1.AllowedNames{Expression: `^.*\.apps\.example\.com$`}
	own := withHosts("a", "a.example.com")
	r := &Reconciler{Client: cluster(t, ofCapsule, own), Reports: &Reports{}}
	profile, _ := profileHosts("*.apps.example.com").Profile(t.Context())
	for _, tc := range []struct {
		tenant *v1alpha1.Tenant
		want   string
	}{{ofCapsule, ""}, {own, "no other tenant may use the same hosts"}} {
		f := &reconcileState{tenant: tc.tenant.DeepCopy(), profile: profile}
		f.tenant.Status.Conditions = []metav1.Condition{{Type: ConditionHostsSeparate, Status: metav1.ConditionFalse}}
		if err := r.Client.Update(t.Context(), f.tenant); err != nil {
			t.Fatal(err)
		}
		if err := r.hosts(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		if _, err := r.finish(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		got := &v1alpha1.Tenant{}
		if err := r.Client.Get(t.Context(), named(tc.tenant.Name), got); err != nil {
			t.Fatal(err)
		}
		message := ""
		if c := apimeta.FindStatusCondition(got.Status.Conditions, ConditionHostsSeparate); c != nil {
			message = c.Message
		}
		if message != tc.want {
			t.Errorf("tenant %s: got %q, want %q", tc.tenant.Name, message, tc.want)
		}
	}
}

// TestSameHosts counts which Tenants are reconciled again when another one appears or goes.
func TestSameHosts(t *testing.T) {
	t.Parallel()
	says := func(tenant *v1alpha1.Tenant, message string) *v1alpha1.Tenant {
		tenant.Status.Conditions = []metav1.Condition{{Type: ConditionHostsSeparate, Message: message}}
		return tenant
	}
	separate, overlapping := says(withHosts("separate", "a.example.com"), "no other tenant"), says(withHosts("overlapping", "b.example.com"), theOthers+" (b.example.com and *)")
	for _, tc := range []struct {
		reason  string
		profile profileHosts
		there   []client.Object
		changed *v1alpha1.Tenant
		want    []string
	}{
		{"the first without hosts", "", []client.Object{withHosts("none")}, withHosts("none"), []string{"separate"}},
		{"the last without hosts", "", nil, withHosts("none"), []string{"overlapping"}},
		{"not the last", "", []client.Object{withHosts("more")}, withHosts("none"), []string{"separate"}},
		{"the profile decides", "c.example.com", []client.Object{withHosts("none")}, withHosts("none"), nil},
		{"the same hosts", "", nil, withHosts("other", "b.*"), []string{"overlapping"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			r := &Reconciler{Client: cluster(t, append(tc.there, separate.DeepCopy(), overlapping.DeepCopy())...), Profiles: tc.profile}
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
			defer queue.ShutDown()
			r.sameHosts().Generic(t.Context(), event.GenericEvent{Object: tc.changed}, queue)
			var got []string
			for queue.Len() > 0 {
				request, _ := queue.Get()
				got = append(got, request.Name)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
