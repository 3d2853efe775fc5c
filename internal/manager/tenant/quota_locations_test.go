package tenant

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// quotaIn is a part of the quota of tenant dev.
func quotaIn(namespace string) corev1.ResourceQuota {
	return corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tenure-all", Labels: map[string]string{
		v1alpha1.LabelFluxTenant: "dev", tenancy.LabelManaged: tenancy.ManagedValue,
	}}}
}

// All parts of a tenant's quotas are found, wherever they are, and the quotas of other
// tenants are looked at no oftener than they have to be.
func TestLiveShares(t *testing.T) {
	t.Parallel()
	many := make([]string, maxNamespaceReads+1)
	for i := range many {
		many[i] = fmt.Sprintf("n-%02d", i)
	}
	for _, tc := range []struct {
		reason string
		// before are parts that are there when the manager asks for the first time,
		// wrote and then are what it writes and others write after that.
		before, wrote, then []string
		// mine and cached are the namespaces of the tenant and of what the cache has
		// of its parts when it asks again.
		mine, cached []string
		// want is what is found then, everywhere whether all tenants' quotas are read.
		want       []string
		everywhere bool
	}{
		{reason: "in its own namespaces", before: []string{"a"}, then: []string{"b"}, mine: []string{"a", "b"}, want: []string{"a", "b"}},
		{reason: "in a namespace that was its own before this manager began", before: []string{"old"}, mine: []string{"a"}, want: []string{"old"}},
		{reason: "in a namespace that was its own until a moment ago, when no cache knows of it", wrote: []string{"left"}, mine: []string{"a"}, want: []string{"left"}},
		{reason: "in a namespace that only the cache of quotas knows of", then: []string{"seen"}, cached: []string{"seen"}, want: []string{"seen"}},
		{reason: "many namespaces are read at once", then: many, mine: many, want: many, everywhere: true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			scheme := runtime.NewScheme()
			if err := corev1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			all := 0
			server := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if (&client.ListOptions{}).ApplyOptions(opts).Namespace == "" {
						all++
					}
					return c.List(ctx, list, opts...)
				},
			})
			put := func(namespaces ...string) {
				t.Helper()
				for _, namespace := range namespaces {
					q := quotaIn(namespace)
					if err := server.Create(t.Context(), &q); err != nil {
						t.Fatal(err)
					}
				}
			}
			others := quotaIn("a")
			others.Name, others.Labels[v1alpha1.LabelFluxTenant] = "others", "ops"
			if err := server.Create(t.Context(), &others); err != nil {
				t.Fatal(err)
			}
			r := &Reconciler{APIReader: server}
			f := &reconcileState{tenant: &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "dev"}}}
			put(tc.before...)
			if first, err := r.liveShares(t.Context(), f, nil); err != nil || len(first) != len(tc.before) || all != 1 {
				t.Fatalf("at first it found %d, asking for all %d times: %v", len(first), all, err)
			}
			for _, namespace := range tc.wrote {
				r.locations.add("dev", namespace)
			}
			put(tc.wrote...)
			put(tc.then...)
			for _, namespace := range tc.mine {
				f.add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
			}
			var cached []corev1.ResourceQuota
			for _, namespace := range tc.cached {
				cached = append(cached, quotaIn(namespace))
			}
			found, err := r.liveShares(t.Context(), f, cached)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range found {
				got = append(got, found[i].Namespace)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("found (-want +got):\n%s", diff)
			}
			if (all > 1) != tc.everywhere {
				t.Errorf("all tenants' quotas were read %d times", all)
			}
			before := all
			r.locations.forget("dev")
			if _, err := r.liveShares(t.Context(), f, nil); err != nil || all != before+1 {
				t.Errorf("a tenant that was forgotten is not looked for everywhere: %v", err)
			}
		})
	}
}
