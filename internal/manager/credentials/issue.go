package credentials

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/tenancy/credentials"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// errTaken is returned if a Secret with the name exists that the manager did not create. The
// manager refers to its own Secrets only.
var errTaken = errors.New("a Secret with this name exists, and the manager did not create it: remove it")

// issue writes the credentials of an account.
type issue struct {
	*Reconciler
	plan     *credentials.Plan
	account  *corev1.ServiceAccount
	target   credentials.Target
	lifetime time.Duration
	// platform are the namespaces of the platform.
	platform []string
}

// holder is the account whose token is in the Secret of a namespace.
type holder struct {
	types.NamespacedName
	uid types.UID
	// bound is the Secret that tokens are bound to: its deletion invalidates them.
	bound types.UID
}

// all writes the credentials that are due, in the account's own namespace first, and returns
// the time at which the next credential is due.
func (i *issue) all(ctx context.Context) (ctrl.Result, error) {
	next, err := i.place(ctx, i.plan.Account.Namespace)
	if problem := stuck(err); problem != nil {
		i.warn(i.account, problem)
		return ctrl.Result{RequeueAfter: retryInterval}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	var failed []error
	for _, namespace := range i.plan.Copies {
		renew, err := i.place(ctx, namespace)
		problem := stuck(err)
		switch {
		case problem != nil:
			i.warn(i.account, fmt.Errorf("namespace %s: %w", namespace, problem))
			renew = i.Now().Add(retryInterval)
		case apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			continue // it is being deleted
		case err != nil:
			failed = append(failed, err)
			continue
		}
		if renew.Before(next) {
			next = renew
		}
	}
	if len(failed) > 0 {
		// An error in one namespace does not stop the credentials of the others.
		return ctrl.Result{}, failed[0]
	}
	return ctrl.Result{RequeueAfter: max(next.Sub(i.Now()), time.Second)}, nil
}

// stuck returns an error that a person has to fix, and nil for other errors. The API server
// returns the same status for an exceeded quota and a missing right.
func stuck(err error) error {
	switch {
	case errors.Is(err, errTaken), errors.Is(err, credentials.ErrForeign):
		return err
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		return fmt.Errorf("%w: %w", credentials.ErrQuota, err)
	}
	return nil
}

// place writes the credential of a namespace if it must be created or renewed.
func (i *issue) place(ctx context.Context, namespace string) (time.Time, error) {
	if err := i.record(ctx, namespace, false); err != nil {
		return time.Time{}, err
	}
	uid, err := i.holder(ctx, namespace)
	if err != nil {
		return time.Time{}, err
	}
	if err := i.rights(ctx, namespace); err != nil {
		return time.Time{}, err
	}
	meta, err := i.secret(ctx, namespace, i.plan.Secret)
	if err != nil {
		return time.Time{}, err
	}
	if meta == nil {
		// Tokens are bound to the Secret, so it is created first. An existing Secret of another
		// author is never used.
		empty := i.plan.Filled(namespace, nil, credentials.Token{}, "")
		if err := i.Client.Create(ctx, empty, client.FieldOwner(tenantnamespace.FieldManager)); err != nil {
			return time.Time{}, fmt.Errorf("cannot make Secret %s/%s: %w", namespace, i.plan.Secret, err)
		}
		meta = &metav1.PartialObjectMetadata{ObjectMeta: empty.ObjectMeta}
	}
	return i.write(ctx, holder{i.plan.In(namespace), uid, meta.UID}, meta)
}

// holder returns the UID of the account whose token a namespace gets. It creates the account
// in namespaces other than the requesting account's. It refuses an account that the manager
// did not create, which may have rights that readers of the Secret must not get.
func (i *issue) holder(ctx context.Context, namespace string) (types.UID, error) {
	if namespace == i.plan.Account.Namespace {
		return i.plan.UID, nil
	}
	have, wanted := &corev1.ServiceAccount{}, i.plan.Stand(namespace)
	err := i.Client.Get(ctx, client.ObjectKeyFromObject(wanted), have)
	if apierrors.IsNotFound(err) {
		err = i.Client.Create(ctx, wanted, client.FieldOwner(tenantnamespace.FieldManager))
		if err == nil {
			return wanted.UID, nil
		}
		if apierrors.IsAlreadyExists(err) { // the cache is behind
			err = i.APIReader.Get(ctx, client.ObjectKeyFromObject(wanted), have)
		}
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot make account %s/%s: %w", namespace, wanted.Name, err)
	case tenancy.Brought(have, i.platform):
		return "", errors.Join(credentials.ErrForeign, i.unplace(ctx, namespace))
	}
	return have.UID, nil
}

// record writes the RoleBinding with the manager's rights in a namespace.
func (i *issue) record(ctx context.Context, namespace string, placed bool) error {
	return i.apply(ctx, i.plan.Record(namespace, i.Manager, placed))
}

// rights writes the RoleBinding of a namespace's account. In the account's own namespace it
// keeps a RoleBinding with this name that the manager did not create: its author decides the
// account's rights.
func (i *issue) rights(ctx context.Context, namespace string) error {
	role, binding := i.plan.Impersonator(namespace)
	have := &rbacv1.RoleBinding{}
	err := i.Client.Get(ctx, client.ObjectKeyFromObject(binding), have)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot read RoleBinding %s/%s: %w", binding.Namespace, binding.Name, err)
	}
	if err != nil || !tenancy.UpToDate(have, binding) {
		if err := tenantnamespace.Apply(ctx, i.Client, role); err != nil {
			return fmt.Errorf("cannot apply Role %s/%s: %w", role.Namespace, role.Name, err)
		}
		if err := i.apply(ctx, binding); err != nil {
			return err
		}
	}
	if !i.plan.Bound || namespace != i.plan.Account.Namespace {
		return nil
	}
	own := i.plan.Rights()
	err = i.Client.Get(ctx, client.ObjectKeyFromObject(own), have)
	if apierrors.IsNotFound(err) {
		err = i.Client.Create(ctx, own, client.FieldOwner(tenantnamespace.FieldManager))
		if err == nil || apierrors.IsAlreadyExists(err) {
			return nil // the cache does not show it yet, and another client may have created it: retry with its event
		}
	}
	if err != nil {
		return fmt.Errorf("cannot make RoleBinding %s/%s: %w", own.Namespace, own.Name, err)
	}
	if !credentials.Ours(have, i.plan.Account) {
		return nil
	}
	return i.apply(ctx, own)
}

// apply writes a RoleBinding if it differs from the desired one.
func (i *issue) apply(ctx context.Context, wanted *rbacv1.RoleBinding) error {
	have := &rbacv1.RoleBinding{}
	err := i.Client.Get(ctx, client.ObjectKeyFromObject(wanted), have)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot read RoleBinding %s/%s: %w", wanted.Namespace, wanted.Name, err)
	}
	if err == nil && tenancy.UpToDate(have, wanted) {
		return nil
	}
	if err := tenantnamespace.Apply(ctx, i.Client, wanted); err != nil {
		return fmt.Errorf("cannot apply RoleBinding %s/%s: %w", wanted.Namespace, wanted.Name, err)
	}
	return nil
}

// write writes a new kubeconfig into a Secret if the old one must be renewed, and returns the
// time of the next renewal. The old token stays valid until it expires.
func (i *issue) write(ctx context.Context, who holder, have *metav1.PartialObjectMetadata) (time.Time, error) {
	namespace := who.Namespace
	inputs := credentials.Inputs(i.target, who.NamespacedName, who.uid, who.bound, i.lifetime)
	if !credentials.Ours(have, i.plan.Account) {
		return time.Time{}, errors.Join(errTaken, i.unplace(ctx, namespace))
	}
	if renew := credentials.Due(have.Annotations, inputs, i.Now()); !renew.IsZero() {
		return renew, i.record(ctx, namespace, true)
	}
	secret, token, err := i.fresh(ctx, who, inputs)
	if err != nil {
		return time.Time{}, err
	}
	// The UID protects a new Secret with the same name.
	secret.UID = have.UID
	if err := tenantnamespace.Apply(ctx, i.Client, secret); err != nil {
		return time.Time{}, fmt.Errorf("cannot write Secret %s/%s: %w", namespace, i.plan.Secret, err)
	}
	if namespace == i.plan.Account.Namespace {
		i.Events.Eventf(i.account, nil, corev1.EventTypeNormal, "KubeconfigIssued", "IssueKubeconfig",
			"Secret %s has a kubeconfig that is good until %s", i.plan.Secret, token.Expires.UTC().Format(time.RFC3339))
	}
	return token.Renew(), i.record(ctx, namespace, true)
}

// unplace removes the name of a Secret that the manager did not create from the record.
func (i *issue) unplace(ctx context.Context, namespace string) error {
	have := &rbacv1.RoleBinding{}
	wanted := i.plan.Record(namespace, i.Manager, false)
	if err := i.Client.Get(ctx, client.ObjectKeyFromObject(wanted), have); err != nil {
		return client.IgnoreNotFound(err)
	}
	if have.Annotations[tenancy.AnnotationSecret] == "" {
		return nil
	}
	return tenantnamespace.Apply(ctx, i.Client, wanted)
}

// fresh returns a Secret with a new token.
func (i *issue) fresh(ctx context.Context, who holder, inputs string) (*corev1.Secret, credentials.Token, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: new(int64(i.lifetime / time.Second)),
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: i.plan.Secret, UID: who.bound},
	}}
	issued := i.Now()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: who.Namespace, Name: who.Name, UID: who.uid}}
	if err := i.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, credentials.Token{}, fmt.Errorf("cannot get a token of account %s: %w", who, err)
	}
	token := credentials.Token{Issued: issued, Expires: request.Status.ExpirationTimestamp.Time}
	kubeconfig, err := credentials.Kubeconfig(i.target, who.NamespacedName, who.Namespace, request.Status.Token)
	if err != nil {
		return nil, credentials.Token{}, err
	}
	return i.plan.Filled(who.Namespace, kubeconfig, token, inputs), token, nil
}

// secret reads the metadata of a Secret; nil if there is none.
func (r *Reconciler) secret(ctx context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, meta)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot look at Secret %s/%s: %w", namespace, name, err)
	}
	return meta, nil
}
