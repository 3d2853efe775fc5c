package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testprogram"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

const (
	hostileSystem = `
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: flux-system, namespace: flux-system}
spec: {interval: 1h, url: "https://git.example.com/evil/fleet", ref: {branch: main}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: flux-system, namespace: flux-system}
spec:
  interval: 1h
  path: ./clusters/evil
  prune: true
  sourceRef: {kind: GitRepository, name: flux-system}
`
	// hostilePods request programs of the host in every way that Pods allow. Each program that
	// runs creates a file in the folder MARKS.
	hostilePods = `
apiVersion: v1
kind: Namespace
metadata: {name: tenant}
---
apiVersion: v1
kind: Pod
metadata: {name: impostor, namespace: tenant}
spec: {containers: [{name: c, image: "ghcr.io/fluxcd/source-controller:v1.9.4", args: [--storage-path=/data]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: command, namespace: flux-system}
spec: {containers: [{name: c, image: "ghcr.io/fluxcd/kustomize-controller:v1.9.5", command: [sh, -c, "touch MARKS/command"]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: init, namespace: flux-system}
spec:
  initContainers:
    - {name: i, image: "ghcr.io/fluxcd/kustomize-controller:v1.9.5", command: [sh, -c, "touch MARKS/init"]}
    - {name: j, image: "ghcr.io/fluxcd/kustomize-controller:v1.9.5"}
  containers: [{name: c, image: "images.example.com/x:1"}]
---
apiVersion: v1
kind: Pod
metadata: {name: host, namespace: flux-system}
spec:
  hostPID: true
  volumes: [{name: host, hostPath: {path: /}}]
  containers: [{name: c, image: "images.example.com/x:1", command: [touch, MARKS/host], volumeMounts: [{name: host, mountPath: /host}], securityContext: {privileged: true}}]
---
apiVersion: v1
kind: Pod
metadata: {name: dots, namespace: flux-system}
spec: {containers: [{name: c, image: "ghcr.io/fluxcd/source-controller:v1.9.4", args: [--storage-path=/data/../../etc]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: exec, namespace: flux-system}
spec: {containers: [{name: c, image: "ghcr.io/fluxcd/kustomize-controller:v1.9.5", args: [--insecure-kubeconfig-exec]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: unknown, namespace: flux-system}
spec: {containers: [{name: c, image: "ghcr.io/fluxcd/helm-controller:v1.6.4", args: [--kubeconfig=/etc/passwd]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: storage, namespace: flux-system}
spec:
  serviceAccountName: source-controller
  containers: [{name: c, image: "ghcr.io/fluxcd/source-controller:v1.9.4", args: [--storage-path=/etc, --watch-label-selector=none=here]}]
---
apiVersion: v1
kind: Pod
metadata: {name: environment, namespace: flux-system}
spec:
  serviceAccountName: notification-controller
  volumes: [{name: host, hostPath: {path: /}}]
  containers:
    - name: c
      image: ghcr.io/fluxcd/notification-controller:v1.9.3
      volumeMounts: [{name: host, mountPath: /host}]
      env:
        - {name: LD_PRELOAD, value: MARKS/evil.so}
        - {name: PATH, value: MARKS/evil}
        - {name: HTTPS_PROXY, value: "http://evil.example.com"}
        - {name: NO_PROXY, value: "evil"}
        - {name: SSL_CERT_FILE, value: MARKS/evil.pem}
        - {name: GIT_SSH_COMMAND, value: "touch MARKS/environment; evil"}
        - {name: KUBECONFIG, value: MARKS/evil.kubeconfig}
        - {name: HOME, value: MARKS/evil}
`
	// hostileFlux asks Flux's controllers to run programs or read files.
	hostileFlux = `
apiVersion: v1
kind: Secret
metadata: {name: evil, namespace: flux-system}
stringData:
  value: |
    apiVersion: v1
    kind: Config
    current-context: c
    contexts: [{name: c, context: {cluster: c, user: u}}]
    clusters: [{name: c, cluster: {server: "https://kubernetes.default.svc", insecure-skip-tls-verify: true}}]
    users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: /bin/sh, args: [-c, "touch MARKS/exec-plugin"]}}}]
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: exec-plugin, namespace: flux-system}
spec: {interval: 1h, path: ./plain, prune: true, sourceRef: {kind: GitRepository, name: flux-system}, kubeConfig: {secretRef: {name: evil}}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: remote-command, namespace: flux-system}
spec: {interval: 1h, path: ./remote-command, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: remote-file, namespace: flux-system}
spec: {interval: 1h, path: ./remote-file, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: remote-git, namespace: flux-system}
spec: {interval: 1h, path: ./remote-git, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: remote-folder, namespace: flux-system}
spec: {interval: 1h, path: ./remote-folder, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: remote-ssh, namespace: flux-system}
spec: {interval: 1h, path: ./remote-ssh, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: remote-loopback, namespace: flux-system}
spec: {interval: 1h, path: ./remote-loopback, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: remote-option, namespace: flux-system}
spec: {interval: 1h, path: ./remote-option, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: remote-modules, namespace: flux-system}
spec: {interval: 1h, path: ./remote-modules, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: link-file, namespace: flux-system}
spec: {interval: 1h, path: ./link-file, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: link-folder, namespace: flux-system}
spec: {interval: 1h, path: ./link-folder, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: loopback, namespace: flux-system}
spec: {interval: 1h, url: "LISTENER"}
`
)

// hostileFleet writes the fleet as a Git work tree with a hostile Git configuration, as an
// unpacked archive could have.
func hostileFleet(t *testing.T, marks, outside, listener string) string {
	t.Helper()
	dir := t.TempDir()
	fill := strings.NewReplacer("MARKS", marks, "LISTENER", listener, "OUTSIDE", outside).Replace
	system := filepath.Join(dir, "clusters", "evil", "flux-system")
	write(t, "# Flux's own manifests belong here.\n", system, "gotk-components.yaml")
	write(t, hostileSystem, system, "gotk-sync.yaml")
	write(t, "resources: [gotk-components.yaml, gotk-sync.yaml]\n", system, "kustomization.yaml")
	write(t, fill(hostilePods), dir, "clusters", "evil", "pods.yaml")
	write(t, fill(hostileFlux), dir, "clusters", "evil", "flux.yaml")
	write(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plain, namespace: tenant}\n", dir, "plain", "plain.yaml")
	write(t, "resources: [plain.yaml]\n", dir, "plain", "kustomization.yaml")
	write(t, fill("resources: [\"git::ext::sh -c touch% MARKS/remote-command\"]\n"), dir, "remote-command", "kustomization.yaml")
	write(t, "resources: [\"https://evil.example.com/base.yaml\"]\n", dir, "remote-file", "kustomization.yaml")
	write(t, "resources: [\"https://git.example.com/evil/fleet//plain?ref=main\"]\n", dir, "remote-git", "kustomization.yaml")
	for name, address := range map[string]string{
		"remote-folder":   "file://OUTSIDE",
		"remote-ssh":      "ssh://git@git.example.com/evil/fleet//plain?ref=main",
		"remote-loopback": "LISTENER/evil/fleet//plain?ref=main",
		"remote-option":   "https://git.example.com/evil/fleet//plain?ref=--upload-pack=touch%20MARKS/option",
		"remote-modules":  "https://git.example.com/evil/modules//plain?ref=main",
	} {
		write(t, fill("resources: [\""+address+"\"]\n"), dir, name, "kustomization.yaml")
	}
	write(t, "resources: [link.yaml]\n", dir, "link-file", "kustomization.yaml")
	for link, target := range map[string]string{"link-file/link.yaml": filepath.Join(outside, "outside.yaml"), "link-folder": outside} {
		if err := os.Symlink(target, filepath.Join(dir, filepath.FromSlash(link))); err != nil {
			t.Fatal(err)
		}
	}
	git(t, dir, "init", "-q", "-b", "main")
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "-m", "begin")
	// Write attributes and configuration last, so that this test itself does not run the filter.
	write(t, "*.yaml filter=evil diff=evil merge=evil\n", dir, ".gitattributes")
	hooks := filepath.Join(dir, ".git", "evil-hooks")
	for _, hook := range []string{"post-index-change", "reference-transaction", "pre-commit", "post-checkout", "update", "pre-receive", "post-update"} {
		if err := os.MkdirAll(hooks, 0o755); err != nil {
			t.Fatal(err)
		}
		testprogram.Write(t, filepath.Join(hooks, hook), []byte("#!/bin/sh\ntouch "+marks+"/hook-"+hook+"\n"))
	}
	for key, value := range map[string]string{
		"filter.evil.clean":          "touch " + marks + "/filter-clean; cat",
		"filter.evil.smudge":         "touch " + marks + "/filter-smudge; cat",
		"diff.evil.textconv":         "touch " + marks + "/textconv; cat",
		"core.fsmonitor":             "touch " + marks + "/fsmonitor; :",
		"core.hooksPath":             hooks,
		"core.sshCommand":            "touch " + marks + "/ssh-command; :",
		"core.alternateRefsCommand":  "touch " + marks + "/alternate-refs; :",
		"uploadpack.packObjectsHook": "touch " + marks + "/pack-objects; :",
	} {
		git(t, dir, "config", key, value)
	}
	return dir
}

// hostileModules returns a repository with a submodule whose URL is a command.
func hostileModules(t *testing.T, marks string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, "resources: [plain.yaml]\n", dir, "plain", "kustomization.yaml")
	write(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: modules, namespace: tenant}\n", dir, "plain", "plain.yaml")
	write(t, "[submodule \"sub\"]\n\tpath = sub\n\turl = ext::touch% "+marks+"/submodule\n", dir, ".gitmodules")
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "init", "-q", "-b", "main")
	git(t, dir, "add", ".")
	git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",sub")
	git(t, dir, "commit", "-q", "-m", "begin")
	return dir
}

// TestHostileFleetRunsNothing checks that a fleet, which is untrusted input during a review,
// runs no programs on the host.
func TestHostileFleetRunsNothing(t *testing.T) {
	t.Parallel()
	marks, outside := t.TempDir(), t.TempDir()
	write(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: outside, namespace: tenant}\n", outside, "outside.yaml")
	var requests atomic.Int32
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		http.NotFound(w, r)
	}))
	t.Cleanup(listener.Close)
	write(t, "resources: [outside.yaml]\n", outside, "kustomization.yaml")
	git(t, outside, "init", "-q", "-b", "main")
	git(t, outside, "add", ".")
	git(t, outside, "commit", "-q", "-m", "begin")
	dir := hostileFleet(t, marks, outside, listener.URL)
	r, failed := start(t, localcluster.Options{
		Fleet: dir, Path: "clusters/evil", Maps: parseMaps(t, "https://git.example.com/evil/fleet="+dir, "https://git.example.com/evil/modules="+hostileModules(t, marks)),
	})
	if reason := failed["Kustomization/flux-system/remote-git"]; reason != "" {
		t.Errorf("a remote base at a mapped address does not work: %s", reason)
	}
	for _, name := range []string{
		"exec-plugin", "remote-command", "remote-file", "remote-folder", "remote-ssh", "remote-loopback", "remote-modules", "link-file", "link-folder",
	} {
		if reason := failed["Kustomization/flux-system/"+name]; reason == "" {
			t.Errorf("Kustomization %s should have failed", name)
		} else {
			t.Logf("%s: %s", name, reason)
		}
	}
	r.hostilePods()
	r.onlyKnownProcesses()
	if names := r.kubectl("", "-n", "tenant", "get", "configmaps", "-o", "name"); strings.Contains(names, "outside") {
		t.Errorf("a link has led out of the repository:\n%s", names)
	}
	entries, err := os.ReadDir(marks)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		t.Errorf("something of the fleet has run: it left the mark %s", entry.Name())
	}
	// Go's HTTP clients use no proxy for loopback: a known limit, see
	// docs/design/local-cluster.md.
	t.Logf("a listener of the host was asked %d times", requests.Load())
}

// hostilePods checks the state of each Pod.
func (r run) hostilePods() {
	r.t.Helper()
	want := map[string]string{
		"impostor": "simulated", "command": "simulated", "init": "simulated", "host": "simulated",
		"dots":        `waiting: flag --storage-path is not allowed for a host process: "/data/../../etc" leaves its folder`,
		"exec":        "waiting: flag --insecure-kubeconfig-exec is not allowed for a host process: it would let the fleet run or trust something on this machine",
		"unknown":     "waiting: flag --kubeconfig is not allowed for a host process: helm-controller has no such flag on the list of what may run on the host",
		"storage":     "process",
		"environment": "process",
	}
	var got map[string]string
	testwait.For(r.t, "every hostile Pod to have got as far as it gets", patience, func() (bool, string) {
		got = r.podStates(want)
		diff := cmp.Diff(want, got)
		return diff == "", diff
	})
	r.storageInside()
	r.cleanEnvironment()
}

// podStates returns the state of the containers of the named Pods.
func (r run) podStates(names map[string]string) map[string]string {
	r.t.Helper()
	var pods struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				ContainerStatuses []struct {
					ContainerID string
					State       struct{ Waiting *struct{ Message string } }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(r.kubectl("", "get", "pods", "-A", "-o", "json")), &pods); err != nil {
		r.t.Fatal(err)
	}
	states := map[string]string{}
	for _, pod := range pods.Items {
		if _, ok := names[pod.Metadata.Name]; !ok || len(pod.Status.ContainerStatuses) != 1 {
			continue
		}
		status := pod.Status.ContainerStatuses[0]
		state, _, _ := strings.Cut(status.ContainerID, ":")
		if status.State.Waiting != nil {
			state = "waiting: " + status.State.Waiting.Message
		}
		states[pod.Metadata.Name] = state
	}
	return states
}

func (r run) pidOf(pod string) string {
	r.t.Helper()
	pid, ok := strings.CutPrefix(r.field("flux-system", "pod/"+pod, ".status.containerStatuses[0].containerID"), "process://")
	if !ok {
		r.t.Fatalf("Pod %s has no process", pod)
	}
	return pid
}

// storageInside checks that a path of the host has become one of the cluster's.
func (r run) storageInside() {
	r.t.Helper()
	command := commandOf(r.t, r.pidOf("storage"))
	i := slices.IndexFunc(command, func(arg string) bool { return strings.HasPrefix(arg, "--storage-path=") })
	if i < 0 || !strings.HasPrefix(command[i], "--storage-path="+r.Dir+"/") {
		r.t.Errorf("source-controller's storage is not in %s: %q", r.Dir, command)
	}
}

// cleanEnvironment checks that a process has none of its Pod's variables.
func (r run) cleanEnvironment() {
	r.t.Helper()
	if runtime.GOOS != "linux" {
		return // there is no portable way to read another process's environment
	}
	environ, err := os.ReadFile(filepath.Join("/proc", r.pidOf("environment"), "environ"))
	if err != nil {
		r.t.Fatal(err)
	}
	for variable := range strings.SplitSeq(string(environ), "\x00") {
		name, _, _ := strings.Cut(variable, "=")
		if name == "LD_PRELOAD" || name == "PATH" || name == "GIT_SSH_COMMAND" || strings.Contains(variable, "evil") {
			r.t.Errorf("the process has %s of its Pod", variable)
		}
	}
}

// onlyKnownProcesses checks the members of the cluster's process group and
// their children.
func (r run) onlyKnownProcesses() {
	r.t.Helper()
	known := []string{"tenure", "tenure-cluster", "tenure-flux"}
	out, err := exec.CommandContext(r.t.Context(), "ps", "-axww", "-o", "pid=,ppid=,pgid=,stat=,args=").Output()
	if err != nil {
		r.t.Fatal(err)
	}
	type proc struct{ pid, parent, group, program string }
	var procs []proc
	group := ""
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		// Ignore zombies: they have ended, although no process has read their exit code.
		if len(f) < 5 || strings.HasPrefix(f[3], "Z") {
			continue
		}
		procs = append(procs, proc{f[0], f[1], f[2], filepath.Base(f[4])})
		if slices.Contains(f, "__reap") && slices.Contains(f, r.Dir) {
			group = f[2]
		}
	}
	inside := map[string]bool{}
	for _, p := range procs {
		inside[p.pid] = p.group == group
	}
	members := 0
	for _, p := range procs {
		if p.group != group && !inside[p.parent] {
			continue
		}
		members++
		if !slices.Contains(known, p.program) {
			r.t.Errorf("an unknown process runs in the cluster: %s", fmt.Sprintf("%+v", p))
		}
	}
	// The reaper, four of Kubernetes, four of Flux, and the two Pods above.
	if members != 11 {
		r.t.Errorf("%d processes run in the cluster, want 11: %+v", members, procs)
	}
}
