package reservations_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission/webhook/reservations"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func admission(name string, ago time.Duration) reservations.Admission {
	return reservations.Admission{Name: name, Request: types.UID("of-" + name), At: now.Add(-ago)}
}

func tenant(uid string, generation int64) *v1alpha1.Tenant {
	return &v1alpha1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Name: "dev-team", UID: types.UID(uid), Generation: generation},
		Spec:       v1alpha1.TenantSpec{Namespaces: v1alpha1.TenantNamespaces{Quota: new(int32(2))}},
	}
}

func keeper(t *testing.T, c client.Client) *reservations.Keeper {
	t.Helper()
	if c == nil {
		scheme := runtime.NewScheme()
		if err := errors.Join(coordinationv1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
			t.Fatal(err)
		}
		c = fake.NewClientBuilder().WithScheme(scheme).Build()
	}
	return &reservations.Keeper{Client: c, Namespace: "flux-system", Now: func() time.Time { return now }}
}

func TestSettleAndConfirm(t *testing.T) {
	t.Parallel()
	before := reservations.Reservations{Names: []string{"b", "z"}, Admitted: []reservations.Admission{admission("a", time.Second), admission("c", time.Hour), admission("b", time.Hour)}}
	settled := before.WithoutEnded(func(a reservations.Admission) bool { return a.Name != "a" })
	want := reservations.Reservations{Names: []string{"b", "c", "z"}, Admitted: []reservations.Admission{admission("a", time.Second)}}
	if diff := cmp.Diff(want, settled); diff != "" {
		t.Errorf("settled (-want +got):\n%s", diff)
	}
	want.Names = []string{"c", "d"}
	if diff := cmp.Diff(want, settled.Confirm([]string{"d", "c", "d"})); diff != "" {
		t.Errorf("confirmed (-want +got):\n%s", diff)
	}
	if !slices.Equal(before.Names, []string{"b", "z"}) || len(before.Admitted) != 3 {
		t.Errorf("the given reservations have changed: %v", before)
	}
}

func TestOver(t *testing.T) {
	t.Parallel()
	marked := func(mark string, ago time.Duration) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{reservations.Mark: mark}, CreationTimestamp: metav1.NewTime(now.Add(-ago))}}
	}
	k := keeper(t, nil)
	k.MarkSeen(marked("of-seen", time.Second))
	k.MarkSeen(marked("of-old", time.Hour))
	k.MarkSeen(&corev1.Namespace{})
	for _, tc := range []struct {
		reason string
		of     reservations.Admission
		want   bool
	}{
		{"nothing is seen of it", admission("new", time.Second), false},
		{"just before its time is over", admission("new", reservations.Lifetime-1), false},
		{"its time is over", admission("new", reservations.Lifetime), true},
		{"its namespace was seen", admission("seen", time.Second), true},
		{"a namespace of the same name was seen, of another request", reservations.Admission{Name: "seen", Request: "other", At: now}, false},
		{"one that is too old for it to matter is not kept", admission("old", time.Second), false},
		{"without a request", reservations.Admission{Name: "seen", At: now}, false},
	} {
		if got := k.Ended(tc.of); got != tc.want {
			t.Errorf("%s: over is %v", tc.reason, got)
		}
	}
}

// TestForgets holds that marks take no room for ever.
func TestForgets(t *testing.T) {
	t.Parallel()
	k, at := keeper(t, nil), now
	k.Now = func() time.Time { return at }
	a := reservations.Admission{Name: "a", Request: "of-a"}
	for i, want := range []bool{true, true, false} {
		k.MarkSeen(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{reservations.Mark: []string{"of-a", "b", "c"}[i]}, CreationTimestamp: metav1.NewTime(at)}})
		a.At = at
		if got := k.Ended(a); got != want {
			t.Errorf("after %s the mark is known: %v", at.Sub(now), got)
		}
		at = at.Add(11 * time.Minute)
	}
}

func TestKeeper(t *testing.T) {
	t.Parallel()
	first := keeper(t, nil)
	second := keeper(t, first.Client)
	ctx := t.Context()
	none, err := first.Read(ctx, "dev-team")
	if err != nil || none.IsCurrent(tenant("", 1)) {
		t.Fatalf("where there is nothing: %v, %v", none, err)
	}
	of := reservations.Reservations{}.ForTenant(tenant("u", 3))
	if err := first.Write(ctx, tenant("u", 3), none, of.Admit(admission("a", 0))); err != nil {
		t.Fatal(err)
	}
	if err := second.Write(ctx, tenant("u", 3), none, of); !errors.Is(err, reservations.ErrChanged) {
		t.Errorf("two have made one: %v", err)
	}
	read, err := second.Read(ctx, "dev-team")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first.Known("dev-team").Reservations, read.Reservations, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("written and read (-written +read):\n%s", diff)
	}
	for version, want := range map[*v1alpha1.Tenant]bool{tenant("u", 3): true, tenant("u", 4): false, tenant("v", 3): false} {
		if got := read.IsCurrent(version); got != want {
			t.Errorf("of %s in version %d: %v", version.UID, version.Generation, got)
		}
	}
	if err := first.Write(ctx, tenant("u", 3), first.Known("dev-team"), of); err != nil {
		t.Fatal(err)
	}
	if err := second.Write(ctx, tenant("u", 3), read, of); !errors.Is(err, reservations.ErrChanged) {
		t.Errorf("one that was changed was written: %v", err)
	}
	if second.Known("dev-team") != nil {
		t.Error("one that was changed is taken for known")
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	k := keeper(t, nil)
	ctx := t.Context()
	none, _ := k.Read(ctx, "dev-team")
	if name, err := k.Close(ctx, tenant("u", 3)); name != "" || err != nil || k.Known("dev-team").IsCurrent(tenant("u", 3)) {
		t.Errorf("without reservations: %q, %v", name, err)
	}
	if err := k.Write(ctx, tenant("u", 3), none, reservations.Reservations{}); !errors.Is(err, reservations.ErrChanged) {
		t.Errorf("reservations were made after that: %v", err)
	}
	closed, _ := k.Read(ctx, "dev-team")
	if err := k.Write(ctx, tenant("v", 1), closed, closed.ForTenant(tenant("v", 1)).Admit(admission("a", time.Second))); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if name, err := k.Close(ctx, tenant("v", 2)); name != "a" || err != nil {
			t.Errorf("while one may come: %q, %v", name, err)
		}
	}
	k.MarkSeen(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{reservations.Mark: "of-a"}, CreationTimestamp: metav1.NewTime(now)}})
	if name, err := k.Close(ctx, tenant("v", 2)); name != "" || err != nil {
		t.Errorf("after it was seen: %q, %v", name, err)
	}
}

func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	var l reservations.Reservations
	for i := range 10_000 {
		l.Names = append(l.Names, fmt.Sprintf("%020d", i))
	}
	if _, err := l.Encode(); err != nil {
		t.Errorf("10,000 names of 20 characters: %v", err)
	}
	l.Names = append(l.Names, strings.Repeat("x", reservations.MaxSize))
	if _, err := l.Encode(); err == nil || !strings.Contains(err.Error(), "cannot keep count of 10001 namespaces") {
		t.Errorf("got %v", err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "tenure-ledger-dev-team", Namespace: "flux-system"}}
	k := keeper(t, nil)
	if err := k.Client.Create(context.Background(), lease); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Read(context.Background(), "dev-team"); err == nil || !strings.Contains(err.Error(), "the Lease flux-system/tenure-ledger-dev-team does not hold the reservations of tenant dev-team, delete it") {
		t.Errorf("got %v", err)
	}
}

// FuzzDecode: what can be read can be written, and is the same again.
func FuzzDecode(f *testing.F) {
	f.Add(`{"tenant":"u","generation":3,"closed":true,"names":["a"],"admitted":[{"name":"b","request":"r","at":"2026-11-21T12:00:00Z"}]}`)
	f.Add(`{}`)
	f.Fuzz(func(t *testing.T, text string) {
		l, err := reservations.Decode(text)
		if err != nil {
			return
		}
		encoded, err := l.Encode()
		if err != nil {
			return
		}
		again, err := reservations.Decode(encoded)
		if diff := cmp.Diff(l, again, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%v (-first +again):\n%s", err, diff)
		}
	})
}
