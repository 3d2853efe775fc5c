package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission/webhook"
	"github.com/tenure-dev/tenure/internal/admission/webhook/reservations"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// What is simulated.
const (
	simulatedTenant = "dev-team"
	// firstQuota is a Tenant's when it is made.
	firstQuota = 2
	// requestTime is how long the API server lets a request live.
	requestTime = time.Minute
)

var errLost = errors.New("the answer was lost")

// world is an API server with a Tenant, and replicas of the webhook that see it with
// any delay. Everything that is asked of the API server waits until it is let through,
// so that what happens in which order is chosen by who drives the simulation. It runs
// in a bubble of package synctest.
type world struct {
	t        *testing.T
	tenant   *v1alpha1.Tenant
	spaces   map[string]*corev1.Namespace
	lease    *coordinationv1.Lease
	replicas []*replica
	flights  []*flight
	asking   []*asking
	// admitted are all admissions that were ever written, by request.
	admitted map[types.UID]reservations.Admission
	version  int
	requests int
	leaving  bool

	mu sync.Mutex
	// ending serializes the ends of requests that have their answer.
	ending sync.Mutex
	calls  []*call
}

// call is one request to the API server, or an answer of the webhook's, that waits.
type call struct {
	of  *replica
	let chan bool
}

// flight is a namespace that was admitted and is on its way.
type flight struct {
	object *corev1.Namespace
	until  time.Time
}

// asking is a request that the webhook has not answered, with the state since its arrival: the names of the
// tenant's namespaces and of all namespaces, the admissions that have ended, the tenant's quota, and
// whether the Tenant could not have namespaces.
type asking struct {
	names  map[string]bool
	all    map[string]bool
	over   map[types.UID]bool
	quota  int
	absent bool
	// giveUp cancels the request of the caller.
	giveUp context.CancelFunc
}

// replica is a webhook with the cache that it sees the world by.
type replica struct {
	world   *world
	handler *webhook.Handler
	keeper  *reservations.Keeper
	skew    time.Duration
	tenant  *v1alpha1.Tenant
	spaces  map[string]*corev1.Namespace
	// heard are the admissions whose namespaces it has heard of.
	heard  map[types.UID]bool
	events []func()
	dead   chan struct{}
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, spaces: map[string]*corev1.Namespace{}, admitted: map[types.UID]reservations.Admission{}}
	w.found()
	for _, skew := range []time.Duration{0, 25 * time.Second, -25 * time.Second} {
		w.replicas = append(w.replicas, &replica{world: w, skew: skew})
	}
	for _, r := range w.replicas {
		r.start()
	}
	return w
}

// next is a version that nothing has had.
func (w *world) next() string {
	w.version++
	return fmt.Sprint(w.version)
}

// found makes a Tenant.
func (w *world) found() {
	w.tenant = &v1alpha1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Name: simulatedTenant, UID: types.UID("tenant-" + w.next()), Generation: 1},
		Spec: v1alpha1.TenantSpec{
			Owners: []v1alpha1.Owner{{Kind: "User", Name: "alice"}}, Namespaces: v1alpha1.TenantNamespaces{Quota: new(int32(firstQuota)), Prefix: new(false)},
		},
	}
	w.changed()
}

// change changes the Tenant, and lets all hear of it some time.
func (w *world) change(do func(*v1alpha1.Tenant)) {
	w.tenant = w.tenant.DeepCopy()
	do(w.tenant)
	w.changed()
}

func (w *world) changed() {
	now := w.tenant
	for _, a := range w.asking {
		if now == nil || now.DeletionTimestamp != nil {
			a.absent = true
		}
	}
	for _, r := range w.replicas {
		r.events = append(r.events, func() { r.tenant = now })
	}
}

// put makes or changes a namespace.
func (w *world) put(ns *corev1.Namespace) {
	ns = ns.DeepCopy()
	ns.CreationTimestamp = metav1.Now()
	w.spaces[ns.Name] = ns
	for _, a := range w.asking {
		a.all[ns.Name] = true
	}
	if ns.Labels[v1alpha1.LabelTenant] == simulatedTenant {
		for _, a := range w.asking {
			a.names[ns.Name] = true
		}
	}
	for _, r := range w.replicas {
		r.events = append(r.events, func() { r.spaces[ns.Name] = ns; r.saw(ns) })
	}
}

func (w *world) remove(name string) {
	ns := w.spaces[name]
	delete(w.spaces, name)
	for _, r := range w.replicas {
		r.events = append(r.events, func() { delete(r.spaces, name); r.saw(ns) })
	}
}

// names are those of the tenant's namespaces that are there, sorted.
func (w *world) names() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(w.spaces)) {
		if w.spaces[name].Labels[v1alpha1.LabelTenant] == simulatedTenant {
			names = append(names, name)
		}
	}
	return names
}

// holds fails the test when there are more namespaces of owners than there may be.
func (w *world) holds() {
	w.flights = slices.DeleteFunc(w.flights, func(f *flight) bool { return time.Now().After(f.until) })
	counted := map[string]bool{}
	for _, name := range w.names() {
		if w.spaces[name].Annotations[reservations.Mark] != "" {
			counted[name] = true
		}
	}
	for _, f := range w.flights {
		counted[f.object.Name] = true
	}
	if w.tenant == nil && len(w.flights) > 0 {
		w.t.Fatalf("%s is on its way and its tenant is gone", w.flights[0].object.Name)
	}
	if w.tenant != nil && len(counted) > int(*w.tenant.Spec.Namespaces.Quota) {
		w.t.Fatalf("%d namespaces of %d: %v, of which are there %v; the reservations are %v", len(counted), *w.tenant.Spec.Namespaces.Quota, slices.Sorted(maps.Keys(counted)), w.names(), w.lease)
	}
}

// start starts a replica with the current state.
func (r *replica) start() {
	w := r.world
	r.dead, r.events, r.tenant, r.spaces = make(chan struct{}), nil, w.tenant, maps.Clone(w.spaces)
	now := func() time.Time { return time.Now().Add(r.skew) }
	r.keeper = &reservations.Keeper{Client: &server{r: r, dead: r.dead}, Namespace: "flux-system", Now: now}
	r.handler = webhook.NewHandler(&cached{r: r}, &server{r: r, dead: r.dead}, r.keeper, always{})
	r.handler.Now = now
	r.heard = map[types.UID]bool{}
	for _, ns := range w.spaces {
		r.saw(ns)
	}
}

func (r *replica) saw(ns *corev1.Namespace) {
	r.keeper.MarkSeen(ns)
	r.heard[types.UID(ns.Annotations[reservations.Mark])] = true
}

// kill ends a replica and all that it waits for, and starts another one.
func (r *replica) kill() {
	w := r.world
	close(r.dead)
	w.mu.Lock()
	w.calls = slices.DeleteFunc(w.calls, func(c *call) bool { return c.of == r })
	w.mu.Unlock()
	// What waited for the replica ends before another one is there.
	synctest.Wait()
	r.start()
}

// wait returns when the call is let through: true if its answer arrives.
func (r *replica) wait(dead chan struct{}) (arrives bool, err error) {
	c := &call{of: r, let: make(chan bool)}
	r.world.mu.Lock()
	select {
	case <-dead:
		r.world.mu.Unlock()
		return false, errLost
	default:
	}
	r.world.calls = append(r.world.calls, c)
	r.world.mu.Unlock()
	select {
	case arrives := <-c.let:
		return arrives, nil
	case <-dead:
		return false, errLost
	}
}

// let lets one of the calls through.
func (w *world) let(which int, arrives bool) {
	w.mu.Lock()
	if len(w.calls) == 0 {
		w.mu.Unlock()
		return
	}
	which %= len(w.calls)
	c := w.calls[which]
	w.calls = slices.Delete(w.calls, which, which+1)
	w.mu.Unlock()
	c.let <- arrives
}

// ask creates a namespace as the owner. After the answer, an admitted namespace is in flight.
func (r *replica) ask(name string) {
	w := r.world
	w.requests++
	id := types.UID(fmt.Sprint("request-", w.requests))
	began, dead := time.Now(), r.dead
	ctx, giveUp := context.WithCancel(context.Background())
	a := &asking{giveUp: giveUp, names: map[string]bool{}, all: map[string]bool{}, over: map[types.UID]bool{}, quota: firstQuota, absent: w.tenant == nil || w.tenant.DeletionTimestamp != nil}
	if w.tenant != nil {
		a.quota = int(*w.tenant.Spec.Namespaces.Quota)
	}
	for _, there := range w.names() {
		a.names[there] = true
	}
	for there := range w.spaces {
		a.all[there] = true
	}
	for request, admission := range w.admitted {
		a.over[request] = r.heard[request] || began.Add(r.skew).Sub(admission.At) >= reservations.Lifetime
	}
	w.asking = append(w.asking, a)
	handler := r.handler
	go func() {
		object := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{v1alpha1.LabelTenant: simulatedTenant},
		}}
		raw, _ := json.Marshal(object)
		defer giveUp()
		response := handler.Handle(ctx, ctrladmission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			UID: id, Operation: admissionv1.Create, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "namespaces"},
			UserInfo: authenticationv1.UserInfo{Username: "alice"}, Object: runtime.RawExtension{Raw: raw},
		}})
		arrives, err := r.wait(dead)
		// Several end together when their replica does.
		w.ending.Lock()
		defer w.ending.Unlock()
		w.asking = slices.DeleteFunc(w.asking, func(other *asking) bool { return other == a })
		switch {
		case err != nil || !arrives || ctx.Err() != nil:
		case response.Allowed:
			object.Annotations = map[string]string{reservations.Mark: string(id)}
			w.flights = append(w.flights, &flight{object: object, until: began.Add(requestTime)})
		case response.Result.Code == http.StatusConflict && !a.all[name]:
			w.t.Errorf("%s was refused since it exists, and it did not: %s", name, response.Result.Message)
		case response.Result.Code == http.StatusForbidden:
			w.refused(a, name, response.Result.Message)
		}
	}()
}

// giveUp lets the API server stop waiting for one of the answers.
func (w *world) giveUp(which int) {
	if len(w.asking) > 0 {
		w.asking[which%len(w.asking)].giveUp()
	}
}

// refused fails the test when there was no reason to refuse.
func (w *world) refused(a *asking, name, message string) {
	if !strings.Contains(message, "namespaces") || strings.Contains(message, "being deleted") {
		if !a.absent {
			w.t.Errorf("refused, and the tenant was there all the time: %s", message)
		}
		return
	}
	counted := maps.Clone(a.names)
	counted[name] = true
	for request, admission := range w.admitted {
		if !a.over[request] {
			counted[admission.Name] = true
		}
	}
	if len(counted) <= a.quota && !a.absent {
		w.t.Errorf("%s was refused for the quota of %d, and only %v could be there: %s", name, a.quota, slices.Sorted(maps.Keys(counted)), message)
	}
}

// land ends a flight: the namespace is created, or not.
func (w *world) land(which int, arrives bool) {
	if len(w.flights) == 0 {
		return
	}
	which %= len(w.flights)
	f := w.flights[which]
	w.flights = slices.Delete(w.flights, which, which+1)
	if _, there := w.spaces[f.object.Name]; arrives && !there {
		w.put(f.object)
	}
}

// leave deletes the Tenant as the manager does.
func (w *world) leave() {
	if w.tenant == nil || w.leaving {
		return
	}
	w.leaving = true
	if w.tenant.DeletionTimestamp == nil {
		w.change(func(t *v1alpha1.Tenant) { t.DeletionTimestamp = new(metav1.Now()); t.Generation++ })
	}
	r, deleted := w.replicas[0], w.tenant
	keeper, dead := r.keeper, r.dead
	go func() {
		for {
			name, err := keeper.Close(context.Background(), deleted)
			if arrives, lost := r.wait(dead); lost != nil || !arrives {
				w.leaving = false
				return
			}
			for _, there := range w.names() {
				w.remove(there)
			}
			if name == "" && err == nil {
				w.leaving, w.tenant = false, nil
				w.changed()
				return
			}
		}
	}()
}

// collect removes the reservations whose owner is gone, as Kubernetes does.
func (w *world) collect() {
	if w.lease != nil && (w.tenant == nil || w.lease.OwnerReferences[0].UID != w.tenant.UID) {
		w.lease = nil
	}
}

// always is a profile.
type always struct{}

func (always) Profile(context.Context) (*v1alpha1.TenancyProfile, error) {
	return &v1alpha1.TenancyProfile{}, nil
}

func notFound(name string) error { return apierrors.NewNotFound(schema.GroupResource{}, name) }

// cached reads what a replica has heard of.
type cached struct {
	client.Reader
	r *replica
}

func (c *cached) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if into, ok := into.(*corev1.Namespace); ok {
		return oneOf(c.r.spaces, key.Name, into)
	}
	if c.r.tenant == nil || key.Name != simulatedTenant {
		return notFound(key.Name)
	}
	c.r.tenant.DeepCopyInto(into.(*v1alpha1.Tenant))
	return nil
}

func (c *cached) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	of := (&client.ListOptions{}).ApplyOptions(options)
	if of.FieldSelector != nil {
		if tenant, found := of.FieldSelector.RequiresExactMatch("tenure.dev/any-tenant"); found && tenant != simulatedTenant {
			return nil
		}
	}
	return list(into, c.r.tenant, c.r.spaces)
}

func oneOf(spaces map[string]*corev1.Namespace, name string, into *corev1.Namespace) error {
	if spaces[name] == nil {
		return notFound(name)
	}
	spaces[name].DeepCopyInto(into)
	return nil
}

func list(into client.ObjectList, tenant *v1alpha1.Tenant, spaces map[string]*corev1.Namespace) error {
	switch into := into.(type) {
	case *v1alpha1.TenantList:
		if tenant != nil {
			into.Items = append(into.Items, *tenant)
		}
	case *corev1.NamespaceList:
		for _, ns := range spaces {
			if ns.Labels[v1alpha1.LabelTenant] == simulatedTenant {
				into.Items = append(into.Items, *ns)
			}
		}
	}
	return nil
}

// server reads and writes the world.
type server struct {
	client.Client
	r    *replica
	dead chan struct{}
}

// do lets a replica do something when it is let through. The answer may get lost.
func (s *server) do(what func() error) error {
	arrives, err := s.r.wait(s.dead)
	if err != nil {
		return err
	}
	if err := what(); err != nil || arrives {
		return err
	}
	return errLost
}

func (s *server) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	return s.do(func() error {
		w := s.r.world
		switch into := into.(type) {
		case *v1alpha1.Tenant:
			if w.tenant == nil {
				return notFound(key.Name)
			}
			w.tenant.DeepCopyInto(into)
		case *coordinationv1.Lease:
			if w.lease == nil {
				return notFound(key.Name)
			}
			w.lease.DeepCopyInto(into)
		case *corev1.Namespace:
			return oneOf(w.spaces, key.Name, into)
		}
		return nil
	})
}

func (s *server) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	if err := s.do(func() error { return list(into, s.r.world.tenant, s.r.world.spaces) }); err != nil {
		return err
	}
	// What happens before the answer arrives is not in it.
	return s.do(func() error { return nil })
}

func (s *server) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	return s.do(func() error {
		if s.r.world.lease != nil {
			return apierrors.NewAlreadyExists(schema.GroupResource{}, o.GetName())
		}
		s.r.world.write(o.(*coordinationv1.Lease))
		return nil
	})
}

func (s *server) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	return s.do(func() error {
		if s.r.world.lease == nil {
			return notFound(o.GetName())
		}
		if s.r.world.lease.ResourceVersion != o.GetResourceVersion() {
			return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("changed"))
		}
		s.r.world.write(o.(*coordinationv1.Lease))
		return nil
	})
}

func (w *world) write(lease *coordinationv1.Lease) {
	lease.ResourceVersion = w.next()
	w.lease = lease.DeepCopy()
	for _, value := range lease.Annotations {
		l, err := reservations.Decode(value)
		if err != nil {
			w.t.Error(err)
		}
		for _, a := range l.Admitted {
			w.admitted[a.Request] = a
		}
	}
}
