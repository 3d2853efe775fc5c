package tenancy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

func quantities(name corev1.ResourceName, value string) corev1.ResourceList {
	if value == "" {
		return nil
	}
	return corev1.ResourceList{name: resource.MustParse(value)}
}

// wants returns the wishes of replicas, separated by spaces. The first one is the oldest.
func wants(name corev1.ResourceName, values string, since time.Time) (all []Wanted) {
	for i, value := range strings.Fields(values) {
		all = append(all, Wanted{Since: since.Add(time.Duration(i) * time.Millisecond), Resources: quantities(name, value)})
	}
	return all
}

func TestDistributeQuota(t *testing.T) {
	t.Parallel()
	type ns struct{ hard, enforced, used, wanted string }
	for _, tc := range []struct {
		reason   string
		resource corev1.ResourceName
		limit    string
		have     []ns
		leaving  int // as many of the last ones
		want     []string
		over     bool
		lazy     bool // is told not to rebalance
	}{
		{reason: "the first namespace gets all", resource: "pods", limit: "10", have: []ns{{}}, want: []string{"10"}},
		{reason: "new ones share, and nothing is lost", resource: "pods", limit: "10", have: []ns{{}, {}, {}}, want: []string{"4", "3", "3"}},
		{reason: "a second one waits until the first has come down", resource: "pods", limit: "10", have: []ns{{hard: "10", enforced: "10", used: "2"}, {}}, want: []string{"6", "0"}},
		{reason: "the status does not say so yet", resource: "pods", limit: "10", have: []ns{{hard: "6", enforced: "10", used: "2"}, {hard: "0", enforced: "0", used: "0"}}, want: []string{"6", "0"}},
		{reason: "now it does", resource: "pods", limit: "10", have: []ns{{hard: "6", enforced: "6", used: "2"}, {hard: "0", enforced: "0", used: "0"}}, want: []string{"6", "4"}},
		{reason: "used meanwhile, before it came down", resource: "pods", limit: "10", have: []ns{{hard: "6", enforced: "6", used: "9"}, {hard: "0", enforced: "0", used: "0"}}, want: []string{"10", "0"}},
		{reason: "enough is left for everybody: nothing moves", resource: "pods", limit: "10", have: []ns{{hard: "5", enforced: "5", used: "3"}, {hard: "5", enforced: "5", used: "0"}}, want: []string{"5", "5"}},
		{reason: "one is short", resource: "pods", limit: "10", have: []ns{{hard: "5", enforced: "5", used: "5"}, {hard: "5", enforced: "5", used: "0"}}, want: []string{"5", "2"}},
		{reason: "more is used than allowed: nobody gets more, and the sum is the limit", resource: "pods", limit: "10", have: []ns{{hard: "15", enforced: "15", used: "15"}, {hard: "5", enforced: "5", used: "5"}}, want: []string{"7", "2"}, over: true},
		{reason: "one that leaves keeps what it has", resource: "pods", limit: "10", have: []ns{{hard: "5", enforced: "5", used: "5"}, {hard: "5", enforced: "5", used: "1"}}, leaving: 1, want: []string{"5"}},
		{reason: "processors in thousandths", resource: "limits.cpu", limit: "1", have: []ns{{}, {}, {}}, want: []string{"340m", "330m", "330m"}},
		{reason: "memory in whole mebibytes", resource: "requests.memory", limit: "1Gi", have: []ns{{}, {}, {}}, want: []string{"342Mi", "341Mi", "341Mi"}},
		{reason: "a limit of half a thing is none", resource: "pods", limit: "500m", have: []ns{{}}, want: []string{"0"}},
		{reason: "less free than namespaces", resource: "pods", limit: "2", have: []ns{{}, {}, {}}, want: []string{"1", "1", "0"}},
		{reason: "more than fits into 46 bits", resource: "requests.storage", limit: "100Ti", have: []ns{{}, {}, {}}, want: []string{"34134Gi", "34133Gi", "34133Gi"}},
		{reason: "much more, with what does not divide", resource: "requests.storage", limit: "7Ei", have: []ns{{hard: "4Ei", enforced: "4Ei", used: "1000000000000000001"}, {hard: "3Ei", enforced: "3Ei", used: "5"}}, want: []string{"4Ei", "3Ei"}},
		{reason: "when more is allowed, what was rounded otherwise is not rounded up", resource: "requests.storage", limit: "100Ti", have: []ns{{hard: "54975581388900", enforced: "54975581388900", used: ""}, {hard: "54975581388700", enforced: "54975581388700", used: ""}}, want: []string{"50Ti", "54975581388700"}},
		{reason: "of much one has all, and uses it", resource: "requests.storage", limit: "100Ti", have: []ns{{hard: "100Ti", enforced: "100Ti", used: "100Ti"}, {}}, want: []string{"100Ti", "0"}},
		{reason: "more than a limit of much is used", resource: "requests.storage", limit: "100Ti", have: []ns{{hard: "200Ti", enforced: "200Ti", used: "150Ti"}, {hard: "100Ti", enforced: "100Ti", used: "50Ti"}}, want: []string{"75Ti", "25Ti"}, over: true},
		{reason: "a bound that the quota does not have yet", resource: "pods", limit: "4", have: []ns{{hard: "", enforced: "", used: ""}, {hard: "2", enforced: "2", used: "2"}}, want: []string{"1", "3"}},
		{reason: "nobody waits, and rebalancing can wait", resource: "pods", limit: "10", lazy: true, have: []ns{{hard: "5", enforced: "5", used: "5"}, {hard: "5", enforced: "5"}}, want: []string{"5", "5"}},
		{reason: "one waits, and others give half of what they have free", resource: "requests.cpu", limit: "8", lazy: true, have: []ns{{hard: "2", enforced: "2", used: "1", wanted: "2"}, {hard: "2", enforced: "2"}, {hard: "2", enforced: "2"}, {hard: "2", enforced: "2"}}, want: []string{"2", "1", "2", "2"}},
		{reason: "what they gave holds", resource: "requests.cpu", limit: "8", lazy: true, have: []ns{{hard: "2", enforced: "2", used: "1", wanted: "2"}, {hard: "1", enforced: "1"}, {hard: "2", enforced: "2"}, {hard: "2", enforced: "2"}}, want: []string{"3", "1", "2", "2"}},
		{reason: "half is not enough", resource: "pods", limit: "8", lazy: true, have: []ns{{hard: "4", enforced: "4", used: "4", wanted: "3"}, {hard: "4", enforced: "4", used: "1"}}, want: []string{"4", "1"}},
		{reason: "more is wanted than there is: what there is stays for others", resource: "pods", limit: "8", lazy: true, have: []ns{{hard: "4", enforced: "4", used: "4", wanted: "4"}, {hard: "4", enforced: "4", used: "1"}}, want: []string{"4", "4"}},
		{reason: "two want more than there is: who waits longer is served, here the last one", resource: "pods", limit: "6", lazy: true, have: []ns{{hard: "2", enforced: "2", used: "2", wanted: "1"}, {hard: "3", enforced: "3", used: "2"}, {hard: "1", enforced: "1", used: "1", wanted: "1"}}, want: []string{"2", "2", "1"}},
		{reason: "two replicas want more than there is: the oldest wish is served", resource: "pods", limit: "8", lazy: true, have: []ns{{hard: "2", enforced: "2", used: "2", wanted: "1 1"}, {hard: "3", enforced: "3", used: "3", wanted: "1 1"}, {hard: "3", enforced: "3", used: "2"}}, want: []string{"2", "3", "2"}},
		{reason: "the other namespace has given it", resource: "pods", limit: "8", lazy: true, have: []ns{{hard: "2", enforced: "2", used: "2", wanted: "1 1"}, {hard: "3", enforced: "3", used: "3", wanted: "1 1"}, {hard: "2", enforced: "2", used: "2"}}, want: []string{"2", "4", "2"}},
		{reason: "what serves the oldest wish is not taken for another one", resource: "pods", limit: "8", lazy: true, have: []ns{{hard: "5", enforced: "5", used: "5", wanted: "1"}, {hard: "3", enforced: "3", used: "2", wanted: "1 1"}}, want: []string{"5", "3"}},
		{reason: "what is wanted counts when all is divided anew", resource: "pods", limit: "8", have: []ns{{hard: "3", enforced: "3", used: "1", wanted: "2"}, {hard: "5", enforced: "5", used: "5"}}, want: []string{"3", "5"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			var shares []Share
			for i, n := range tc.have {
				shares = append(shares, Share{
					Namespace: fmt.Sprint("n", i), Exists: n != ns{}, Leaving: i >= len(tc.have)-tc.leaving,
					Hard: quantities(tc.resource, n.hard), Enforced: quantities(tc.resource, n.enforced), Used: quantities(tc.resource, n.used),
					Wanted: wants(tc.resource, n.wanted, time.Unix(int64(len(tc.have)-i), 0)),
				})
			}
			hard, over := DistributeQuota(quantities(tc.resource, tc.limit), shares, !tc.lazy)
			var got []string
			for i := range len(tc.have) - tc.leaving {
				q := hard[fmt.Sprint("n", i)][tc.resource]
				got = append(got, q.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || tc.over != (len(over) > 0) {
				t.Errorf("DistributeQuota(): over %v, -want, +got:\n%s", over, diff)
			}
		})
	}
}

// TestDistributeHugeQuota divides amounts that 64 bits do not hold, some of them in thousandths.
func TestDistributeHugeQuota(t *testing.T) {
	t.Parallel()
	for _, name := range []corev1.ResourceName{"requests.cpu", "requests.memory"} {
		for _, amount := range []string{"9e15", "1E", "1Ei", "9E", "9e30", "9e300"} {
			limit := corev1.ResourceList{name: resource.MustParse(amount)}
			used := corev1.ResourceList{name: resource.MustParse("3")}
			hard, over := DistributeQuota(limit, []Share{
				{Namespace: "a", Exists: true, Used: used, Enforced: used, Hard: used}, {Namespace: "b"},
			}, false)
			for _, namespace := range []string{"a", "b"} {
				if got := hard[namespace][name]; got.CmpInt64(1e15) < 0 || got.Cmp(limit[name]) > 0 || len(over) > 0 {
					t.Errorf("of %s %s, %s gets %s; over %v", amount, name, namespace, got.String(), over)
				}
			}
		}
	}
}

// world is Kubernetes with a tenant's namespaces, as far as a quota sees it.
type world struct {
	t      *testing.T
	limit  int64
	shares []Share
}

const counted = corev1.ResourceName("pods")

func (w *world) value(l corev1.ResourceList) int64 { q := l[counted]; return q.Value() }

// wanted returns the sum of the wishes in a namespace.
func (w *world) wanted(s Share) (sum int64) {
	for _, one := range s.Wanted {
		sum += w.value(one.Resources)
	}
	return sum
}

func (w *world) set(l *corev1.ResourceList, v int64) {
	*l = corev1.ResourceList{counted: *resource.NewQuantity(v, resource.DecimalSI)}
}

// check holds what must always be so.
func (w *world) check(what string) {
	w.t.Helper()
	held, used := int64(0), int64(0)
	for _, s := range w.shares {
		held += max(w.value(s.Hard), w.value(s.Enforced))
		used += w.value(s.Used)
	}
	if held > w.limit || used > w.limit {
		w.t.Fatalf("after %s namespaces may use %d and use %d of %d: %+v", what, held, used, w.limit, w.shares)
	}
}

// divide asks, and writes some of the answer: the rest is lost with the manager.
func (w *world) divide(rebalance bool, written func(int) bool) (changed bool) {
	w.t.Helper()
	limit := corev1.ResourceList{counted: *resource.NewQuantity(w.limit, resource.DecimalSI)}
	hard, over := DistributeQuota(limit, w.shares, rebalance)
	again, _ := DistributeQuota(limit, slices.Clone(w.shares), rebalance)
	if !equality.Semantic.DeepEqual(hard, again) {
		w.t.Fatal("asked twice, it says two things")
	}
	if len(over) > 0 {
		w.t.Fatalf("over %v", over)
	}
	// Downs and ups in whatever order.
	for _, i := range rand.New(rand.NewPCG(uint64(w.limit), uint64(len(w.shares)))).Perm(len(w.shares)) {
		s := &w.shares[i]
		next, ok := hard[s.Namespace]
		if !ok || equality.Semantic.DeepEqual(next, s.Hard) {
			continue
		}
		changed = true
		if written(i) {
			s.Hard, s.Exists = next, true
			w.check("a write")
		}
	}
	return changed
}

// settle lets everything come to rest.
func (w *world) settle(rebalance bool) {
	w.t.Helper()
	for range 20 {
		for i := range w.shares {
			w.enforce(i)
		}
		if !w.divide(rebalance, func(int) bool { return true }) {
			return
		}
	}
	w.t.Fatalf("it does not come to rest: %+v", w.shares)
}

func (w *world) enforce(i int) {
	if w.shares[i].Exists {
		w.set(&w.shares[i].Enforced, w.value(w.shares[i].Hard))
	}
}

// served fails the test when a request waits that would fit into what is left when each
// namespace has what it uses, and what requests wait for that have room.
func (w *world) served() {
	w.t.Helper()
	free, rounded := w.limit, int64(0)
	if w.limit >= maxUnits {
		rounded = int64(2*len(w.shares)) * (w.limit >> 35)
	}
	// The wishes that a namespace has room for hold what they need.
	room := func(s Share) (sum, next int64) {
		for _, one := range s.Wanted {
			next = w.value(one.Resources)
			if sum+next > w.value(s.Enforced)-w.value(s.Used) {
				return sum, next
			}
			sum += next
		}
		return sum, 0
	}
	for _, s := range w.shares {
		if s.Leaving {
			free -= max(w.value(s.Hard), w.value(s.Enforced), w.value(s.Used))
			continue
		}
		has, _ := room(s)
		free -= w.value(s.Used) + has
	}
	for _, s := range w.shares {
		if _, next := room(s); next > 0 && !s.Leaving && free >= next+rounded {
			w.t.Fatalf("%s waits for %d while %d are free: %+v", s.Namespace, next, free, w.shares)
		}
	}
}

// FuzzDistributeQuota runs namespaces, Kubernetes' quota controller and the manager in every
// order. Each byte is something that happens. The limit is so many times 2 to the power of
// size, by which what is used grows too, and a little.
func FuzzDistributeQuota(f *testing.F) {
	f.Add(uint16(10), uint8(0), []byte("\x00\x01\x02\x03\x10\x11\x12\x13\x20\x21\x22\x23\x30\x31"))
	f.Add(uint16(3), uint8(0), []byte{0, 0, 0, 0, 3, 2, 3, 2, 11, 19, 27, 3, 2, 5, 3, 2})
	f.Add(uint16(100), uint8(0), []byte{0, 3, 2, 11, 11, 11, 0, 3, 2, 4, 3, 2, 10, 0, 3, 2, 19, 27})
	f.Add(uint16(100), uint8(40), []byte{0, 3, 2, 11, 11, 11, 0, 3, 2, 4, 3, 2, 10, 0, 3, 2, 19, 27})
	f.Add(uint16(100), uint8(42), []byte{0, 4, 2, 253, 0, 4, 2, 10, 4, 2, 253, 13, 4, 2, 10, 0, 4, 2, 10, 18, 4, 23, 253, 4})
	f.Fuzz(func(t *testing.T, limit uint16, size uint8, happens []byte) {
		size %= 43 // sums of what a dozen namespaces have fit
		w := &world{t: t, limit: int64(limit) << size}
		for n, b := range happens {
			if b%8 == 0 && len(w.shares) < 12 {
				w.shares = append(w.shares, Share{Namespace: fmt.Sprintf("n%03d", n)})
			}
			if len(w.shares) == 0 {
				continue
			}
			i := int(b/8) % len(w.shares)
			s := &w.shares[i]
			switch b % 8 {
			case 0: // a request begins to wait, or ends
				s.Wanted = nil
				for at := range int64(n%3 + 1) {
					s.Wanted = append(s.Wanted, Wanted{Since: time.Unix(int64(n), at)})
					w.set(&s.Wanted[at].Resources, int64(b)/32<<size)
				}
			case 1, 2:
				w.enforce(i)
			case 3: // a write in the middle is the last one
				w.divide(b >= 128, func(j int) bool { return j != i })
			case 4:
				w.divide(b >= 128, func(int) bool { return true })
			case 5, 6: // admission
				if grow := int64(b)/16<<size + int64(b)%3*min(1, int64(size)); s.Exists && s.Enforced != nil && w.value(s.Used)+grow <= w.value(s.Enforced) {
					w.set(&s.Used, w.value(s.Used)+grow)
				}
			case 7:
				w.set(&s.Used, max(0, w.value(s.Used)-int64(b)/16<<size))
				if s.Leaving && w.value(s.Used) == 0 {
					w.shares = slices.Delete(w.shares, i, i+1)
				} else if b > 200 {
					s.Leaving = true
				}
			}
			w.check(fmt.Sprintf("event %d (%d)", n, b))
		}
		w.settle(false)
		w.served()
		w.settle(true)
		// What is rounded is less than a unit for each.
		free, count, unit := w.limit, int64(0), max(1, w.limit>>35)
		for _, s := range w.shares {
			if s.Leaving {
				free -= max(w.value(s.Hard), w.value(s.Enforced), w.value(s.Used))
				continue
			}
			free -= w.value(s.Used) + w.wanted(s)
			count++
		}
		for _, s := range w.shares {
			if !s.Leaving && free >= 2*count*unit && w.value(s.Enforced) <= w.value(s.Used) {
				t.Fatalf("%s has nothing while %d are free for %d namespaces: %+v", s.Namespace, free, count, w.shares)
			}
		}
	})
}
