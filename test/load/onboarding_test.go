package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/test/fixtures/fleetgen"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// onboarded is the number of tenants in one commit.
const onboarded = 200

// BenchmarkOnboarding measures the time from a commit with 200 tenants until the
// Kustomizations of all tenants are ready, with the same manifests under Flux alone and
// under Tenure's profile, rules and manager. It also counts the requests that the API
// server refuses: each refusal is an object that was not accepted at its first attempt.
func BenchmarkOnboarding(b *testing.B) {
	var alone, tenure time.Duration
	var refused, denied float64
	for b.Loop() {
		took, _ := onboard(b, false)
		alone += took
		took, refusals := onboard(b, true)
		tenure += took
		refused += refusals.requests
		denied += refusals.policies
	}
	n := float64(b.N)
	b.ReportMetric(alone.Seconds()/n, "s/flux")
	b.ReportMetric(tenure.Seconds()/n, "s/tenure")
	b.ReportMetric(tenure.Seconds()/alone.Seconds(), "ratio(max=1.5)")
	b.ReportMetric(denied/n, "denied(max=0)")
	b.ReportMetric(refused/n, "refused(max=0)")
	b.ReportMetric(0, "ns/op")
}

// onboard starts a fleet without tenants, commits the tenants, and returns the time until
// they are ready.
func onboard(b *testing.B, tenants bool) (time.Duration, refusals) {
	b.Helper()
	var all []fleetgen.Tenant
	for i := range onboarded {
		all = append(all, fleetgen.Tenant{Name: fmt.Sprintf("team-%03d", i), Label: true, Role: "edit", Repository: "app"})
	}
	commit, err := fleetgen.Write(b.TempDir(), fleetgen.Platform{}, all)
	if err != nil {
		b.Fatal(err)
	}
	empty, err := fleetgen.Write(b.TempDir(), fleetgen.Platform{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	if tenants {
		lockDown(b, empty.Dir)
	}
	opts := localcluster.Options{Name: "bench", Root: stateRoot(b), BinDir: binDir(b), Fleet: empty.Dir, Path: fleetgen.Path}
	for _, address := range commit.Maps {
		m, err := network.ParseMap(address)
		if err != nil {
			b.Fatal(err)
		}
		opts.Maps = append(opts.Maps, m)
	}
	cluster, err := localcluster.Start(b.Context(), opts)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			b.Error(err)
		}
	}()
	awaitTenants(b, cluster, 0)
	before := readRefusals(b, cluster)
	began := time.Now()
	copyTenants(b, commit.Dir, empty.Dir)
	awaitTenants(b, cluster, onboarded)
	took := time.Since(began)
	after := readRefusals(b, cluster)
	if tenants {
		breakRule(b, cluster)
		if readRefusals(b, cluster).policies == after.policies {
			b.Error("the API server does not count a refusal by a policy: the number of refusals says nothing")
		}
	}
	return took, refusals{policies: after.policies - before.policies, requests: after.requests - before.requests}
}

// lockDown writes the lockdown with the profile for tenants into a fleet.
func lockDown(b *testing.B, dir string) {
	b.Helper()
	f, err := layout.Load(dir, fleetgen.Path, layout.Options{Components: config.FluxComponents()})
	if err != nil {
		b.Fatal(err)
	}
	plan, err := lockdown.Make(f, lockdown.Options{Tenants: true, Allow: []string{"git=" + fleetgen.Host + "/*"}})
	if err != nil {
		b.Fatal(err)
	}
	if err := plan.Write(dir); err != nil {
		b.Fatal(err)
	}
}

// copyTenants copies the tenants of one fleet into another, in one file: each saved file is
// a new revision of a mapped folder.
func copyTenants(b *testing.B, from, to string) {
	b.Helper()
	files, err := filepath.Glob(filepath.Join(from, "tenants", "team-*.yaml"))
	if err != nil || len(files) != onboarded {
		b.Fatalf("%d tenants were written, %v", len(files), err)
	}
	slices.Sort(files)
	var content strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		content.WriteString("---\n" + string(text))
	}
	next := filepath.Join(b.TempDir(), "all.yaml")
	if err := errors.Join(os.WriteFile(next, []byte(content.String()), 0o600), os.Rename(next, filepath.Join(to, "tenants", "all.yaml"))); err != nil {
		b.Fatal(err)
	}
}

// awaitTenants waits until the platform's Kustomizations and the Kustomizations of n
// tenants are ready.
func awaitTenants(b *testing.B, cluster *localcluster.Cluster, n int) {
	b.Helper()
	kube, err := flux.NewClient(cluster.REST)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
	defer cancel()
	errReady := errors.New("ready")
	ready, waits := 0, ""
	err = flux.Watch(ctx, kube, flux.Selection{Kinds: []flux.Kind{flux.Kustomization}}, func(rows []flux.Row) error {
		platform := map[string]bool{}
		ready, waits = 0, ""
		for _, row := range rows {
			switch {
			case row.State != flux.Ready:
				waits = row.Ref().String() + ": " + row.Message
				if row.Namespace == cluster.Fleet.Sync.Namespace {
					return nil
				}
			case row.Namespace == cluster.Fleet.Sync.Namespace:
				platform[row.Name] = true
			default:
				ready++
			}
		}
		if !platform["tenants"] || ready < n {
			return nil
		}
		return errReady
	})
	if !errors.Is(err, errReady) {
		b.Fatalf("%d of %d tenants are ready, among the others %s: %v\n%s", ready, n, waits, err, testcluster.Logs(cluster, 5))
	}
}

// breakRule sends a request that breaks a rule in the namespace of a tenant, and fails unless
// a policy refuses it.
func breakRule(b *testing.B, cluster *localcluster.Cluster) {
	b.Helper()
	admin, err := client.New(cluster.REST, client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	bad := delivering("team-000", "team-000")[0]
	unstructured.RemoveNestedField(bad.Object, "spec", "serviceAccountName")
	if err := admin.Create(b.Context(), bad, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+admission.Shared) {
		b.Errorf("no policy refuses a Kustomization without an account: %v", err)
	}
}

// refusals counts requests that the API server refused: by policies, and all writes that it
// answered with 403 or 422.
type refusals struct{ policies, requests float64 }

// readRefusals returns the counts in the API server's metrics. The API server counts the
// checks of a policy that refuse a request, and not those that allow it.
func readRefusals(b *testing.B, cluster *localcluster.Cluster) refusals {
	b.Helper()
	client, err := kubernetes.NewForConfig(cluster.REST)
	if err != nil {
		b.Fatal(err)
	}
	text, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	var all refusals
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, "{")
		labels, value, _ := strings.Cut(rest, "} ")
		count, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			continue
		}
		has := func(label, value string) bool { return strings.Contains(","+labels, ","+label+`="`+value+`"`) }
		switch {
		case name == "apiserver_validating_admission_policy_check_total" && has("enforcement_action", "deny"):
			all.policies += count
		case name == "apiserver_request_total" && (has("code", "403") || has("code", "422")) && !has("verb", "GET") && !has("verb", "LIST") && !has("verb", "WATCH"):
			all.requests += count
			if testing.Verbose() {
				b.Log(strings.TrimSpace(line))
			}
		}
	}
	return all
}
