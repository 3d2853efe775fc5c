package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// protectedAccounts returns the service accounts in tenants' namespaces whose tokens no tenant may have, and why: they
// own a tenant, or Flux applies a tenant as them.
func protectedAccounts(tenants []discovery.Tenant) map[discovery.Account]string {
	reasons, inTenants := map[discovery.Account]string{}, map[string]bool{}
	for _, t := range tenants {
		for _, namespace := range t.Namespaces {
			inTenants[namespace] = true
		}
	}
	for _, t := range tenants {
		for _, a := range t.Accounts {
			if inTenants[a.Namespace] {
				reasons[a] = "as which Flux applies tenant " + t.Name
			}
		}
		for _, o := range t.Owners {
			if a := (discovery.Account{Namespace: o.Namespace, Name: o.Name}); o.Kind == rbacv1.ServiceAccountKind && inTenants[a.Namespace] {
				reasons[a] = "which owns tenant " + t.Name
			}
		}
	}
	return reasons
}

// earlierCredentials checks that no Secret keeps a token of the protected accounts, and that no Pod runs as one: the
// rules refuse new ones, and those from before an account got its rights keep working. A user who may not list
// Secrets or Pods gets a result that says so.
func earlierCredentials(ctx context.Context, kube client.Reader, tenants []discovery.Tenant) lockdown.Result {
	row := lockdown.Result{Name: "credentials from before", OK: true, Message: "no Secret and no Pod has a token of an account that owns a tenant or applies one"}
	accounts := protectedAccounts(tenants)
	var namespaces, found []string
	for a := range accounts {
		namespaces = append(namespaces, a.Namespace)
	}
	slices.Sort(namespaces)
	for _, namespace := range slices.Compact(namespaces) {
		held, err := credentialsIn(ctx, kube, namespace, accounts)
		if apierrors.IsForbidden(err) {
			row.Message = "not read: " + err.Error()
			return row
		}
		if err != nil {
			row.OK, row.Message = false, err.Error()
			return row
		}
		found = append(found, held...)
	}
	if len(found) > 0 {
		row.OK, row.Message = false, strings.Join(found, "; ")
	}
	return row
}

// credentialsIn returns a message for each Secret and each Pod of a namespace with a token of the accounts, and the
// command that removes it.
func credentialsIn(ctx context.Context, kube client.Reader, namespace string, accounts map[discovery.Account]string) ([]string, error) {
	// The metadata names the account. The tokens stay in the API server.
	secrets := &metav1.PartialObjectMetadataList{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	tokens := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken))}
	if err := kube.List(ctx, secrets, client.InNamespace(namespace), tokens); err != nil {
		return nil, fmt.Errorf("cannot list the Secrets of namespace %s: %w", namespace, err)
	}
	var pods corev1.PodList
	if err := kube.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("cannot list the Pods of namespace %s: %w", namespace, err)
	}
	var found []string
	for i := range secrets.Items {
		s := &secrets.Items[i]
		account := discovery.Account{Namespace: namespace, Name: s.Annotations[corev1.ServiceAccountNameKey]}
		if because, is := accounts[account]; is {
			found = append(found, fmt.Sprintf("Secret %s/%s keeps a token of %s, %s: kubectl delete secret -n %s %s", namespace, s.Name, account, because, namespace, s.Name))
		}
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		account := discovery.Account{Namespace: namespace, Name: p.Spec.ServiceAccountName}
		because, is := accounts[account]
		if !is || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		found = append(found, fmt.Sprintf("Pod %s/%s runs as %s, %s: kubectl delete pod -n %s %s", namespace, p.Name, account, because, namespace, p.Name))
	}
	return found, nil
}
