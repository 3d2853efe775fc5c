package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testprogram"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// tenantTeam is a tenant of a small fleet that delivers from a mapped repository.
const tenantTeam = `apiVersion: v1
kind: Namespace
metadata: {name: team, labels: {toolkit.fluxcd.io/tenant: team}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: team, namespace: team, labels: {toolkit.fluxcd.io/tenant: team}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: team, namespace: team}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: team, namespace: team}]
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: team, namespace: team}
spec: {interval: 1m, url: "https://git.example.com/acme/team", ref: {branch: main}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: team, namespace: team}
spec: {interval: 1m, retryInterval: 2s, path: ./deploy, prune: true, serviceAccountName: team, sourceRef: {kind: GitRepository, name: team}}
`

// attacking starts tenure verify on a small fleet, by the program in a folder,
// and returns when an attack is under way that waits for Flux.
func attacking(t *testing.T, home, bin string, reports ...string) *session {
	t.Helper()
	team := filepath.Join(t.TempDir(), "team")
	writeFiles(t, team, map[string]string{"deploy/own.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own, namespace: team}\n"})
	dir, _ := newFleet(t, map[string]string{"apps/team.yaml": tenantTeam})
	cmd := exec.Command(filepath.Join(bin, "tenure"), append([]string{
		"verify", "--fleet", dir, "--path", "clusters/test", "--map", "https://git.example.com/acme/team#main=" + team,
	}, reports...)...)
	cmd.Env = append(os.Environ(), "TENURE_HOME="+home)
	r := launch(t, cmd)
	k := kubeconfig(t, home, fmt.Sprintf("verify-%d", r.cmd.Process.Pid))
	testwait.For(t, "the attacks to begin", startup, func() (bool, string) {
		if r.ended() {
			t.Fatal("tenure ended before it attacked")
		}
		out, err := k.kubectl("get", "kustomizations", "--namespace=team", "--output=name")
		return err == nil && strings.Contains(out, "/tenure-attack-"), out
	})
	return r
}

// TestVerifyInterrupted checks that after Ctrl-C the text and JSON reports give no verdict,
// and count no aborted attack as not proven.
func TestVerifyInterrupted(t *testing.T) {
	t.Parallel()
	bin, err := testcluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	h, file := home(t), filepath.Join(t.TempDir(), "verify.json")
	r := attacking(t, h, bin, "-o", "json="+file)
	r.signal(syscall.SIGINT)
	r.exits(130, moment)
	nothingLeft(t, h)
	if !strings.Contains(r.out.String(), "? not judged: interrupted;") {
		t.Errorf("the report does not say that it was interrupted:\n%s", r.out.String())
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Verdict  string
		Clusters []struct {
			Error   string
			Attacks []struct{ Key, Outcome, Reason string }
		}
	}
	if err := json.Unmarshal(content, &report); err != nil {
		t.Fatal(err)
	}
	if report.Verdict != "not judged" || len(report.Clusters) != 1 || report.Clusters[0].Error != "interrupted" {
		t.Errorf("half a run is judged: %s", content)
	}
	for _, a := range report.Clusters[0].Attacks {
		if a.Outcome == "not proven" {
			t.Errorf("%s counts as not proven, but was only given up: %s", a.Key, a.Reason)
		}
	}
}

// TestVerifyWithoutControlPlane checks that a control plane that keeps crashing ends the run,
// and that no result of the run counts.
func TestVerifyWithoutControlPlane(t *testing.T) {
	t.Parallel()
	bin := otherBin(t, "tenure-cluster")
	built, err := testcluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(bin, "broken")
	script := fmt.Sprintf("#!/bin/sh\nif [ $1 = etcd ] && [ -e %s ]; then echo my last words; exit 3; fi\nexec %s \"$@\"\n", broken, filepath.Join(built, "tenure-cluster"))
	testprogram.Write(t, filepath.Join(bin, "tenure-cluster"), []byte(script))
	h := home(t)
	r := attacking(t, h, bin)
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	kill(t, h, "etcd", "--data-dir")
	r.exits(2, 2*startup)
	nothingLeft(t, h)
	for _, want := range []string{"the cluster ended by itself: etcd ended (exit status 3, given up after", "my last words", "? not judged: the cluster ended by itself"} {
		if !strings.Contains(r.out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, r.out.String())
		}
	}
}
