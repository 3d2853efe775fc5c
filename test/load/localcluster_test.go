package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	processes "github.com/tenure-dev/tenure/internal/process"
	"github.com/tenure-dev/tenure/internal/process/pki"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// BenchmarkStartAPI compares the start of a local cluster, until its API server is ready,
// with the start of a bare etcd and kube-apiserver from the same program, one after the
// other in each round.
func BenchmarkStartAPI(b *testing.B) {
	var ours, bare time.Duration
	for b.Loop() {
		ours += timeOurAPI(b)
		bare += timeBareAPI(b)
	}
	b.ReportMetric(ours.Seconds()/float64(b.N), "s/tenure")
	b.ReportMetric(bare.Seconds()/float64(b.N), "s/bare")
	b.ReportMetric(ours.Seconds()/bare.Seconds(), "ratio(max=1.5)")
	b.ReportMetric(0, "ns/op")
}

func timeOurAPI(b *testing.B) time.Duration {
	b.Helper()
	var answered time.Duration
	began := time.Now()
	cluster, err := localcluster.Start(b.Context(), localcluster.Options{
		Name: "bench", Root: stateRoot(b), BinDir: binDir(b),
		Step: func(name string) func(error) {
			return func(error) {
				if name == "kube-apiserver" {
					answered = time.Since(began)
				}
			}
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := cluster.Stop(); err != nil {
		b.Fatal(err)
	}
	return answered
}

// timeBareAPI starts etcd and kube-apiserver with the minimum of flags, and returns the
// time until the API server is ready.
func timeBareAPI(b *testing.B) time.Duration {
	b.Helper()
	dir := stateRoot(b)
	program := filepath.Join(binDir(b), "tenure-cluster")
	key, public := filepath.Join(dir, "sa.key"), filepath.Join(dir, "sa.crt")
	// Any private key can sign tokens; use the key of an authority.
	authority, err := pki.NewAuthority("bench")
	if err != nil {
		b.Fatal(err)
	}
	for file, content := range map[string][]byte{key: authority.KeyPEM, public: authority.CertPEM} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	client, peer, secure := freePort(b), freePort(b), freePort(b)
	began := time.Now()
	for _, args := range [][]string{
		{"etcd", "--data-dir=" + filepath.Join(dir, "etcd"), "--log-level=error",
			"--listen-client-urls=http://127.0.0.1:" + client, "--advertise-client-urls=http://127.0.0.1:" + client,
			"--listen-peer-urls=http://127.0.0.1:" + peer, "--initial-advertise-peer-urls=http://127.0.0.1:" + peer,
			"--initial-cluster=default=http://127.0.0.1:" + peer},
		{"kube-apiserver", "--etcd-servers=http://127.0.0.1:" + client, "--bind-address=127.0.0.1", "--secure-port=" + secure,
			"--cert-dir=" + filepath.Join(dir, "certs"), "--endpoint-reconciler-type=none", "--authorization-mode=RBAC",
			"--service-account-issuer=https://bench", "--service-account-key-file=" + public, "--service-account-signing-key-file=" + key},
	} {
		cmd := exec.Command(program, args...)
		if testing.Verbose() {
			cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		defer func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}()
	}
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	testwait.For(b, "the bare API server to be ready", time.Minute, func() (bool, string) {
		resp, err := insecure.Get("https://127.0.0.1:" + secure + "/readyz")
		if err != nil {
			return false, err.Error()
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK, resp.Status
	})
	return time.Since(began)
}

// BenchmarkExampleFleet measures the example fleet: the time from the start until all
// objects are ready, the memory of all processes at that time, and the time to stop.
func BenchmarkExampleFleet(b *testing.B) {
	var ready, stopped time.Duration
	var memory float64
	for b.Loop() {
		began := time.Now()
		cluster := startExample(b)
		awaitReady(b, cluster)
		ready += time.Since(began)
		all, _ := residentMB(b, cluster)
		memory += all
		began = time.Now()
		if err := cluster.Stop(); err != nil {
			b.Fatal(err)
		}
		stopped += time.Since(began)
	}
	n := float64(b.N)
	b.ReportMetric(ready.Seconds()/n, "s/ready(max=25)")
	b.ReportMetric(stopped.Seconds()/n, "s/stop(max=3)")
	b.ReportMetric(memory/n, "MB(max=1500)")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkLivePreview measures the time from saving a file in a mapped folder until a
// Kustomization without wait has applied its revision.
func BenchmarkLivePreview(b *testing.B) {
	dir := b.TempDir()
	write := func(n int) {
		manifest := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: saved, namespace: default}\ndata: {n: %q}\n", strconv.Itoa(n))
		if err := os.WriteFile(filepath.Join(dir, "clusters", "bench", "saved.yaml"), []byte(manifest), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "clusters", "bench"), 0o750); err != nil {
		b.Fatal(err)
	}
	write(0)
	cluster, err := localcluster.Start(b.Context(), localcluster.Options{
		Name: "bench", Root: stateRoot(b), BinDir: binDir(b), Fleet: dir, Path: "clusters/bench",
		Maps: []network.Map{{Kind: network.KindGit, URL: "https://git.example.com/bench", Branch: "main", Dir: dir}},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			b.Error(err)
		}
	}()
	awaitReady(b, cluster)
	client, err := kubernetes.NewForConfig(cluster.REST)
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		n++
		write(n)
		awaitConfigMap(b, client, strconv.Itoa(n))
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/preview(max=2)")
	b.ReportMetric(0, "ns/op")
}

// startBare starts a cluster without a fleet, and stops it at the end.
func startBare(b *testing.B) *localcluster.Cluster {
	b.Helper()
	cluster, err := localcluster.Start(b.Context(), localcluster.Options{Name: "bench", Root: stateRoot(b), BinDir: binDir(b)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			b.Error(err)
		}
	})
	return cluster
}

// unbounded returns a configuration with the same credentials and without a limit on
// requests.
func unbounded(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	return config
}

func startExample(b *testing.B) *localcluster.Cluster {
	b.Helper()
	root, err := testcluster.Repository()
	if err != nil {
		b.Fatal(err)
	}
	examples := filepath.Join(root, "examples")
	opts := localcluster.Options{
		Name: "bench", Root: stateRoot(b), BinDir: binDir(b),
		Fleet: filepath.Join(examples, "fleet", "platform"), Path: "clusters/staging",
		Apply: []string{filepath.Join(examples, "fleet", "bootstrap")},
	}
	for address, dir := range map[string]string{
		"https://git.example.com/acme/dev-team#main": "fleet/dev-team",
		"https://git.example.com/acme/billing#main":  "fleet/billing",
		"https://charts.example.com":                 "charts",
	} {
		m, err := network.ParseMap(address + "=" + filepath.Join(examples, filepath.FromSlash(dir)))
		if err != nil {
			b.Fatal(err)
		}
		opts.Maps = append(opts.Maps, m)
	}
	cluster, err := localcluster.Start(b.Context(), opts)
	if err != nil {
		b.Fatal(err)
	}
	return cluster
}

// awaitReady waits until every Flux object is ready and at least one exists.
func awaitReady(b *testing.B, cluster *localcluster.Cluster) {
	b.Helper()
	kube, err := flux.NewClient(cluster.REST)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), 3*time.Minute)
	defer cancel()
	errReady := errors.New("ready")
	err = flux.Watch(ctx, kube, flux.Selection{Kinds: flux.AllKinds()}, func(rows []flux.Row) error {
		root := false
		for _, row := range rows {
			root = root || row.Kind == flux.Kustomization && row.Name == cluster.Fleet.Sync.Kustomization
			if row.State != flux.Ready {
				return nil
			}
		}
		if !root {
			return nil
		}
		return errReady
	})
	if !errors.Is(err, errReady) {
		b.Fatalf("the fleet is not ready: %v\n%s", err, testcluster.Logs(cluster, 5))
	}
	// A Kustomization is ready as soon as it has applied a Tenant, for which the manager creates objects.
	all, err := client.New(cluster.REST, client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	testwait.For(b, "the Tenants to be ready", time.Minute, func() (bool, string) {
		tenants := &unstructured.UnstructuredList{}
		tenants.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("TenantList"))
		if err := all.List(b.Context(), tenants); err != nil {
			return apimeta.IsNoMatchError(err), err.Error()
		}
		for _, o := range tenants.Items {
			conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			if !slices.ContainsFunc(conditions, func(c any) bool { is := c.(map[string]any); return is["type"] == "Ready" && is["status"] == "True" }) {
				return false, o.GetName()
			}
		}
		return true, ""
	})
}

func awaitConfigMap(b *testing.B, client kubernetes.Interface, n string) {
	b.Helper()
	testwait.For(b, "the saved file to be applied", time.Minute, func() (bool, string) {
		saved, err := client.CoreV1().ConfigMaps("default").Get(b.Context(), "saved", metav1.GetOptions{})
		return err == nil && saved.Data["n"] == n, fmt.Sprint(saved.Data, err)
	})
}

// residentMB returns the memory of this process and the cluster's processes, which are in the
// process group of the cluster's reaper, and the memory of this process alone. Both are in
// megabytes. See [residentKB].
func residentMB(b *testing.B, cluster *localcluster.Cluster) (all, self float64) {
	b.Helper()
	out, err := exec.Command("ps", "-axo", "pid=,pgid=,rss=,command=").Output()
	if err != nil {
		b.Fatal(err)
	}
	group := ""
	byGroup := map[string]float64{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		kb := residentKB(fields[0], fields[2])
		byGroup[fields[1]] += kb / 1024
		switch {
		case fields[0] == strconv.Itoa(os.Getpid()):
			self = kb / 1024
		case strings.Contains(line, processes.ReapCommand+" "+cluster.Dir):
			group = fields[1]
		}
	}
	if group == "" {
		b.Fatal("the cluster's processes were not found")
	}
	return self + byGroup[group], self
}

// residentKB returns the memory of a process in kilobytes. Several processes run the same program,
// whose pages are in memory once: on Linux, each process counts its part of them (the proportional
// set size, see proc(5)). Elsewhere it is the resident size that ps has printed, which counts them in
// each process.
func residentKB(pid, rss string) float64 {
	size := rss
	rollup, err := os.ReadFile(filepath.Join("/proc", pid, "smaps_rollup"))
	if err == nil {
		for line := range strings.Lines(string(rollup)) {
			if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "Pss:" {
				size = fields[1]
			}
		}
	}
	kb, _ := strconv.ParseFloat(size, 64) // a process that has just ended has none
	return kb
}

func stateRoot(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp("", "tenure-bench-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func binDir(b *testing.B) string {
	b.Helper()
	dir, err := testcluster.BinDir()
	if err != nil {
		b.Fatal(err)
	}
	return dir
}

func freePort(b *testing.B) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
