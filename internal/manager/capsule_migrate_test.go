package manager

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/cli/migrate"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/ui"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// movingTenants leave oil no other Service than the one in movingObjects.
	movingTenants = `
apiVersion: capsule.clastix.io/v1beta2
kind: Tenant
metadata: {name: oil}
spec:
  owners:
    - {kind: User, name: alice}
    - {kind: ServiceAccount, name: "system:serviceaccount:moving-ci:robot", clusterRoles: [edit]}
  additionalRoleBindings: [{clusterRoleName: view, subjects: [{kind: User, name: vera}]}]
  namespaceOptions: {quota: 3, additionalMetadata: {labels: {cost: oil}}, forbiddenLabels: {denied: [foo]}}
  containerRegistries: {allowed: [registry.example.com]}
  resourceQuotas: {scope: Tenant, items: [{hard: {services: "1"}}]}
  limitRanges: {items: [{limits: [{type: Container, max: {cpu: "1"}, default: {cpu: 100m}}]}]}
  networkPolicies: {items: [{podSelector: {}, policyTypes: [Egress], egress: [{}]}]}
---
apiVersion: capsule.clastix.io/v1beta2
kind: Tenant
metadata: {name: gas}
spec:
  owners: [{kind: User, name: bob}]
`
	movingNamespaces = `
{apiVersion: v1, kind: Namespace, metadata: {name: moving-ci}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: oil-a, labels: {tenure.dev/tenant: oil, capsule.clastix.io/tenant: oil}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: gas-a, labels: {tenure.dev/tenant: gas, capsule.clastix.io/tenant: gas}}}
`
	movingObjects = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: work, namespace: oil-a}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: work, namespace: gas-a}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: oil-a}, spec: {ports: [{port: 80}]}}
`
)

// request is a request that somebody makes all the time.
type request struct {
	what    string
	do      func(context.Context, client.Client) error
	allowed bool
}

// problem says what is wrong with the answer.
func (r request) problem(ctx context.Context, c client.Client) string {
	switch err := r.do(ctx, c); {
	case ctx.Err() != nil:
		return ""
	case r.allowed && err != nil:
		return fmt.Sprintf("is refused to %s: %v", r.what, err)
	case !r.allowed && err == nil:
		return "is let " + r.what
	// While no manager runs, nobody makes namespaces.
	case !r.allowed && !apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "failed calling webhook"):
		return fmt.Sprintf("is not refused to %s: %v", r.what, err)
	}
	return ""
}

func reading(namespace string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "work"}, &corev1.ConfigMap{})
	}
}

func writing(namespace string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "round-"}}
		if err := c.Create(ctx, o); err != nil {
			return err
		}
		return c.Delete(ctx, o)
	}
}

// running tries to create a Pod, which Pod Security and the quota let through.
func running(namespace, image, cpu string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		limits := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		return c.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: image, Resources: corev1.ResourceRequirements{Limits: limits}}}},
		}, client.DryRunAll)
	}
}

func serving(namespace string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "second"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, client.DryRunAll)
	}
}

func making(name string, labels map[string]string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, client.DryRunAll)
	}
}

// movingRequests are the requests of each person.
func movingRequests() map[string][]request {
	const image, foreign = "registry.example.com/app:1", "docker.io/library/app:1"
	return map[string][]request{
		"alice": {
			{"read in oil-a", reading("oil-a"), true},
			{"write in oil-a", writing("oil-a"), true},
			{"write in oil-b", writing("oil-b"), true},
			{"delete oil-b", func(ctx context.Context, c client.Client) error {
				return c.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "oil-b"}}, client.DryRunAll)
			}, true},
			{"run a Pod", running("oil-b", image, "500m"), true},
			{"run an image of another registry", running("oil-b", foreign, "500m"), false},
			{"run a Pod above the limit range", running("oil-a", image, "2"), false},
			{"make a Service above the quota, beside the other", serving("oil-a"), false},
			{"make a Service above the quota, in another namespace", serving("oil-b"), false},
			{"read in gas-a", reading("gas-a"), false},
			{"write in gas-a", writing("gas-a"), false},
			{"make a namespace of another tenant", making("gas-x", map[string]string{"capsule.clastix.io/tenant": "gas"}), false},
			{"delete the Tenant", func(ctx context.Context, c client.Client) error {
				return c.Delete(ctx, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "oil"}}, client.DryRunAll)
			}, false},
		},
		"system:serviceaccount:moving-ci:robot": {
			{"read in oil-a", reading("oil-a"), true},
			{"write in oil-a", writing("oil-a"), true},
			{"write in gas-a", writing("gas-a"), false},
		},
		"vera": {
			{"read in oil-a", reading("oil-a"), true},
			{"write in oil-a", writing("oil-a"), false},
			{"read in gas-a", reading("gas-a"), false},
		},
		"bob": {
			{"read in gas-a", reading("gas-a"), true},
			{"write in gas-a", writing("gas-a"), true},
			{"run a Pod", running("gas-a", foreign, "500m"), true},
			{"read in oil-a", reading("oil-a"), false},
			{"write in oil-b", writing("oil-b"), false},
		},
	}
}

// people make their requests all the time.
type people struct {
	stage    atomic.Value
	rounds   atomic.Int64
	mu       sync.Mutex
	problems []string
	stop     func()
}

func (l *layer) people(t *testing.T, requests map[string][]request) *people {
	t.Helper()
	p := &people{}
	p.stage.Store("before")
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for who, requests := range requests {
		c := l.as(t, who)
		testwait.For(t, who+" to have what the Tenant says", patience, func() (bool, string) {
			for _, r := range requests {
				if problem := r.problem(ctx, c); problem != "" {
					return false, problem
				}
			}
			return true, ""
		})
		all.Go(func() {
			for ctx.Err() == nil {
				for _, r := range requests {
					if problem := r.problem(ctx, c); problem != "" {
						p.mu.Lock()
						p.problems = append(p.problems, fmt.Sprintf("%s: %s %s", p.stage.Load(), who, problem))
						p.mu.Unlock()
					}
				}
				p.rounds.Add(1)
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	p.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(p.stop)
	return p
}

// at begins a stage, and reports the problems until then.
func (p *people) at(t *testing.T, stage string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, problem := range p.problems {
		if i == 10 {
			t.Errorf("and %d more", len(p.problems)-i)
			break
		}
		t.Error(problem)
	}
	p.problems = nil
	p.stage.Store(stage)
	t.Logf("%s: after %d rounds", stage, p.rounds.Load())
}

// movingUIDs returns the UIDs of the tenants' namespaces and of what gives rights and limits there.
func (l *layer) movingUIDs(t *testing.T) map[string]types.UID {
	t.Helper()
	uids := map[string]types.UID{}
	for _, list := range []client.ObjectList{&corev1.NamespaceList{}, &rbacv1.RoleBindingList{}, &rbacv1.ClusterRoleBindingList{}, &corev1.ResourceQuotaList{}, &corev1.LimitRangeList{}, &networkingv1.NetworkPolicyList{}} {
		if err := l.admin.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		items, err := apimeta.ExtractList(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			o := item.(client.Object)
			// The first is the manager's own right, which only the layer needs. The others have the layer's role,
			// and Tenure's in its place: alice deletes namespaces all the time.
			if o.GetName() == "tenure:replicator" || strings.HasSuffix(o.GetName(), "-namespace-deleter") {
				continue
			}
			if where := o.GetNamespace() + o.GetName(); strings.Contains(where, "oil") || strings.Contains(where, "gas") {
				uids[fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName())] = o.GetUID()
			}
		}
	}
	return uids
}

// kept compares what is there with what was there.
func (l *layer) kept(t *testing.T, before map[string]types.UID) {
	t.Helper()
	now := l.movingUIDs(t)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if now[name] != before[name] {
			t.Errorf("%s is gone, or another one", name)
		}
	}
}

// references returns the owner references of the tenants' namespaces.
func (l *layer) references(t *testing.T) []metav1.OwnerReference {
	t.Helper()
	var namespaces corev1.NamespaceList
	if err := l.admin.List(t.Context(), &namespaces, client.HasLabels{v1alpha1.LabelTenant}); err != nil {
		t.Fatal(err)
	}
	var all []metav1.OwnerReference
	for _, ns := range namespaces.Items {
		all = append(all, ns.OwnerReferences...)
	}
	return all
}

// mergeTenant patches a Tenant of Tenure.
func (l *layer) mergeTenant(t *testing.T, name, patch string) {
	t.Helper()
	merge(t, l.admin, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch)
}

// inForce waits until the spec of a Tenant of Tenure is in force.
func (l *layer) inForce(t *testing.T, name string, quota int32) {
	t.Helper()
	testwait.For(t, "Tenant "+name+" to be in force", patience, func() (bool, string) {
		tenant := &v1alpha1.Tenant{}
		if err := l.admin.Get(t.Context(), client.ObjectKey{Name: name}, tenant); err != nil {
			return false, err.Error()
		}
		ready := apimeta.FindStatusCondition(tenant.Status.Conditions, "Ready")
		return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == tenant.Generation && *tenant.Spec.Namespaces.Quota == quota, fmt.Sprint(ready)
	})
}

// TestCapsuleThereAndBack moves tenants from Capsule's Tenants to Tenants of Tenure without the
// layer, and back, as docs/how-to/move-from-capsule.md says. Meanwhile the owners work: nothing
// that they may do is refused, and nothing else is let through, at any time.
func TestCapsuleThereAndBack(t *testing.T) {
	t.Parallel()
	l := startLayer(t)
	stop := l.start(t, true)
	l.apply(t, movingTenants)
	l.theirs(t, "oil", "Succeeded", 0)
	l.apply(t, movingNamespaces)
	l.apply(t, movingObjects)
	owner := l.as(t, "alice")
	testwait.For(t, "alice to make a namespace", patience, func() (bool, string) {
		err := owner.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "oil-b"}})
		return err == nil, fmt.Sprint(err)
	})
	l.theirs(t, "oil", "Succeeded", 2)
	l.theirs(t, "gas", "Succeeded", 1)
	p := l.people(t, movingRequests())
	before := l.movingUIDs(t)

	p.at(t, "the Tenants of Tenure are applied")
	l.apply(t, l.migrated(t))
	p.at(t, "the Tenants of Tenure decide")
	for _, name := range []string{"oil", "gas"} {
		l.mergeTenant(t, name, `{"metadata":{"labels":{"`+tenancy.LabelManaged+`":null}}}`)
		l.theirs(t, name, "NameTaken", 0)
	}
	if got := l.references(t); len(got) > 0 {
		t.Fatalf("Kubernetes would delete namespaces with Capsule's Tenants: %v", got)
	}
	p.at(t, "the layer is removed")
	stop()
	l.roles(t, l.admin.Delete)
	stop = l.start(t, false)
	p.at(t, "Capsule's Tenants are deleted")
	for _, name := range []string{"oil", "gas"} {
		theirs := &v1beta2.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := l.admin.Delete(t.Context(), theirs, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
			t.Fatal(err)
		}
		exists(t, l.admin, false, theirs, "", name)
	}
	p.at(t, "the Tenants of Tenure are changed")
	l.mergeTenant(t, "oil", `{"spec":{"namespaces":{"quota":4}}}`)
	l.inForce(t, "oil", 4)
	l.kept(t, before)

	p.at(t, "the layer is back")
	stop()
	l.roles(t, func(ctx context.Context, o client.Object, _ ...client.DeleteOption) error {
		o.SetResourceVersion("")
		return l.admin.Create(ctx, o)
	})
	l.start(t, true)
	p.at(t, "Capsule's Tenants are back")
	l.apply(t, movingTenants)
	l.theirs(t, "oil", "NameTaken", 0)
	p.at(t, "Capsule's Tenants decide")
	for name, namespaces := range map[string]int32{"oil": 2, "gas": 1} {
		l.mergeTenant(t, name, `{"metadata":{"labels":{"`+tenancy.LabelManaged+`":"capsule"}}}`)
		l.theirs(t, name, "Succeeded", namespaces)
	}
	l.inForce(t, "oil", 3)
	if got := l.references(t); len(got) != 3 {
		t.Errorf("Capsule's clients look for their Tenants in the references %v", got)
	}
	l.kept(t, before)
	p.stop()
	p.at(t, "the end")
}

// roles calls do for each ClusterRole of the layer that owners can have, as the layer is removed or added.
func (l *layer) roles(t *testing.T, do func(context.Context, client.Object, ...client.DeleteOption) error) {
	t.Helper()
	objects, err := flux.ReadObjects(config.CapsuleRoles())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if !strings.HasPrefix(o.GetName(), "capsule-namespace-") {
			continue
		}
		if err := do(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// migrated returns what `tenure migrate capsule` prints for the cluster.
func (l *layer) migrated(t *testing.T) string {
	t.Helper()
	var tenants, report bytes.Buffer
	command := migrate.NewCommand(ui.IO{Out: &tenants, Err: &report})
	command.SetArgs([]string{"capsule", "--kubeconfig", l.kubeconfig})
	if err := command.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, &report)
	}
	return tenants.String()
}
