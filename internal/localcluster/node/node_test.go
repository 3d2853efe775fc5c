package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/tenure-dev/tenure/internal/localcluster/port"
	"github.com/tenure-dev/tenure/internal/process"
	"github.com/tenure-dev/tenure/internal/process/pki"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// testProgram is the variable that turns this test's executable into the program of
// the Pods.
const testProgram = "NODE_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(testProgram) != "" {
		os.Exit(beProgram(os.Args[1:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "reap" {
		process.RunReaper(os.Stdin, os.Args[2:])
		return
	}
	os.Exit(m.Run())
}

// beProgram serves its environment and arguments at --listen until it is killed, or
// until a request for /crash.
func beProgram(args []string) int {
	fmt.Println("hello from the program")
	for _, arg := range args {
		address, ok := strings.CutPrefix(arg, "--listen=")
		if !ok {
			continue
		}
		err := http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/crash" {
				fmt.Println("last words")
				os.Exit(7)
			}
			_, _ = io.WriteString(w, strings.Join(append(os.Environ(), args...), "\n"))
		}))
		fmt.Println(err)
	}
	return 1
}

// testNode is a node without virtual-kubelet: the test calls its methods.
type testNode struct {
	*Node
	ca      *pki.Authority
	mu      sync.Mutex
	reports map[string]*corev1.Pod
}

func newTestNode(t *testing.T) *testNode {
	t.Helper()
	ca, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	serving, err := ca.Issue(pki.Request{CommonName: "node", Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	group, err := process.NewGroup(process.Options{Reaper: []string{self, "reap"}})
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset()
	client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{
			Token: "secret", ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour)),
		}}, nil
	})
	node, err := New(Config{
		Client: client, Server: "https://127.0.0.1:1", CAPEM: ca.CertPEM, Name: "local", Serving: serving,
		ClientCAs: ca.CertPEM, ClientName: "api", Dir: filepath.Join(t.TempDir(), "pods"), Short: filepath.Join(t.TempDir(), "t"),
		Programs: []Program{{Name: "prog", Path: self, Flags: []Flag{{Name: "listen", Kind: KindListen, Default: ":8080"}}, Env: []string{"ALLOWED"}}},
		Platform: func(ns string) bool { return ns == "platform" }, Processes: group,
		Env: func(map[string]string, string) []string { return []string{testProgram + "=1"} },
	})
	if err != nil {
		t.Fatal(err)
	}
	n := &testNode{Node: node, ca: ca, reports: map[string]*corev1.Pod{}}
	ctx, cancel := context.WithCancel(context.Background())
	n.runCtx, n.hardCtx = ctx, context.Background()
	n.lister = corev1listers.NewPodLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}))
	n.events = silence{}
	n.notify = func(pod *corev1.Pod) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.reports[pod.Name] = pod
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = n.serve() }()
	t.Cleanup(func() {
		cancel()
		n.running.Wait()
		_ = n.endpoint.Close()
		<-served
		if err := group.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n
}

// await polls until a Pod's last report satisfies ok.
func (n *testNode) await(t *testing.T, pod, reason string, ok func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var last *corev1.Pod
	testwait.For(t, reason, time.Minute, func() (bool, string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		last = n.reports[pod]
		if last == nil {
			return false, "nothing was reported"
		}
		return ok(last), fmt.Sprintf("last report: %+v", last.Status)
	})
	return last
}

// open sends a request to the kubelet endpoint, with a client certificate of this
// name, or without one if name is "". A response may take at most one minute.
func (n *testNode) open(t *testing.T, name, path string) (*http.Response, error) {
	t.Helper()
	client := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: n.ca.Pool()}}
	if name != "" {
		pair, err := n.ca.Issue(pki.Request{CommonName: name})
		if err != nil {
			t.Fatal(err)
		}
		cert, err := pair.TLS()
		if err != nil {
			t.Fatal(err)
		}
		client.TLSClientConfig.Certificates = []tls.Certificate{cert}
	}
	return (&http.Client{Transport: client, Timeout: time.Minute}).Get(fmt.Sprintf("https://127.0.0.1:%d%s", n.port(), path))
}

func (n *testNode) get(t *testing.T, name, path string) (int, string, error) {
	t.Helper()
	resp, err := n.open(t, name, path)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

func podNamed(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{
			ServiceAccountName: "sa", RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{
				Name: "c", Image: "example.com/prog:v1",
				Env:            []corev1.EnvVar{{Name: "ALLOWED", Value: "yes"}, {Name: "LD_PRELOAD", Value: "evil"}},
				Ports:          []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
				VolumeMounts:   []corev1.VolumeMount{{Name: "token", MountPath: tokenPath}},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("http"), Path: "/", Host: "192.0.2.1"}}},
			}},
		},
	}
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func TestProcessPod(t *testing.T) {
	t.Parallel()
	n := newTestNode(t)
	ports := reserved{ports: map[string]bool{}}
	n.reserve = ports.reserve
	if err := (provider{n.Node}).CreatePod(t.Context(), podNamed("platform", "p")); err != nil {
		t.Fatal(err)
	}
	pod := n.await(t, "p", "the readiness probe succeeds", isReady)
	address, err := n.HostAddress(pod.Status.PodIP, 8080)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	dir := filepath.Join(n.cfg.Dir, "uid-p")
	base := filepath.Join(dir, "containers", "c")
	want := []string{
		"ALLOWED=yes", "HOME=" + filepath.Join(base, "home"), "KUBECONFIG=" + filepath.Join(base, "kubeconfig"),
		testProgram + "=1", "TMPDIR=" + filepath.Join(base, "tmp"), "--listen=" + address,
	}
	if got := strings.Split(string(body), "\n"); !slices.Equal(got, want) {
		t.Errorf("the process has exactly this environment and these arguments:\n got %q\nwant %q", got, want)
	}
	if _, port, _ := strings.Cut(address, ":"); !slices.Equal(ports.now(), []string{port}) {
		t.Errorf("ports %v are reserved for the process, want %s alone", ports.now(), port)
	}
	if token, err := os.ReadFile(filepath.Join(dir, "token")); err != nil || string(token) != "secret" {
		t.Errorf("got token %q, %v", token, err)
	}
	if _, err := n.HostAddress(pod.Status.PodIP, 1); err == nil || errors.Is(err, ErrSimulated) {
		t.Errorf("got %v for a port at which the process does not listen", err)
	}

	restarts := pod.Status.ContainerStatuses[0].RestartCount
	if _, err := http.Get("http://" + address + "/crash"); err == nil {
		t.Fatal("the program must not answer when it crashes")
	}
	pod = n.await(t, "p", "the crash shows", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].LastTerminationState.Terminated != nil })
	last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated
	if last.ExitCode != 7 || !strings.HasSuffix(last.Message, "last words") || last.Reason != "Error" {
		t.Errorf("the last state must hold the exit code and the last words: %+v", last)
	}
	pod = n.await(t, "p", "the process is restarted", func(p *corev1.Pod) bool {
		return isReady(p) && p.Status.ContainerStatuses[0].RestartCount == restarts+1
	})
	_, previous, err := n.get(t, "api", "/containerLogs/platform/p/c?previous=true&tailLines=1")
	if err != nil || previous != "last words\n" {
		t.Errorf("got previous log %q, %v", previous, err)
	}
	if err := (provider{n.Node}).DeletePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	n.awaitGone(t, pod, dir)
	if left := ports.now(); len(left) > 0 {
		t.Errorf("ports %v are still reserved", left)
	}
}

// reserved are the ports that a node has reserved for its processes.
type reserved struct {
	mu    sync.Mutex
	ports map[string]bool
}

// reserve calls [port.Reserve] and records the reserved port.
func (r *reserved) reserve() (int, func(), error) {
	number, release, err := port.Reserve()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ports[strconv.Itoa(number)] = true
	return number, func() {
		release()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.ports, strconv.Itoa(number))
	}, err
}

// now returns the reserved ports.
func (r *reserved) now() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.ports))
}

// awaitGone polls until the Pod has no address and no folder.
func (n *testNode) awaitGone(t *testing.T, pod *corev1.Pod, dir string) {
	t.Helper()
	testwait.For(t, "nothing of the Pod to be left", time.Minute, func() (bool, string) {
		_, statErr := os.Stat(dir)
		_, err := n.HostAddress(pod.Status.PodIP, 8080)
		return errors.Is(err, ErrUnknownPod) && errors.Is(statErr, os.ErrNotExist), fmt.Sprintf("address: %v, folder: %v", err, statErr)
	})
}

func TestPodsThatAreNotProcesses(t *testing.T) {
	t.Parallel()
	n := newTestNode(t)
	command := podNamed("platform", "command")
	command.Spec.Containers[0].Command = []string{"sh", "-c", "evil"}
	for reason, pod := range map[string]*corev1.Pod{
		"a tenant's Pod with a known image": podNamed("tenant", "tenants"),
		"a known image with a command":      command,
	} {
		if err := (provider{n.Node}).CreatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		report := n.await(t, pod.Name, reason+" is ready at once", isReady)
		if _, err := n.HostAddress(report.Status.PodIP, 8080); !errors.Is(err, ErrSimulated) {
			t.Errorf("%s: got %v, want %v", reason, err, ErrSimulated)
		}
		if _, err := os.Stat(filepath.Join(n.cfg.Dir, string(pod.UID))); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s has a state folder: %v", reason, err)
		}
	}
	refused := podNamed("platform", "refused")
	refused.Spec.Containers[0].Args = []string{"--kubeconfig=/etc/passwd"}
	if err := (provider{n.Node}).CreatePod(t.Context(), refused); err != nil {
		t.Fatal(err)
	}
	n.await(t, "refused", "an unknown flag is named", func(p *corev1.Pod) bool {
		w := p.Status.ContainerStatuses[0].State.Waiting
		return w != nil && w.Reason == "CreateContainerConfigError" && strings.Contains(w.Message, "--kubeconfig")
	})
	job := podNamed("tenant", "job")
	job.Spec.RestartPolicy = corev1.RestartPolicyNever
	if err := (provider{n.Node}).CreatePod(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	n.await(t, "job", "a Job's Pod completes", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
}

func TestEndpoint(t *testing.T) {
	t.Parallel()
	n := newTestNode(t)
	for _, pod := range []*corev1.Pod{podNamed("platform", "p"), podNamed("tenant", "s")} {
		if err := (provider{n.Node}).CreatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	n.await(t, "p", "the process runs", isReady)
	if _, _, err := n.get(t, "", "/containerLogs/tenant/s/c"); err == nil {
		t.Error("a client without a certificate must be refused")
	}
	tests := map[string]struct {
		reason string
		client string
		path   string
		status int
		body   string
	}{
		"another client":  {"a user's certificate of the same authority is not enough", "alice", "/containerLogs/tenant/s/c", 403, "only the API server"},
		"simulated":       {"one line says so", "api", "/containerLogs/tenant/s/c?follow=true", 200, simulatedLog},
		"process":         {"its output", "api", "/containerLogs/platform/p/c", 200, "hello from the program\n"},
		"limited":         {"bytes are counted", "api", "/containerLogs/platform/p/c?limitBytes=5&follow=true", 200, "hello"},
		"no lines":        {"zero lines are none", "api", "/containerLogs/platform/p/c?tailLines=0", 200, ""},
		"no previous run": {"the first run has none before", "api", "/containerLogs/platform/p/c?previous=true", 400, "not found"},
		"bad number":      {"it is said what is wrong", "api", "/containerLogs/platform/p/c?tailLines=-1", 400, "tailLines"},
		"no container":    {"an unknown container", "api", "/containerLogs/platform/p/x", 400, "not available"},
		"no Pod":          {"an unknown Pod", "api", "/containerLogs/platform/x/c", 404, "does not run"},
		"traversal":       {"names are looked up, never joined to a path", "api", "/containerLogs/platform/p/..%2f..%2ftoken", 400, "not available"},
		"exec":            {"there are no containers", "api", "/exec/platform/p/c?command=sh", 501, "no containers"},
		"port-forward":    {"it takes a POST", "api", "/portForward/platform/p", 405, "Method Not Allowed"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			status, body, err := n.get(t, tc.client, tc.path)
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if status != tc.status || !strings.Contains(body, tc.body) || (tc.body == "" && body != "") {
				t.Errorf("%s: got %d %q, want %d with %q", tc.reason, status, body, tc.status, tc.body)
			}
		})
	}
}

func TestFollowEndsWithTheProcess(t *testing.T) {
	t.Parallel()
	n := newTestNode(t)
	if err := (provider{n.Node}).CreatePod(t.Context(), podNamed("platform", "p")); err != nil {
		t.Fatal(err)
	}
	pod := n.await(t, "p", "the process runs", isReady)
	address, err := n.HostAddress(pod.Status.PodIP, 8080)
	if err != nil {
		t.Fatal(err)
	}
	followed, err := n.open(t, "api", "/containerLogs/platform/p/c?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	defer followed.Body.Close()
	// Read the beginning first: a client that starts to follow after the crash would
	// follow the next process.
	const first = "hello from the program\n"
	begin := make([]byte, len(first))
	if _, err := io.ReadFull(followed.Body, begin); err != nil || string(begin) != first {
		t.Fatalf("the log begins with %q (%v)", begin, err)
	}
	_, _ = http.Get("http://" + address + "/crash")
	rest, err := io.ReadAll(followed.Body)
	if err != nil {
		t.Fatalf("a followed log must end when the process does: %v", err)
	}
	if got := string(rest); got != "last words\n" {
		t.Errorf("then it says %q, want its last words", got)
	}
}
