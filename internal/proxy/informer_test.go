package proxy

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// TestInformerLosesNothing checks that informers lose no event of namespaces in 4,000
// changes and 50 dropped connections: the informer of an owner, and the informer of a user
// who also sees other namespaces. The changes also change the visible namespaces.
func TestInformerLosesNothing(t *testing.T) {
	t.Parallel()
	const changes, drops, each = 4_000, 50, 4 // namespaces of each writer
	const home, other = "lose-home", "lose-other"
	s := fixture(t)
	reachable(t, home)
	text := "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: lose-some}, rules: [{apiGroups: [\"\"], resources: [namespaces], verbs: [get], resourceNames: [lose-0-0, lose-1-0, lose-2-0, lose-3-0]}]}\n---\n" +
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: lose-some}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: lose-some}, subjects: [{kind: ServiceAccount, name: more, namespace: lose-home}]}\n---\n" +
		tenant(home, accountOwner(home, "owner"), accountOwner(home, "more"))
	apply(t, text)
	cut := httptest.NewUnstartedServer(s.proxy)
	cut.StartTLS()
	t.Cleanup(cut.Close)
	stores := map[string]cache.Store{}
	for _, who := range []string{"owner", "more"} {
		config := s.as(account(t, home, who))
		sees(t, newClient(t, config), home)
		config.Host = cut.URL
		factory := informers.NewSharedInformerFactory(clients(t, config), 0)
		informer := factory.Core().V1().Namespaces().Informer()
		stop := make(chan struct{})
		t.Cleanup(func() { close(stop); factory.Shutdown() })
		factory.Start(stop)
		if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
			t.Fatal("the informer has not been filled")
		}
		stores[who] = informer.GetStore()
	}
	admin := clients(t, s.rest).CoreV1().Namespaces()
	var made atomic.Int64
	var writers errgroup.Group
	for writer := range 4 {
		writers.Go(func() error {
			for i := range changes / 4 {
				name := fmt.Sprintf("lose-%d-%d", writer, i%each)
				whose := []string{home, other, home, "", home}[i/each%5]
				var err error
				if i < each {
					_, err = admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tenure.dev/tenant": whose}}}, metav1.CreateOptions{})
				} else {
					_, err = admin.Patch(t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"tenure.dev/tenant":%q},"annotations":{"change":"%d"}}}`, whose, i), metav1.PatchOptions{})
				}
				if err != nil {
					return err
				}
				if made.Add(1)%(changes/drops) == 0 {
					cut.CloseClientConnections()
				}
			}
			return nil
		})
	}
	if err := writers.Wait(); err != nil {
		t.Fatal(err)
	}
	want := map[string]map[string]string{"owner": {}, "more": {}}
	all, err := admin.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range all.Items {
		ns := &all.Items[i]
		whose := ns.Labels["tenure.dev/tenant"]
		if whose == home {
			want["owner"][ns.Name] = ns.ResourceVersion
		}
		if whose == home || whose == other && strings.HasSuffix(ns.Name, "-0") {
			want["more"][ns.Name] = ns.ResourceVersion
		}
	}
	for who, store := range stores {
		testwait.For(t, "all changes to be known to "+who, patience, func() (bool, string) {
			got := map[string]string{}
			for _, o := range store.List() {
				if ns, ok := o.(*corev1.Namespace); ok {
					got[ns.Name] = ns.ResourceVersion
				}
			}
			diff := cmp.Diff(want[who], got)
			return diff == "", diff
		})
	}
}
