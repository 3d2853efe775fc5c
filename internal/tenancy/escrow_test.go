package tenancy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

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

func TestEscrow(t *testing.T) {
	t.Parallel()
	type ns struct{ hard, enforced, used string }
	for _, tc := range []struct {
		reason   string
		resource corev1.ResourceName
		limit    string
		have     []ns
		leaving  int // as many of the last ones
		want     []string
		over     bool
	}{
		{reason: "the first namespace gets all", resource: "pods", limit: "10", have: []ns{{}}, want: []string{"10"}},
		{reason: "new ones share, and nothing is lost", resource: "pods", limit: "10", have: []ns{{}, {}, {}}, want: []string{"4", "3", "3"}},
		{reason: "a second one waits until the first has come down", resource: "pods", limit: "10", have: []ns{{"10", "10", "2"}, {}}, want: []string{"6", "0"}},
		{reason: "the status does not say so yet", resource: "pods", limit: "10", have: []ns{{"6", "10", "2"}, {"0", "0", "0"}}, want: []string{"6", "0"}},
		{reason: "now it does", resource: "pods", limit: "10", have: []ns{{"6", "6", "2"}, {"0", "0", "0"}}, want: []string{"6", "4"}},
		{reason: "used meanwhile, before it came down", resource: "pods", limit: "10", have: []ns{{"6", "6", "9"}, {"0", "0", "0"}}, want: []string{"10", "0"}},
		{reason: "enough is left for everybody: nothing moves", resource: "pods", limit: "10", have: []ns{{"5", "5", "3"}, {"5", "5", "0"}}, want: []string{"5", "5"}},
		{reason: "one is short", resource: "pods", limit: "10", have: []ns{{"5", "5", "5"}, {"5", "5", "0"}}, want: []string{"5", "2"}},
		{reason: "more is used than allowed: nobody gets more, and the sum is the limit", resource: "pods", limit: "10", have: []ns{{"15", "15", "15"}, {"5", "5", "5"}}, want: []string{"7", "2"}, over: true},
		{reason: "one that leaves keeps what it has", resource: "pods", limit: "10", have: []ns{{"5", "5", "5"}, {"5", "5", "1"}}, leaving: 1, want: []string{"5"}},
		{reason: "processors in thousandths", resource: "limits.cpu", limit: "1", have: []ns{{}, {}, {}}, want: []string{"340m", "330m", "330m"}},
		{reason: "memory in whole mebibytes", resource: "requests.memory", limit: "1Gi", have: []ns{{}, {}, {}}, want: []string{"342Mi", "341Mi", "341Mi"}},
		{reason: "a limit of half a thing is none", resource: "pods", limit: "500m", have: []ns{{}}, want: []string{"0"}},
		{reason: "less free than namespaces", resource: "pods", limit: "2", have: []ns{{}, {}, {}}, want: []string{"1", "1", "0"}},
		{reason: "more than fits into 46 bits", resource: "requests.storage", limit: "100Ti", have: []ns{{}, {}, {}}, want: []string{"34134Gi", "34133Gi", "34133Gi"}},
		{reason: "much more, with what does not divide", resource: "requests.storage", limit: "7Ei", have: []ns{{"4Ei", "4Ei", "1000000000000000001"}, {"3Ei", "3Ei", "5"}}, want: []string{"4Ei", "3Ei"}},
		{reason: "when more is allowed, what was rounded otherwise is not rounded up", resource: "requests.storage", limit: "100Ti", have: []ns{{"54975581388900", "54975581388900", ""}, {"54975581388700", "54975581388700", ""}}, want: []string{"50Ti", "54975581388700"}},
		{reason: "of much one has all, and uses it", resource: "requests.storage", limit: "100Ti", have: []ns{{"100Ti", "100Ti", "100Ti"}, {}}, want: []string{"100Ti", "0"}},
		{reason: "more than a limit of much is used", resource: "requests.storage", limit: "100Ti", have: []ns{{"200Ti", "200Ti", "150Ti"}, {"100Ti", "100Ti", "50Ti"}}, want: []string{"75Ti", "25Ti"}, over: true},
		{reason: "a bound that the quota does not have yet", resource: "pods", limit: "4", have: []ns{{"", "", ""}, {"2", "2", "2"}}, want: []string{"1", "3"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			var shares []Share
			for i, n := range tc.have {
				shares = append(shares, Share{
					Namespace: fmt.Sprint("n", i), Exists: n != ns{}, Leaving: i >= len(tc.have)-tc.leaving,
					Hard: quantities(tc.resource, n.hard), Enforced: quantities(tc.resource, n.enforced), Used: quantities(tc.resource, n.used),
				})
			}
			hard, over := Escrow(quantities(tc.resource, tc.limit), shares)
			var got []string
			for i := range len(tc.have) - tc.leaving {
				q := hard[fmt.Sprint("n", i)][tc.resource]
				got = append(got, q.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || tc.over != (len(over) > 0) {
				t.Errorf("Escrow(): over %v, -want, +got:\n%s", over, diff)
			}
		})
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
func (w *world) divide(written func(int) bool) (changed bool) {
	w.t.Helper()
	limit := corev1.ResourceList{counted: *resource.NewQuantity(w.limit, resource.DecimalSI)}
	hard, over := Escrow(limit, w.shares)
	again, _ := Escrow(limit, slices.Clone(w.shares))
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
func (w *world) settle() {
	w.t.Helper()
	for range 20 {
		for i := range w.shares {
			w.enforce(i)
		}
		if !w.divide(func(int) bool { return true }) {
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

// FuzzEscrow runs namespaces, Kubernetes' quota controller and the manager in every
// order. Each byte is something that happens. The limit is so many times 2 to the power of
// size, by which what is used grows too, and a little.
func FuzzEscrow(f *testing.F) {
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
			case 1, 2:
				w.enforce(i)
			case 3: // a write in the middle is the last one
				w.divide(func(j int) bool { return j != i })
			case 4:
				w.divide(func(int) bool { return true })
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
		w.settle()
		// What is rounded is less than a unit for each.
		free, count, unit := w.limit, int64(0), max(1, w.limit>>35)
		for _, s := range w.shares {
			if s.Leaving {
				free -= max(w.value(s.Hard), w.value(s.Enforced), w.value(s.Used))
				continue
			}
			free -= w.value(s.Used)
			count++
		}
		for _, s := range w.shares {
			if !s.Leaving && free >= 2*count*unit && w.value(s.Enforced) <= w.value(s.Used) {
				t.Fatalf("%s has nothing while %d are free for %d namespaces: %+v", s.Namespace, free, count, w.shares)
			}
		}
	})
}
