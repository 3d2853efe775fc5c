package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// TestBrokenSystemFolder checks that errors in Flux's system folder are reported before any
// process starts.
func TestBrokenSystemFolder(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		files  map[string]string
		words  []string
	}{
		"Unparsable":      {"It is not YAML.", map[string]string{system + "kustomization.yaml": "resources: [gotk\n"}, []string{"cannot read the fleet", system + "kustomization.yaml", "yaml"}},
		"MissingResource": {"kustomize cannot build it.", map[string]string{system + "kustomization.yaml": "resources: [gotk-components.yaml, gotk-sync.yaml, absent.yaml]\n"}, []string{"cannot read the fleet", "clusters/test/flux-system", "absent.yaml"}},
		"UnknownField":    {"kustomize says what it does not know.", map[string]string{system + "kustomization.yaml": "resources: [gotk-components.yaml, gotk-sync.yaml]\npatchez: []\n"}, []string{"cannot read the fleet", "patchez"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, args := newFleet(t, tc.files)
			r := tenure(t, home(t), args...)
			r.fails(tc.reason, moment, tc.words...)
			if strings.Contains(r.out.String(), "etcd") {
				t.Errorf("%s: it was found only after something had been started:\n%s", tc.reason, r.out.String())
			}
		})
	}
}

func TestTwoMapsForOneAddress(t *testing.T) {
	t.Parallel()
	one, two := t.TempDir(), t.TempDir()
	const url = "https://git.example.com/acme/team"
	r := tenure(t, home(t), "up", "--map", url+"#main="+one, "--map", url+"#main="+two)
	r.fails("One address cannot lead to two folders.", moment, "git.example.com/acme/team")
}

// TestFaultsOfARunningFleet checks that one cluster survives all kinds of errors in its fleet.
func TestFaultsOfARunningFleet(t *testing.T) {
	t.Parallel()
	team := filepath.Join(t.TempDir(), "team")
	const url = "https://git.example.com/acme/team"
	writeFiles(t, team, map[string]string{"team.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: team, namespace: default}\n"})
	fleet, args := newFleet(t, map[string]string{
		"apps/kustomization.yaml":      "resources: [state.yaml]\npatches: nonsense\n",
		"clusters/test/elsewhere.yaml": source("elsewhere", "https://elsewhere.example.net/x"),
		"clusters/test/team.yaml":      source("team", url),
	})
	h := home(t)
	r := tenure(t, h, append(args, "--map", url+"#main="+team)...)

	at := r.says(0, `✗ not everything is ready`, startup)
	settled := r.out.String()[:at]
	_, failures, _ := strings.Cut(settled, "\n✗ ")
	for reason, words := range map[string][]string{
		"What kustomize says about the folder, in full.": {"Kustomization/flux-system/apps", "Kustomization.patches"},
		"Which host is not mapped, and the flag.":        {"GitRepository/flux-system/elsewhere", "elsewhere.example.net", "--map"},
	} {
		for _, word := range words {
			if !strings.Contains(failures, word) {
				t.Errorf("%s The final list lacks %q:\n%s", reason, word, failures)
			}
		}
	}

	// Saving the fix heals it.
	writeFiles(t, fleet, map[string]string{"apps/kustomization.yaml": "resources: [state.yaml]\n"})
	at = r.says(at, `Kustomization/flux-system/apps +True +[Aa]pplied`, moment)

	// A missing mapped folder is reported, and used again once it returns.
	if err := os.Rename(team, team+".away"); err != nil {
		t.Fatal(err)
	}
	at = r.says(at, `(?m)^! .*`+team, moment)
	writeFiles(t, team+".away", map[string]string{"more.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: more, namespace: default}\n"})
	if err := os.Rename(team+".away", team); err != nil {
		t.Fatal(err)
	}
	r.says(at, `GitRepository/flux-system/team +True +stored artifact`, moment)

	// A controller that is killed is restarted as a Pod's container is.
	k := kubeconfig(t, h, "default")
	status := func(field string) string {
		out, err := k.kubectl("-n", "flux-system", "get", "pods", "-l", "app=source-controller", "-o", "jsonpath={.items[*].status.containerStatuses[*]."+field+"}")
		if err != nil {
			return err.Error() + out
		}
		return out
	}
	before, err := strconv.Atoi(status("restartCount"))
	if err != nil {
		t.Fatalf("the restarts of source-controller: %v", err)
	}
	kill(t, h, "source-controller")
	testwait.For(t, "the Pod of the killed controller to show a restart and be ready", startup, func() (bool, string) {
		restarts, ready := status("restartCount"), status("ready")
		return restarts == strconv.Itoa(before+1) && ready == "true", restarts + " " + ready
	})
	writeFiles(t, fleet, map[string]string{"apps/state.yaml": configMap("state", "second")})
	testwait.For(t, "a change after the crash to be applied", startup, func() (bool, string) {
		out, err := k.kubectl("get", "configmap", "state", "-o", "jsonpath={.data.value}")
		return err == nil && out == "second", out
	})

	r.signal(syscall.SIGINT)
	r.exits(0, moment)
	nothingLeft(t, h)
}

// TestInterruptedStart interrupts each step of the start, and checks that the start ends and
// leaves nothing behind.
func TestInterruptedStart(t *testing.T) {
	t.Parallel()
	// The fleet never settles: the last interrupt comes during the wait for it.
	_, args := newFleet(t, map[string]string{"clusters/test/gate.yaml": `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: gate, namespace: flux-system}
spec: {interval: 1m, path: ./apps, prune: true, dependsOn: [{name: gate}], sourceRef: {kind: GitRepository, name: flux-system}}
`})
	for _, phase := range []string{"repositories", "certificates", "etcd", "kube-apiserver", "kube-controller-manager", "node", "Flux"} {
		t.Run("After "+phase, func(t *testing.T) {
			h := home(t)
			r := tenure(t, h, args...)
			r.says(0, `(?m)^✓ `+phase, startup)
			r.signal(syscall.SIGINT)
			r.exits(130, moment)
			nothingLeft(t, h)
			if strings.Contains(r.out.String(), "failed") {
				t.Errorf("an interrupt is no failure:\n%s", r.out.String())
			}
		})
	}
}

// TestDetachedNotReady checks that a detached cluster whose fleet is not ready reports this by
// its exit code, stays, and ends at SIGTERM.
func TestDetachedNotReady(t *testing.T) {
	t.Parallel()
	_, args := newFleet(t, map[string]string{"clusters/test/elsewhere.yaml": source("elsewhere", "https://elsewhere.example.net/x")})
	h := home(t)
	r := tenure(t, h, append(args, "--detach")...)
	r.fails("Not everything is ready.", startup, "not everything is ready", "elsewhere.example.net", "tenure down --name default")
	k := kubeconfig(t, h, "default")
	if out, err := k.kubectl("get", "namespace", "flux-system", "-o", "name"); err != nil {
		t.Errorf("the cluster should stay: %v\n%s", err, out)
	}
	pid, err := os.ReadFile(filepath.Join(h, "default.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(number(t, string(pid)), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, h)
	if _, err := os.Stat(k.file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the kubeconfig is left: %v", err)
	}
}
