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

// VictimNamespace is the namespace of an invented tenant, created for the attacks.
const VictimNamespace = "tenure-canary"

// Victim is a namespace with objects that a tenant must not reach.
type Victim struct {
	// Namespace is its name.
	Namespace string
	// Account is a service account with all rights in the namespace.
	Account string
	// Secret and ConfigMap are objects in it.
	Secret, ConfigMap string
}

// victimLabel marks the namespace that we made: whatever else has its name is the
// fleet's, and must not be removed.
const victimLabel = "tenure.dev/victim"

// newVictim creates the namespace, and returns a function that removes it. It reuses a
// namespace that an earlier run kept.
func newVictim(ctx context.Context, admin client.Client) (Victim, func(), error) {
	there := &corev1.Namespace{}
	err := admin.Get(ctx, client.ObjectKey{Name: VictimNamespace}, there)
	if err == nil && there.Labels[victimLabel] == "" {
		return Victim{}, nil, fmt.Errorf("cannot attack this fleet: it has a namespace %s, which is the name of the one that attacks are aimed at", VictimNamespace)
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
