package attack

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func init() {
	register(Attack{
		ID: "W2", Via: API,
		Title:      "reads what belongs to another tenant",
		Controls:   []string{"RBAC"},
		References: []string{"MTB TI-2"},
		Fix:        Fix{Advice: "bind the tenant's account with RoleBindings in its own namespaces only", Rights: true},
		Run: requests(
			request{
				what: "read a Secret of another tenant",
				aimed: func(ctx context.Context, e *Env) error {
					return e.As.Get(ctx, client.ObjectKey{Namespace: e.Victim.Namespace, Name: e.Victim.Secret}, &corev1.Secret{})
				},
			},
			request{
				what: "list the ConfigMaps of another tenant",
				aimed: func(ctx context.Context, e *Env) error {
					return e.As.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(e.Victim.Namespace))
				},
				own: func(ctx context.Context, e *Env) error {
					return e.As.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(e.Namespace))
				},
			},
			request{
				what: "list the Secrets of the whole cluster",
				aimed: func(ctx context.Context, e *Env) error {
					return e.As.List(ctx, &corev1.SecretList{})
				},
			},
		),
	})
}
