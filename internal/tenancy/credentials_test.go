package tenancy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCredentialsIn(t *testing.T) {
	t.Parallel()
	record := func(namespace, managed, label, account, secret string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Labels: map[string]string{LabelManaged: managed, LabelCredentials: label},
			Annotations: map[string]string{AnnotationAccount: account, AnnotationSecret: secret},
		}}
	}
	for _, tc := range []struct {
		reason string
		record *rbacv1.RoleBinding
		want   Credentials
	}{
		{"the account's own namespace", record("apps", ManagedValue, "home", "apps/gitops", "gitops-kubeconfig"), Credentials{KubeConfigs: []string{"gitops-kubeconfig"}, Accounts: []string{"gitops"}}},
		{"an account that stands for another elsewhere", record("apps", ManagedValue, "copy", "home/gitops", "gitops-kubeconfig"),
			Credentials{KubeConfigs: []string{"gitops-kubeconfig"}, Accounts: []string{"gitops"}, Stands: []string{"gitops"}}},
		{"the Secret is not there yet", record("apps", ManagedValue, "home", "apps/gitops", ""), Credentials{}},
		{"somebody else's", record("apps", "me", "home", "apps/gitops", "gitops-kubeconfig"), Credentials{}},
		{"another binding of the manager's", record("apps", ManagedValue, "", "apps/gitops", "gitops-kubeconfig"), Credentials{}},
		{"another namespace's", record("other", ManagedValue, "home", "other/gitops", "gitops-kubeconfig"), Credentials{}},
	} {
		got := CredentialsIn("apps", []*rbacv1.RoleBinding{tc.record})
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
		}
		given := v1alpha1.TenantParametersSpec{}
		given.Tenants.KubeConfigs = []string{"gitops-kubeconfig", "mine"}
		allowed := got.Allow(given).Tenants
		if diff := cmp.Diff([]string{"gitops-kubeconfig", "mine"}, allowed.KubeConfigs); diff != "" {
			t.Errorf("%s: a name is lost or there twice: %s", tc.reason, diff)
		}
		if diff := cmp.Diff(tc.want.Accounts, allowed.Accounts.Reconcilers); diff != "" {
			t.Errorf("%s: accounts: %s", tc.reason, diff)
		}
	}
}
