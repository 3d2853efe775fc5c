package kubeconfig

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const providerURL = "https://dex.example.com"

// TestLoginFlags checks the flags of --login before a cluster is asked.
func TestLoginFlags(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		args   []string
		want   string
	}{
		{"a provider without TLS", []string{"--oidc-issuer-url", "http://dex.example.com", "--oidc-client-id", "x"}, "as the address of a provider"},
		{"a provider without a host", []string{"--oidc-issuer-url", "https:///dex", "--oidc-client-id", "x"}, "as the address of a provider"},
		{"a provider with a password", []string{"--oidc-issuer-url", "https://a:b@dex.example.com", "--oidc-client-id", "x"}, "as the address of a provider"},
		{"the discovery document instead of the issuer", []string{"--oidc-issuer-url", providerURL + "/.well-known/openid-configuration", "--oidc-client-id", "x"}, "as the address of a provider"},
		{"no client", []string{"--oidc-issuer-url", providerURL}, "cannot write the login for https://dex.example.com: the name of the client is missing"},
		{"a client without a provider", []string{"--oidc-client-id", "x"}, "cannot tell where people log in"},
		{"a scope without a provider", []string{"--oidc-extra-scope", "groups"}, "cannot tell where people log in"},
		{"a client secret", []string{"--oidc-issuer-url", providerURL, "--oidc-client-id", "x", "--oidc-client-secret", "y"}, "cannot write a client secret"},
		{"a person's certificate", []string{"--as-user", "ann"}, "none of the others can be"},
		{"a group of a certificate", []string{"--group", "ops"}, "none of the others can be"},
		{"an account", []string{"--serviceaccount", "gitops"}, "none of the others can be"},
		{"a namespace of an account", []string{"--namespace", "team"}, "none of the others can be"},
		{"a Secret", []string{"--write-secret"}, "none of the others can be"},
		{"a lifetime, which the provider decides", []string{"--duration", "1h"}, "none of the others can be"},
	} {
		out, _, err := execute(t.Context(), append([]string{"one", "--login"}, tc.args...)...)
		if err == nil || !strings.Contains(err.Error(), tc.want) || out != "" {
			t.Errorf("%s: want an error that says %q, got %v (output %q)", tc.reason, tc.want, err, out)
		}
	}
	if _, _, err := execute(t.Context(), "one", "--oidc-issuer-url", providerURL); err == nil || !strings.Contains(err.Error(), "are for --login") {
		t.Errorf("a provider without --login: %v", err)
	}
	if _, _, err := execute(t.Context(), "--login"); err == nil || !strings.Contains(err.Error(), "cannot choose an account for the kubeconfig") {
		t.Errorf("--login without a tenant: %v", err)
	}
}

// testLogin makes kubeconfigs with --login on the cluster of TestKubeconfig. Base are the flags of the
// cluster and of the proxy, and ca is a file with a certificate.
func testLogin(t *testing.T, base []string, ca string) {
	t.Helper()
	out, said, err := execute(t.Context(), append(base, "group", "--login", "--oidc-issuer-url", providerURL, "--oidc-client-id", "kubernetes",
		"--oidc-extra-scope", "groups", "--oidc-extra-scope", "email", "--oidc-ca-file", ca)...)
	if err != nil || !strings.Contains(said, "Tenant group for Group developers, User ann; it has no secret") {
		t.Fatalf("with a provider: %q %v", said, err)
	}
	content, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	got := authOf(t, out)
	want := &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: "kubectl", InteractiveMode: "IfAvailable", InstallHint: got.Exec.InstallHint,
		Args: []string{
			"oidc-login", "get-token", "--oidc-issuer-url=" + providerURL, "--oidc-client-id=kubernetes",
			"--oidc-extra-scope=groups", "--oidc-extra-scope=email", "--certificate-authority-data=" + base64.StdEncoding.EncodeToString(content),
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" || !strings.Contains(got.Exec.InstallHint, "kubectl krew install oidc-login") {
		t.Errorf("with a provider (-want +got):\n%s", diff)
	}

	// An admin of a managed cluster, whose own variables nobody else gets.
	admin := filepath.Join(t.TempDir(), "kubeconfig")
	plugin := &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1beta1", Command: "sh", InteractiveMode: "Never", InstallHint: "install it", ProvideClusterInfo: true,
		Args: []string{"-c", adminPlugin(t, base[1])}, Env: []clientcmdapi.ExecEnvVar{{Name: "AWS_PROFILE", Value: "admin"}},
	}
	config, err := clientcmd.LoadFromFile(base[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		*user = clientcmdapi.AuthInfo{Exec: plugin}
	}
	if err := clientcmd.WriteToFile(*config, admin); err != nil {
		t.Fatal(err)
	}
	out, said, err = execute(t.Context(), append(append([]string{"--kubeconfig", admin}, base[2:]...), "group", "--login")...)
	if err != nil || !strings.HasSuffix(said, "; left out the variables of your own login: AWS_PROFILE\n") {
		t.Fatalf("with the admin's plugin: %q %v", said, err)
	}
	want = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: plugin.APIVersion, Command: plugin.Command, InteractiveMode: plugin.InteractiveMode, InstallHint: plugin.InstallHint,
		ProvideClusterInfo: true, Args: plugin.Args,
	}}
	if diff := cmp.Diff(want, authOf(t, out)); diff != "" {
		t.Errorf("with the admin's plugin (-want +got):\n%s", diff)
	}

	for _, tc := range []struct {
		reason string
		args   []string
		want   string
	}{
		{"an admin with a certificate", []string{"group", "--login"}, "your own kubeconfig has no login plugin"},
		{"a tenant that no person owns", []string{"two", "--login"}, "no person owns Tenant two"},
		{"no such tenant", []string{"none", "--login"}, "cannot read Tenant none"},
		{"no authority of the provider", []string{"group", "--login", "--oidc-issuer-url", providerURL, "--oidc-client-id", "x", "--oidc-ca-file", "/none"}, "cannot read --oidc-ca-file"},
		{"a kubeconfig as the authority", []string{"group", "--login", "--oidc-issuer-url", providerURL, "--oidc-client-id", "x", "--oidc-ca-file", base[1]}, "does not begin with a certificate"},
	} {
		out, _, err := execute(t.Context(), append(append([]string{}, base...), tc.args...)...)
		if err == nil || !strings.Contains(err.Error(), tc.want) || out != "" {
			t.Errorf("%s: want an error that says %q, got %v (output %q)", tc.reason, tc.want, err, out)
		}
	}
}

// adminPlugin returns a script that prints the client certificate of a kubeconfig as a login plugin
// does.
func adminPlugin(t *testing.T, kubeconfig string) string {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		t.Fatal(err)
	}
	line := func(pem []byte) string { return strings.ReplaceAll(string(pem), "\n", `\n`) }
	return `cat <<'END'
{"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": {"clientCertificateData": "` + line(config.CertData) + `", "clientKeyData": "` + line(config.KeyData) + `"}}
END
`
}

// authOf returns the only user of a kubeconfig.
func authOf(t *testing.T, content string) *clientcmdapi.AuthInfo {
	t.Helper()
	config, err := clientcmd.Load([]byte(content))
	if err != nil {
		t.Fatal(err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil || config.AuthInfos[current.AuthInfo] == nil || len(config.AuthInfos) != 1 {
		t.Fatalf("the kubeconfig has no current user of its own:\n%s", content)
	}
	auth := *config.AuthInfos[current.AuthInfo]
	auth.Extensions = nil
	return &auth
}

// TestOwnPlugin checks which plugins of an admin --login copies.
func TestOwnPlugin(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, command, want string
	}{
		{"EKS", "aws --region eu-west-1 eks get-token --cluster-name prod --output json", ""},
		{"GKE", "gke-gcloud-auth-plugin", ""},
		{"AKS", "kubelogin get-token --environment AzurePublicCloud --server-id 6dae42f8 --client-id 80faf920 --tenant-id 1 --login devicecode", ""},
		{"a public client of kubelogin", "kubectl oidc-login get-token --oidc-issuer-url=https://dex.example.com --oidc-client-id=kubernetes --token-cache-storage=keyring", ""},
		{"a client with a secret", "kubectl oidc-login get-token --oidc-client-id=kubernetes --oidc-client-secret=s", "its argument --oidc-client-secret is a secret"},
		{"a service principal", "kubelogin get-token --login spn --client-secret s", "its argument --client-secret is a secret"},
		{"a password", "kubectl oidc-login get-token --username=ann --password=s", "its argument --password is a secret"},
		{"a token", "login --token=s", "its argument --token is a secret"},
	} {
		words := strings.Fields(tc.command)
		got, err := ownPlugin(&clientcmdapi.ExecConfig{Command: words[0], Args: words[1:], Env: []clientcmdapi.ExecEnvVar{{Name: "X", Value: "s"}}})
		if tc.want != "" {
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: want an error that says %q, got %v", tc.reason, tc.want, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.reason, err)
			continue
		}
		if diff := cmp.Diff(&clientcmdapi.ExecConfig{Command: words[0], Args: words[1:]}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
