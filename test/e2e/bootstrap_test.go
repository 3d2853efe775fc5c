package e2e

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

const fleetURL = "https://git.example.com/acme/fleet"

// bootstrapped is a cluster, and the program that bootstraps it.
type bootstrapped struct {
	run
	program string
}

// bootstrap starts `tenure bootstrap git` against the cluster, in its network. A
// word NAME=VALUE is a variable.
func (r bootstrapped) bootstrap(args ...string) *session {
	r.t.Helper()
	return r.bootstrapBy("git", append(slices.Clone(args), "--allow=helm=https://charts.example.com")...)
}

// bootstrapBy starts another command of `tenure bootstrap`.
func (r bootstrapped) bootstrapBy(provider string, args ...string) *session {
	r.t.Helper()
	cmd := command(r.t, r.t.TempDir(), append([]string{"bootstrap", provider, "--kubeconfig", r.Kubeconfig, "--path", "clusters/staging"},
		slices.DeleteFunc(slices.Clone(args), isVariable)...)...)
	cmd.Path = r.program
	cmd.Env = append(cmd.Env, r.Network.Env(nil, "")...)
	cmd.Env = append(cmd.Env, "GIT_PASSWORD=", "SSH_AUTH_SOCK=", "HOME="+r.t.TempDir())
	cmd.Env = append(cmd.Env, slices.DeleteFunc(slices.Clone(args), func(s string) bool { return !isVariable(s) })...)
	return launch(r.t, cmd)
}

// authority returns the file with the authority of the cluster's network.
func (r run) authority() string {
	for _, variable := range r.Network.Env(nil, "") {
		if file, ok := strings.CutPrefix(variable, "SSL_CERT_FILE="); ok {
			return file
		}
	}
	r.t.Fatal("the network has no authority")
	return ""
}

// as returns a kubeconfig that impersonates a user without rights.
func (r run) as(user string) string {
	r.t.Helper()
	content, err := os.ReadFile(r.Kubeconfig)
	if err != nil {
		r.t.Fatal(err)
	}
	config, err := clientcmd.Load(content)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, info := range config.AuthInfos {
		info.Impersonate = user
	}
	file := filepath.Join(r.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		r.t.Fatal(err)
	}
	return file
}

func isVariable(s string) bool { return !strings.HasPrefix(s, "-") && strings.Contains(s, "=") }

// testReleaseByBootstrap connects a new cluster with the example fleet, which was not bootstrapped
// before: over HTTPS by a run that is killed after its push and a second run that completes
// it, then over SSH. Then it upgrades Tenure by a change of the fleet.
func testReleaseByBootstrap(t *testing.T, published releases) {
	e := copyExample(t)
	programs := published.programs(t)
	published.pull(t, programs, earlierVersion)
	r := bootstrapped{run{testcluster.Start(t, localcluster.Options{BinDir: programs, Apply: []string{e.bootstrap}, Maps: parseMaps(t,
		fleetURL+"#main="+e.platform,
		"https://git.example.com/acme/other#main="+t.TempDir(),
		"https://git.example.com/acme/dev-team#main="+e.devTeam,
		"https://git.example.com/acme/billing#main="+e.billing,
		"https://charts.example.com="+e.charts,
	), Private: []network.Private{{URL: fleetURL, Credentials: githost.Credentials{Token: "t0ken"}}}}), t}, filepath.Join(published.tenure[earlierVersion], "tenure")}
	head := func() string {
		revision, _ := r.Git.Head(fleetURL, "main")
		return revision
	}
	before := head()
	image := published.host + "/acme/tenure-server:" + earlierVersion
	token := []string{"GIT_PASSWORD=t0ken", "--url=" + fleetURL, "--token-auth", "--ca-file", r.authority(), "--manager-image", image, "--proxy", "--proxy-host", "proxy.example.com", "--egress-host", "kms.example.com:8200"}

	r.bootstrap("GIT_PASSWORD=t0ken", "--url=https://git.example.com/acme/none", "--token-auth").
		fails("a repository that is not there", patience, "repository is not found", "check --url")
	r.bootstrap("GIT_PASSWORD=t0ken", "--url=https://none.example.com/acme/fleet", "--token-auth").
		fails("a host that is not there", patience, "cannot clone https://none.example.com/acme/fleet")
	r.bootstrap(append([]string{"GIT_PASSWORD=wr0ng"}, token[1:]...)...).
		fails("a token that the host does not know", patience, "credentials are refused")
	nobody := r.bootstrap(append(token, "--kubeconfig", r.as("jane"))...)
	nobody.fails("a user without rights", patience, "by jane", "cluster admin")
	if head() != before {
		t.Error("a bootstrap that fails has pushed")
	}

	began := time.Now()
	killed := r.bootstrap(token...)
	killed.says(0, "✓ the manifests are pushed", patience)
	killed.signal(syscall.SIGKILL)
	killed.exits(-1, moment)
	pushed := head()
	if pushed == before {
		t.Fatal("nothing was pushed")
	}
	completed := r.bootstrap(token...)
	completed.exits(0, patience)
	t.Logf("completed after %.1fs:\n%s", time.Since(began).Seconds(), completed.out.String())
	if head() != pushed {
		t.Error("the second run has pushed too")
	}
	testwait.For(t, "the first tenant to deliver", patience, func() (bool, string) {
		ready := r.kubectl("", "get", "kustomizations.kustomize.toolkit.fluxcd.io", "-A", "-l", "toolkit.fluxcd.io/tenant", "-o", `jsonpath={range .items[*]}{.metadata.namespace} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
		return strings.Contains(ready, "apps True") || strings.Contains(ready, "billing True"), ready
	})
	t.Logf("from a bare cluster to the first tenant that delivers: %.1fs with two runs of bootstrap, goal %s", time.Since(began).Seconds(), firstTenant)
	// Kubernetes counts new kinds for quotas up to 30 s after their CRDs, and refuses
	// them until then. Flux tries again.
	testwait.For(t, "the fleet to be ready after its bootstrap", patience, func() (bool, string) {
		failed := r.settle()
		return len(failed) == 0, fmt.Sprint(failed)
	})
	t.Logf("until all tenants deliver: %.1fs", time.Since(began).Seconds())
	manager := func() string {
		return r.field("flux-system", "deployment/tenure-manager", ".spec.template.spec.containers[0].image")
	}
	if got := manager(); got != image {
		t.Errorf("the manager has the image %s, want %s", got, image)
	}
	if got := r.field("flux-system", "deployment/tenure-proxy", ".spec.template.spec.containers[0].args"); !strings.Contains(got, "--tls-host=proxy.example.com") {
		t.Errorf("the proxy has the arguments %s", got)
	}
	if got := r.field("flux-system", "deployment/kustomize-controller", ".spec.template.spec.containers[0].env[?(@.name=='NO_PROXY')].value"); !strings.Contains(got, ",kms.example.com:8200") {
		t.Errorf("kustomize-controller connects to %s", got)
	}
	if strings.Contains(killed.out.String()+completed.out.String(), "t0ken") {
		t.Error("the token is printed")
	}
	versions := func() string {
		return r.kubectl("", "-n", "flux-system", "get", "deployments,secrets,gitrepositories,kustomizations", "-o", "jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.generation} {.metadata.annotations} {.data}\n{end}")
	}
	was := versions()
	r.bootstrap(token...).exits(0, patience)
	if diff := cmp.Diff(was, versions()); diff != "" || head() != pushed {
		t.Errorf("a run where all is done changes something (-before +after):\n%s", diff)
	}
	r.bootstrap("GIT_PASSWORD=t0ken", "--url=https://git.example.com/acme/other", "--token-auth").
		fails("the cluster follows another repository", patience, "it follows", fleetURL)
	t.Run("Drift", func(t *testing.T) { testBootstrapDrift(r.with(t)) })
	t.Run("SSH", func(t *testing.T) { testBootstrapSSH(bootstrapped{r.with(t), r.program}) })
	if got := manager(); got != image {
		t.Errorf("a bootstrap without --manager-image took the image %s, want that it keeps %s", got, image)
	}
	t.Run("Upgrade", func(t *testing.T) { testBootstrapUpgrade(r.with(t), published, programs) })
}

// testBootstrapDrift runs `tenure check` and `tenure profile` on the bootstrapped cluster and
// fleet.
func testBootstrapDrift(r run) {
	checkout := filepath.Join(r.t.TempDir(), "fleet")
	if err := r.Git.Export(r.t.Context(), fleetURL, "main", checkout); err != nil {
		r.t.Fatal(err)
	}
	check := tenure(r.t, r.t.TempDir(), "check", "--kubeconfig", r.Kubeconfig, "--fleet", checkout, "--path", "clusters/staging")
	check.exits(0, patience)
	profile := tenure(r.t, r.t.TempDir(), "profile", "--fleet", checkout, "--path", "clusters/staging")
	profile.says(0, "has the profile multi-tenant, unchanged", patience)
}

// testBootstrapSSH moves the cluster to SSH: the user pushes with the agent, the cluster reads
// with its own key.
func testBootstrapSSH(r bootstrapped) {
	const url = "ssh://git@git.example.com/acme/fleet"
	socket, person := startAgent(r.t)
	agent := "SSH_AUTH_SOCK=" + socket
	opens := func(keys ...string) {
		var credentials []githost.Credentials
		for i, key := range keys {
			credentials = append(credentials, githost.Credentials{Key: key, ReadOnly: i > 0})
		}
		if err := r.Git.Protect(url, credentials...); err != nil {
			r.t.Fatal(err)
		}
	}
	knownHosts := filepath.Join(r.t.TempDir(), "known_hosts")
	r.bootstrap(agent, "--url="+url).
		fails("nobody can be asked about the host's key", patience, "is not known", "--ssh-host-key-fingerprint")
	r.bootstrap(agent, "--url="+url, "--ssh-host-key-fingerprint", "SHA256:AAAA").
		fails("another fingerprint", patience, "SHA256:AAAA", "git.example.com has")
	if err := os.WriteFile(knownHosts, r.Git.KnownHosts("git.example.com"), 0o600); err != nil {
		r.t.Fatal(err)
	}
	args := []string{agent, "--url=" + url, "--ssh-known-hosts-file", knownHosts, "--ssh-key-algorithm", "ed25519"}
	opens()
	r.bootstrap(args...).fails("a key that the host does not know", patience, "Permission denied")
	opens(person)
	r.bootstrap(args...).fails("nobody can say that the key was added", patience, "deploy key: ssh-ed25519 ", "--silent")
	public := r.field("flux-system", "secret/flux-system", ".data.identity\\.pub")
	decoded, err := base64.StdEncoding.DecodeString(public)
	if err != nil {
		r.t.Fatal(err)
	}
	opens(person, string(decoded))
	s := r.bootstrap(append(args, "--silent")...)
	s.exits(0, patience)
	r.t.Logf("over SSH:\n%s", s.out.String())
	if got := r.field("flux-system", "secret/flux-system", ".data.identity\\.pub"); got != public || got == "" {
		r.t.Errorf("the key was made twice: %q and %q", public, got)
	}
	if got := r.field("flux-system", "secret/flux-system", ".data.password"); got != "" {
		r.t.Error("the token is still in the cluster")
	}
	if got := r.field("flux-system", "gitrepository/flux-system", ".spec.url"); got != url {
		r.t.Errorf("the cluster reads %s", got)
	}
	expectNothing(r.t, "the fleet is ready over SSH", r.settle())
}

// startAgent serves an SSH agent with one key and returns its socket, and the public
// key as a line of authorized_keys.
func startAgent(t *testing.T) (socket, public string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	keyring := agent.NewKeyring()
	if err := keyring.Add(agent.AddedKey{PrivateKey: key}); err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(shortDir(t), "agent")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _ = agent.ServeAgent(keyring, conn) }()
		}
	}()
	return socket, string(ssh.MarshalAuthorizedKey(signer.PublicKey()))
}

// testBootstrapUpgrade upgrades Tenure with `tenure profile multi-tenant` of the later version, as
// docs/how-to/install.md says, and pushes the change of the fleet.
func testBootstrapUpgrade(r run, published releases, programs string) {
	checkout := filepath.Join(r.t.TempDir(), "fleet")
	if err := r.Git.Export(r.t.Context(), fleetURL, "main", checkout); err != nil {
		r.t.Fatal(err)
	}
	image := published.host + "/acme/tenure-server:" + laterVersion
	published.pull(r.t, programs, laterVersion)
	runs(r.t, checkout, filepath.Join(published.tenure[laterVersion], "tenure"), "profile", "multi-tenant", "--fleet", ".", "--path", "clusters/staging", "--manager-image", image, "--yes")
	_, err := r.Git.Commit(r.t.Context(), fleetURL, "main", laterVersion, func(tree *githost.Tree) error {
		return fs.WalkDir(os.DirFS(checkout), ".", func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := os.ReadFile(filepath.Join(checkout, name))
			if err != nil {
				return err
			}
			return tree.WriteFile(name, content)
		})
	})
	if err != nil {
		r.t.Fatal(err)
	}
	kube, err := flux.NewClient(r.REST)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := flux.RequestReconcile(r.t.Context(), kube, flux.Ref{Kind: flux.GitRepository, Namespace: "flux-system", Name: "flux-system"}); err != nil {
		r.t.Fatal(err)
	}
	testwait.For(r.t, "the manager to have the image of the later version", patience, func() (bool, string) {
		got := r.field("flux-system", "deployment/tenure-manager", ".spec.template.spec.containers[0].image")
		return got == image, got
	})
	r.kubectl("", "-n", "flux-system", "rollout", "status", "deployment/tenure-manager", atMost)
	expectNothing(r.t, "all is ready after the upgrade", r.settle())
}
