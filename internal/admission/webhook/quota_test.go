package webhook_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission/webhook/reservations"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FuzzQuota simulates three replicas that receive events late, have different clocks and are killed.
// Requests and answers get lost, and callers give up. Namespaces are created and deleted, and the Tenant is
// changed, deleted and created again. The number of owners' namespaces, including admitted ones, must never
// exceed the quota; every refusal must have a reason; and when nothing changes any more, owners can use up
// the quota.
func FuzzQuota(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		steps := make([]byte, 2*(50+random.IntN(350)))
		for i := range steps {
			steps[i] = byte(random.Uint32())
		}
		f.Add(steps)
	}
	f.Fuzz(func(t *testing.T, steps []byte) {
		if len(steps) > 2000 {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			for i := 0; i+1 < len(steps) && !t.Failed(); i += 2 {
				w.step(steps[i]%32, int(steps[i+1]))
				synctest.Wait()
				w.holds()
			}
			if !t.Failed() {
				w.converges()
			}
			for _, r := range w.replicas {
				r.kill()
			}
		})
	})
}

// TestQuotaOrder lets a namespace come, and be heard of, between the moment at which
// the API server lists the namespaces and the one at which its answer arrives: its name
// must not be taken for one that is gone.
func TestQuotaOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.replicas[0]
		for _, name := range []string{"ns-a", "ns-b"} {
			r.ask(name)
			synctest.Wait()
			w.drain()
		}
		r.ask("ns-c")
		synctest.Wait()
		// The reservations, the Tenant and the list, whose answer is on its way.
		for range 3 {
			w.let(0, true)
			synctest.Wait()
		}
		w.land(0, true)
		r.hear(len(r.events))
		w.drain()
		if names, flying := w.names(), len(w.flights); len(names) != 1 || flying != 1 {
			t.Errorf("%v are there and %d on their way, want one and one", names, flying)
		}
		for _, r := range w.replicas {
			r.kill()
		}
	})
}

// step lets one thing happen.
func (w *world) step(what byte, which int) {
	r := w.replicas[which%len(w.replicas)]
	switch {
	case what < 8:
		if len(w.asking) < 6 {
			r.ask(fmt.Sprintf("ns-%d", which/4%6))
		}
	case what < 18:
		w.let(which, true)
	case what == 18:
		w.let(which, false)
	case what < 22:
		w.land(which, true)
	case what == 22:
		w.land(which, false)
	case what < 25:
		r.hear(1)
	case what == 25:
		r.hear(len(r.events))
	case what == 26:
		if names := w.names(); len(names) > 0 {
			w.remove(names[which%len(names)])
		}
	case what == 27:
		pass([]time.Duration{time.Second, 20 * time.Second, 70 * time.Second, 130 * time.Second}[which%4])
	case what == 28:
		r.kill()
		w.leaving = w.leaving && r != w.replicas[0]
	case what == 29:
		w.platform(which)
	case what == 30 && which%4 == 0:
		w.leave()
	case what == 30 && which%4 == 1:
		w.giveUp(which)
	default:
		w.drain()
	}
}

// pass lets time pass in the bubble.
func pass(d time.Duration) { <-time.After(d) }

// platform lets the platform or Kubernetes do something.
func (w *world) platform(which int) {
	switch names := w.names(); {
	case which%6 == 0:
		w.collect()
	case w.tenant == nil:
		w.found()
	case which%6 == 1:
		w.change(func(t *v1alpha1.Tenant) { t.Generation++ })
	case which%6 == 2 && *w.tenant.Spec.Namespaces.Quota < 4:
		w.change(func(t *v1alpha1.Tenant) { t.Spec.Namespaces.Quota = new(*t.Spec.Namespaces.Quota + 1); t.Generation++ })
	case which%6 == 3 && len(names) > 0:
		other := w.spaces[names[which%len(names)]].DeepCopy()
		other.Labels = map[string]string{v1alpha1.LabelTenant: "other"}
		w.put(other)
	case which%6 == 4:
		name := fmt.Sprint("admin-", which/6%2)
		if _, there := w.spaces[name]; !there {
			w.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelTenant: simulatedTenant}}})
		}
	default:
		var seen []string
		for name, ns := range w.replicas[0].spaces {
			if ns.Labels[v1alpha1.LabelTenant] == simulatedTenant {
				seen = append(seen, name)
			}
		}
		w.change(func(t *v1alpha1.Tenant) { t.Status.Namespaces = seen })
	}
}

// hear delivers the next events to a replica.
func (r *replica) hear(events int) {
	for ; events > 0 && len(r.events) > 0; events-- {
		r.events[0]()
		r.events = r.events[1:]
	}
}

// drain lets everything through that waits, a bounded number of times: a Tenant that
// is being deleted asks again and again.
func (w *world) drain() {
	for range 40 {
		w.let(0, true)
		synctest.Wait()
		w.holds()
	}
}

// converges lets all become quiet, and uses the quota up.
func (w *world) converges() {
	for w.tenant == nil || w.tenant.DeletionTimestamp != nil {
		if w.tenant == nil {
			w.found()
			continue
		}
		pass(reservations.Lifetime)
		w.leave()
		w.drain()
	}
	for len(w.calls) > 0 {
		w.drain()
	}
	// The clocks of two replicas differ by less than a minute.
	pass(reservations.Lifetime + time.Minute)
	w.holds()
	for i := range 10 {
		r := w.replicas[i%len(w.replicas)]
		r.ask(fmt.Sprint("last-", i))
		synctest.Wait()
		w.drain()
		w.land(0, true)
		w.holds()
	}
	if got, want := len(w.names()), int(*w.tenant.Spec.Namespaces.Quota); got < want {
		w.t.Errorf("there are %d namespaces of %d, and no more can be made; the reservations are %v", got, want, w.lease)
	}
}
