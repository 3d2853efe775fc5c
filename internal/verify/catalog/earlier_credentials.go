package catalog

import (
	"context"
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/internal/discovery"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// earlierTokens returns the requests that read a token of an account which Kubernetes keeps in a Secret that
// exists. The Secret may be older than the rights of the account, and no rule refuses to read it. because says what
// the account is, such as "which owns a tenant". It returns an error if the Secrets cannot be listed.
func (e *Scenario) earlierTokens(ctx context.Context, account discovery.Account, because string) ([]request, error) {
	var secrets corev1.SecretList
	if err := e.Admin.List(ctx, &secrets, client.InNamespace(account.Namespace)); err != nil {
		return nil, fmt.Errorf("cannot list the Secrets of namespace %s: %w", account.Namespace, err)
	}
	var all []request
	for i := range secrets.Items {
		s := &secrets.Items[i]
		if ofAnAttack(s) || s.Type != corev1.SecretTypeServiceAccountToken || s.Annotations[corev1.ServiceAccountNameKey] != account.Name {
			continue
		}
		key := client.ObjectKeyFromObject(s)
		all = append(all, request{
			what: fmt.Sprintf("read Secret %s, which keeps a token of %s, %s", key, account, because),
			aimed: func(ctx context.Context, e *Scenario) error {
				return e.As.Get(ctx, key, &corev1.Secret{})
			},
		})
	}
	return all, nil
}

// earlierPods returns the requests that run commands in the existing Pods of an account. A Pod that runs keeps its
// token when the account gets more rights. It returns an error if the Pods cannot be listed.
func (e *Scenario) earlierPods(ctx context.Context, account discovery.Account, because string) ([]request, error) {
	var pods corev1.PodList
	if err := e.Admin.List(ctx, &pods, client.InNamespace(account.Namespace)); err != nil {
		return nil, fmt.Errorf("cannot list the Pods of namespace %s: %w", account.Namespace, err)
	}
	var all []request
	for i := range pods.Items {
		p := &pods.Items[i]
		if ofAnAttack(p) || p.Spec.ServiceAccountName != account.Name || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name = p.Namespace, p.Name
		all = append(all, request{
			what:  fmt.Sprintf("run commands in Pod %s/%s, which runs as %s, %s", pod.Namespace, pod.Name, account, because),
			aimed: func(ctx context.Context, e *Scenario) error { return e.tryExec(ctx, pod) },
		})
	}
	return all, nil
}

// tryExec asks to run a command in a Pod, and returns the refusal of RBAC or of a policy, or nil if there was none.
// It runs no command: the API server asks RBAC and the policies first, and then refuses a request that names no
// command and does not change the protocol.
func (e *Scenario) tryExec(ctx context.Context, pod *corev1.Pod) error {
	err := e.As.SubResource("exec").Create(ctx, object("v1", "Pod", pod.Namespace, pod.Name, nil), object("v1", "PodExecOptions", "", "", nil))
	if apierrors.IsNotFound(err) || judge(err, "").Outcome == Stopped {
		return err
	}
	if apierrors.IsBadRequest(err) || apierrors.IsInternalError(err) {
		return nil
	}
	return err
}

// firstEarlier runs an attack after the requests that use earlier credentials. They come first, so that the report has
// the command of a request that gets through, and not of a positive control before it.
func firstEarlier(earlier []request, rest func(context.Context, *Scenario) Finding) func(context.Context, *Scenario) Finding {
	if len(earlier) == 0 {
		return rest
	}
	return func(ctx context.Context, e *Scenario) Finding {
		f := requests(earlier...)(ctx, e)
		if f.Outcome != Stopped {
			return f
		}
		g := rest(ctx, e)
		if g.Outcome != Stopped {
			return g
		}
		return g.and(f)
	}
}

// ofAnAttack reports whether an attack that runs at the same time made an object.
func ofAnAttack(o client.Object) bool { return strings.HasPrefix(o.GetName(), name("")) }
