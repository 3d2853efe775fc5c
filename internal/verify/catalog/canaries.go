package catalog

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// VictimNamespace is the name of the namespace of an invented tenant, which a run creates as the target of
// attacks.
const VictimNamespace = "tenure-canary"

// Victim names a namespace and its objects, which a tenant must not reach.
type Victim struct {
	// Namespace is the name of the namespace.
	Namespace string
	// Account is a service account with all rights in the namespace.
	Account string
	// Secret and ConfigMap are the names of objects in the namespace.
	Secret, ConfigMap string
}

// victimLabel marks the namespace that a run created. A namespace with this name and without the label
// belongs to the fleet, and must not be removed.
const victimLabel = "tenure.dev/victim"

// newVictim creates the namespace, and returns a function that removes it. It reuses the namespace of an
// earlier run. It returns an error if the fleet has a namespace with this name, or if it cannot create an
// object.
func newVictim(ctx context.Context, admin client.Client) (Victim, func(), error) {
	there := &corev1.Namespace{}
	err := admin.Get(ctx, client.ObjectKey{Name: VictimNamespace}, there)
	if err == nil && there.Labels[victimLabel] == "" {
		return Victim{}, nil, fmt.Errorf("cannot attack this fleet: it has a namespace %s, and the target of the attacks needs this name", VictimNamespace)
	}
	if client.IgnoreNotFound(err) != nil {
		return Victim{}, nil, fmt.Errorf("cannot look for namespace %s: %w", VictimNamespace, err)
	}
	v := Victim{Namespace: VictimNamespace, Account: "canary", Secret: "canary", ConfigMap: "canary"}
	in := metav1.ObjectMeta{Namespace: v.Namespace, Name: "canary"}
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v.Namespace, Labels: map[string]string{victimLabel: "true"}}},
		&corev1.ServiceAccount{ObjectMeta: in},
		&corev1.Secret{ObjectMeta: in, StringData: map[string]string{"canary": "sings"}},
		&corev1.ConfigMap{ObjectMeta: in, Data: map[string]string{"canary": "sings"}},
		&rbacv1.RoleBinding{
			ObjectMeta: in,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: v.Namespace, Name: "canary"}},
		},
	}
	remove := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupPatience)
		defer cancel()
		_ = admin.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v.Namespace}})
	}
	for _, o := range objects {
		if err := admin.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			remove()
			return Victim{}, nil, errors.Join(errors.New("cannot make the namespace that is attacked"), fmt.Errorf("%T: %w", o, err))
		}
	}
	return v, remove, nil
}
