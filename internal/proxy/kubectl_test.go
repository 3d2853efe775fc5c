package proxy

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// kubectl returns a command of the real kubectl that uses the proxy.
func (s *setup) kubectl(ctx context.Context, t *testing.T, token string, args ...string) *exec.Cmd {
	t.Helper()
	bin, err := testcluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(ctx, filepath.Join(bin, "kubectl"), append([]string{"--kubeconfig", s.kubeconfig(t, token), "--cache-dir", t.TempDir()}, args...)...)
}

// written is a buffer for the output of a running program.
type written struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// TestKubectl checks that kubectl lists, watches and reviews access as at the API server.
func TestKubectl(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	apply(t, namespace("kubectl-a", "kubectl")+namespace("kubectl-b", "kubectl")+tenant("kubectl", accountOwner("kubectl-a", "owner"))+`
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: view, namespace: kubectl-a}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [{kind: ServiceAccount, name: owner, namespace: kubectl-a}]}`)
	token := account(t, "kubectl-a", "owner")
	sees(t, newClient(t, s.as(token)), "kubectl-a kubectl-b")
	testwait.For(t, "the account to have its rights", patience, func() (bool, string) {
		code, body, _ := s.raw(t, s.request(t, "GET", "/api/v1/pods", token))
		return code == 200, body
	})
	for _, tc := range []struct{ args, want string }{
		{"get namespaces -o name", "namespace/kubectl-a\nnamespace/kubectl-b\n"},
		{"get ns --no-headers -o custom-columns=N:.metadata.name -l kubernetes.io/metadata.name=kubectl-b", "kubectl-b\n"},
		{"get ns --chunk-size=1 -o name", "namespace/kubectl-a\nnamespace/kubectl-b\n"},
		{"get ns kubectl-b -o name --ignore-not-found", "Error from server (Forbidden)"},
		{"get tenants -o name", "tenant.tenure.dev/kubectl\n"},
		{"auth can-i list namespaces", "yes\n"},
		{"auth can-i watch tenants.tenure.dev", "yes\n"},
		{"auth can-i list nodes", "no\n"},
		{"auth can-i delete namespaces", "no\n"},
		{"auth can-i list pods -A", "yes\n"},
		{"auth can-i watch pods -A", "yes\n"},
		{"auth can-i list secrets -A", "no\n"},
		{"auth can-i get pods -A", "no\n"},
		{"auth can-i get pods -n kubectl-a", "yes\n"},
		{"auth can-i get pods -n kubectl-b", "no\n"},
		{"auth whoami -o jsonpath={.status.userInfo.username}", "system:serviceaccount:kubectl-a:owner"},
		{"auth whoami --as=system:admin", "error: the selfsubjectreviews API is not enabled in the cluster or you do not have permission"},
	} {
		out, _ := s.kubectl(t.Context(), t, token, strings.Fields(tc.args)...).CombinedOutput()
		got := string(out)
		if i := strings.Index(got, "Warning:"); i == 0 {
			_, got, _ = strings.Cut(got, "\n")
			got = strings.TrimLeft(got, "\n")
		}
		if !strings.HasPrefix(got, tc.want) {
			t.Errorf("kubectl %s: want %q, got %q", tc.args, tc.want, out)
		}
	}
	out, err := s.kubectl(t.Context(), t, token, "get", "ns").Output()
	if err != nil || !strings.Contains(string(out), "NAME        STATUS   AGE") || !strings.Contains(string(out), "kubectl-b   Active") {
		t.Errorf("the table is %q: %v", out, err)
	}
	for in, want := range map[string]map[string]string{
		"kubectl-a": {"namespaces": "[get list watch]", "tenants.tenure.dev": "[list watch]", "pods": "[get list watch]"},
		"kubectl-b": {"namespaces": "[list watch]", "tenants.tenure.dev": "[list watch]"},
	} {
		out, err := s.kubectl(t.Context(), t, token, "auth", "can-i", "--list", "--no-headers", "-n", in).CombinedOutput()
		if err != nil {
			t.Fatalf("can-i --list: %v %s", err, out)
		}
		got := map[string]string{}
		for line := range strings.Lines(string(out)) {
			kind, rest, _ := strings.Cut(line, " ")
			switch kind {
			case "namespaces", "tenants.tenure.dev", "pods", "secrets", "nodes":
				got[kind] = strings.TrimSpace(rest[strings.LastIndex(rest, "["):])
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("can-i --list in %s (-want +got):\n%s", in, diff)
		}
	}
}

// TestKubectlWatchOfOwnAndOthers checks that kubectl get namespaces -w continues while
// namespaces join and leave.
func TestKubectlWatchOfOwnAndOthers(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	const home, other = "reach-kubectl", "reach-kubectl-other"
	reachable(t, home, other)
	token := account(t, home, "owner")
	sees(t, newClient(t, s.as(token)), home+" "+other)
	settled(t, clients(t, s.as(token)))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := s.kubectl(ctx, t, token, "get", "namespaces", "-w", "--output-watch-events")
	out := &written{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = cmd.Wait()
	}()
	shows := func(want string) {
		t.Helper()
		testwait.For(t, "kubectl to show "+want, patience, func() (bool, string) {
			got := strings.Join(strings.Fields(out.String()), " ")
			return strings.Contains(got, want), got
		})
	}
	shows("EVENT NAME STATUS AGE ADDED " + home + " Active")
	shows("ADDED " + other + " Active")
	for i := range 3 {
		name := fmt.Sprintf("reach-kubectl-%d", i)
		apply(t, namespace(name, home))
		shows("ADDED " + name + " Active")
		s.label(t, name, "null")
		shows("DELETED " + name + " Active")
	}
	if strings.Contains(out.String(), "rror") {
		t.Errorf("kubectl says %s", out.String())
	}
}
