package catalog

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// The victim is ours: it is made and removed, and one of the fleet's is left alone.
func TestVictim(t *testing.T) {
	t.Parallel()
	namespace := func(c client.Client) error {
		return c.Get(t.Context(), client.ObjectKey{Name: VictimNamespace}, &corev1.Namespace{})
	}
	e := newFakeEnv(interceptor.Funcs{})
	if _, _, err := newVictim(t.Context(), e.Admin); err != nil {
		t.Fatal(err)
	}
	_, remove, err := newVictim(t.Context(), e.Admin)
	if err != nil {
		t.Fatalf("one that was kept is not used again: %v", err)
	}
	remove()
	if err := namespace(e.Admin); !apierrors.IsNotFound(err) {
		t.Errorf("it is not removed: %v", err)
	}
	theirs := newFakeEnv(interceptor.Funcs{}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: VictimNamespace}})
	if _, _, err := newVictim(t.Context(), theirs.Admin); err == nil || !strings.Contains(err.Error(), "it has a namespace "+VictimNamespace) {
		t.Errorf("a namespace of the fleet's: got %v", err)
	}
	if err := namespace(theirs.Admin); err != nil {
		t.Errorf("a namespace of the fleet's was touched: %v", err)
	}
}
