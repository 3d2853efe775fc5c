package kubeconfig

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/ui"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }

const fixture = `
{apiVersion: v1, kind: Namespace, metadata: {name: team}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: gitops, namespace: team}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: second, namespace: team}}
---
{apiVersion: v1, kind: Secret, metadata: {name: second-kubeconfig, namespace: team}}
---
{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: one}, spec: {owners: [{kind: ServiceAccount, namespace: team, name: gitops}, {kind: User, name: ann}]}}
---
{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: two}, spec: {owners: [{kind: ServiceAccount, namespace: team, name: gitops}, {kind: ServiceAccount, namespace: team, name: second}]}}
---
{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: group}, spec: {owners: [{kind: Group, name: developers}, {kind: User, name: ann}]}}
---
{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: groups}, spec: {owners: [{kind: Group, name: ops}, {kind: Group, name: developers}]}}
---
{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: people}, spec: {owners: [{kind: User, name: ann}]}}
`

// execute runs the command and returns its output and error output.
func execute(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	cmd := NewCommand(ui.IO{In: strings.NewReader(""), Out: &out, Err: &errs})
	cmd.SetArgs(args)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err = cmd.ExecuteContext(ctx)
	return out.String(), errs.String(), err
}

func TestKubeconfig(t *testing.T) {
	t.Parallel()
	c := testcluster.Shared(t)
	for _, manifests := range [][]byte{config.CRDs(), []byte(fixture)} {
		objects, err := flux.ReadObjects(manifests)
		if err != nil {
			t.Fatal(err)
		}
		if err := flux.ApplyManifests(t.Context(), c.REST, objects); err != nil {
			t.Fatal(err)
		}
	}
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, c.REST.CAData, 0o600); err != nil {
		t.Fatal(err)
	}
	base := []string{"--kubeconfig", c.Kubeconfig, "--server", c.REST.Host, "--server-ca-file", ca}

	out, said, err := execute(t.Context(), append(base, "one")...)
	if err != nil || !strings.Contains(said, "team/gitops, valid until 2") || strings.Contains(said, "token") {
		t.Fatalf("the owner of one: %q %v", said, err)
	}
	known(t, []byte(out))

	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, _, err = execute(t.Context(), append(base, "two", "--serviceaccount", "gitops", "-o", file)...); err != nil || out != "" {
		t.Fatalf("into a file: %q %v", out, err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	known(t, content)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read the file: %v %v", info.Mode(), err)
	}

	kube, err := kubernetes.NewForConfig(c.REST)
	if err != nil {
		t.Fatal(err)
	}
	secret := append(base, "--namespace", "team", "--serviceaccount", "gitops", "--write-secret", "--kubeconfig-secret-key", "value")
	for range 2 { // the second run updates the command's own Secret
		if out, _, err = execute(t.Context(), secret...); err != nil || out != "" {
			t.Fatalf("into a Secret: %q %v", out, err)
		}
	}
	s, err := kube.CoreV1().Secrets("team").Get(t.Context(), "gitops-kubeconfig", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	known(t, s.Data["value"])

	// The ConfigMap of the proxy provides the default CA.
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "flux-system"}}
	if _, err := kube.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	says := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "tenure-proxy-ca"}, Data: map[string]string{"ca.crt": string(c.REST.CAData)}}
	if _, err := kube.CoreV1().ConfigMaps("flux-system").Create(t.Context(), says, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if out, _, err = execute(t.Context(), append(base, "one", "--server-ca-file", "")...); err != nil {
		t.Fatal(err)
	}
	known(t, []byte(out))

	// People get certificates of the API server, in the groups that own the Tenant.
	people := []string{"--kubeconfig", c.Kubeconfig, "group", "--duration", "10m", "--as-user"}
	for user, groups := range map[string][]string{"ann": nil, "bob": {"developers"}} {
		out, said, err := execute(t.Context(), append(people, user)...)
		if err != nil || !strings.Contains(said, "kubeconfig of "+user) || !strings.Contains(said, "valid until 2") {
			t.Fatalf("%s: %q %v", user, said, err)
		}
		info := identity(t, []byte(out))
		if want := append(groups, "system:authenticated"); info.Username != user || !slices.Equal(info.Groups, want) {
			t.Errorf("want %s in the groups %v, got %s in %v", user, want, info.Username, info.Groups)
		}
	}
	out, _, err = execute(t.Context(), "--kubeconfig", c.Kubeconfig, "groups", "--as-user", "bob", "--group", "ops")
	if err != nil {
		t.Fatal(err)
	}
	if info := identity(t, []byte(out)); !slices.Equal(info.Groups, []string{"ops", "system:authenticated"}) {
		t.Errorf("want bob in group ops alone, got %v", info.Groups)
	}
	if left, err := kube.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{}); err != nil || slices.ContainsFunc(left.Items, func(r certificatesv1.CertificateSigningRequest) bool { return strings.HasPrefix(r.Name, "tenure-") }) {
		t.Errorf("requests for certificates are left: %v, %v", left, err)
	}

	testLogin(t, base, ca)

	for _, tc := range []struct {
		reason string
		args   []string
		want   string
	}{
		{"a person who owns nothing", []string{"two", "--as-user", "bob"}, "user bob does not own Tenant two"},
		{"a person in one of two groups", []string{"groups", "--as-user", "bob"}, "cannot choose between the groups that own Tenant groups: developers, ops"},
		{"a group that does not own it", []string{"groups", "--as-user", "bob", "--group", "other"}, "group other does not own Tenant groups"},
		{"a group of nobody", []string{"groups", "--group", "ops"}, "--group is for --as-user"},
		{"a name of Kubernetes", []string{"group", "--as-user", "system:admin"}, "begin with system:"},
		{"a person and an account", []string{"group", "--as-user", "ann", "--serviceaccount", "gitops"}, "none of the others can be"},
		{"a person, through a proxy that is not trusted", []string{"group", "--as-user", "ann", "--server-ca-file", ""}, "needs --server-ca-file"},
		{"nobody is named", nil, "cannot choose an account for the kubeconfig"},
		{"half an account", []string{"--namespace", "team"}, "cannot choose an account for the kubeconfig"},
		{"no such tenant", []string{"none"}, "cannot read Tenant none"},
		{"nobody who could have a token", []string{"people"}, "no owner of Tenant people is a ServiceAccount"},
		{"an account that does not own it", []string{"one", "--serviceaccount", "second"}, "no owner of Tenant one is a ServiceAccount second"},
		{"two", []string{"two"}, "cannot choose between 2 ServiceAccounts"},
		{"no such account", []string{"-n", "team", "--serviceaccount", "none"}, "cannot get a token of account team/none"},
		{"too short", []string{"one", "--duration", "1m"}, "give --duration between 10m0s and 24h0m0s"},
		{"no TLS", []string{"one", "--server", "http://proxy"}, "write https://HOST:PORT"},
		{"no ConfigMap to trust", []string{"one", "--server-ca-file", "", "--server-tls-secret-namespace", "team"}, "cannot read the CA certificates from ConfigMap team/tenure-proxy-ca"},
		{"no Secret to trust", []string{"one", "--server-ca-file", "", "--server-tls-secret-name", "tls"}, "cannot read the CA certificates from Secret flux-system/tls"},
		{"somebody else's Secret", []string{"-n", "team", "--serviceaccount", "second", "--write-secret"}, "there is one that this command did not write"},
		{"two places", []string{"one", "-o", file, "--write-secret"}, "none of the others can be"},
	} {
		out, _, err := execute(t.Context(), append(append([]string{}, base...), tc.args...)...)
		if err == nil || !strings.Contains(err.Error(), tc.want) || out != "" {
			t.Errorf("%s: want an error that says %q, got %v (output %q)", tc.reason, tc.want, err, out)
		}
	}
}

// known fails the test unless the API server authenticates a kubeconfig as the account.
func known(t *testing.T, content []byte) {
	t.Helper()
	if info := identity(t, content); info.Username != "system:serviceaccount:team:gitops" {
		t.Errorf("the kubeconfig is not the account's: %v", info)
	}
}

// identity returns the user that the API server authenticates with a kubeconfig.
func identity(t *testing.T, content []byte) authenticationv1.UserInfo {
	t.Helper()
	rest, err := clientcmd.RESTConfigFromKubeConfig(content)
	if err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(rest)
	if err != nil {
		t.Fatal(err)
	}
	review, err := kube.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo
}
