package get

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/ui"
)

const fleet = `
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: fleet, namespace: flux-system, generation: 1}
spec: {url: https://github.com/acme/fleet, interval: 1m}
status:
  artifact: {revision: "main@sha1:0123456789abcdef0123456789abcdef01234567", digest: "sha256:ab", path: x, url: http://x, lastUpdateTime: "2026-01-01T00:00:00Z"}
  conditions: [{type: Ready, status: "True", reason: Succeeded, lastTransitionTime: "2026-01-01T00:00:00Z", message: "stored artifact for revision 'main@sha1:0123456789abcdef0123456789abcdef01234567'"}]
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: tenants, namespace: flux-system, generation: 1, labels: {team: platform}}
spec: {interval: 1m, prune: true, sourceRef: {kind: GitRepository, name: fleet}}
status:
  lastAppliedRevision: main@sha1:0123456789abcdef0123456789abcdef01234567
  conditions: [{type: Ready, status: "True", reason: Succeeded, lastTransitionTime: "2026-01-01T00:00:00Z", message: "Applied revision: main@sha1:0123456789abcdef0123456789abcdef01234567"}]
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: dev-team, namespace: apps, generation: 1}
spec: {interval: 1m, prune: true, suspend: true, sourceRef: {kind: GitRepository, name: dev-team}}
status:
  conditions: [{type: Ready, status: "False", reason: BuildFailed, lastTransitionTime: "2026-01-01T00:00:00Z", message: "no\nsuch file \e[31mred"}]
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Provider
metadata: {name: chat, namespace: apps}
spec: {type: slack}
`

// resourceSet is an object of flux-operator.
const resourceSet = `---
apiVersion: fluxcd.controlplane.io/v1
kind: ResourceSet
metadata: {name: teams, namespace: flux-system, generation: 1}
status:
  lastAppliedRevision: sha256:8352ed06
  conditions: [{type: Ready, status: "True", reason: ReconciliationSucceeded, lastTransitionTime: "2026-01-01T00:00:00Z", message: "Reconciliation finished in 5s"}]
`

// run runs `get` with the arguments on the fleet.
func run(ctx context.Context, t *testing.T, out *buffer, args ...string) error {
	t.Helper()
	objects, err := flux.ReadObjects([]byte(strings.ReplaceAll(fleet+resourceSet, `\e`, `\x1b`)))
	if err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(flux.NewScheme())
	for _, obj := range objects {
		builder.WithObjects(obj)
	}
	c := builder.Build()
	streams := ui.IO{In: strings.NewReader(""), Out: out, Err: out}
	cmd := newCommand(streams, func(context.Context, clusterFlags) (client.WithWatch, error) { return c, nil })
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetOut(out)
	cmd.SetErr(out)
	cmd.SetArgs(args)
	return cmd.ExecuteContext(ctx)
}

// buffer may be written and read at the same time.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestGet compares with testdata/*.golden; UPDATE_GOLDEN=1 writes them.
func TestGet(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ reason, args string }{
		"kustomizations":  {"the namespace is flux-system unless another is named", "kustomizations"},
		"alias-namespace": {"aliases and namespaces as in flux", "ks -n apps"},
		"all-namespaces":  {"-A adds the namespace; hostile messages stay in their line", "ks -A"},
		"name":            {"a name selects", "kustomization tenants"},
		"label":           {"-l selects", "ks -A -l team=platform"},
		"not-ready":       {"the status selects, in any case", "ks -A --status-selector ready!=true"},
		"show-source":     {"--show-source adds a column", "ks -A --show-source"},
		"no-header":       {"for scripts", "ks -A --no-header"},
		"sources":         {"sources alone are all of them", "sources"},
		"source-git":      {"the alias of sources", "source git"},
		"resourcesets":    {"objects of flux-operator", "resourcesets"},
		"all":             {"a table for each kind that has objects", "all -A"},
		"wide":            {"-o wide adds the source", "ks -A -o wide"},
		"output-name":     {"-o name prints names for kubectl", "all -A -o name"},
		"output-yaml":     {"one name is one object, with the whole revision", "ks tenants -o yaml"},
		"output-json":     {"no name is a list; a hostile message stays a string", "ks -n apps -o json"},
		"output-empty":    {"an empty list stays a list for programs", "all -n empty -o json"},
		"empty":           {"no objects are no error, but are said, as in kubectl", "all -n empty"},
		"no-status":       {"a selector without a match says so", "ks --status-selector ready=false"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := &buffer{}
			if err := run(t.Context(), t, out, strings.Fields(tt.args)...); err != nil {
				t.Fatalf("%s\n%v", tt.reason, err)
			}
			golden := filepath.Join("testdata", name+".golden")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), out.String()); diff != "" {
				t.Errorf("%s\n(-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

// TestOperatorKinds checks that kinds which the user may not list are left out, and that another error, such as
// that of a server that does not answer, ends the command.
func TestOperatorKinds(t *testing.T) {
	t.Parallel()
	noAnswer := errors.New("no answer")
	for _, tc := range []struct {
		reason       string
		err, wantErr error
		want         []flux.Kind
	}{
		{"tenants may list none", apierrors.NewForbidden(schema.GroupResource{Resource: "resourcesets"}, "", nil), nil, []flux.Kind{flux.FluxInstance, flux.ResourceSetInputProvider}},
		{"the server does not answer", noAnswer, noAnswer, nil},
	} {
		c := fake.NewClientBuilder().WithScheme(flux.NewScheme()).WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if list.GetObjectKind().GroupVersionKind().Kind == "ResourceSetList" {
					return tc.err
				}
				return c.List(ctx, list, opts...)
			},
		}).Build()
		got, _, err := listOperator(t.Context(), c, flux.Selection{})
		if diff := cmp.Diff(tc.want, got); diff != "" || !errors.Is(err, tc.wantErr) {
			t.Errorf("%s: got error %v, want %v (-want +got):\n%s", tc.reason, err, tc.wantErr, diff)
		}
	}
}

// A tenant may not read Flux's namespace, where get looks by default, nor the whole cluster.
func TestGetForbidden(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "kustomize.toolkit.fluxcd.io", Resource: "kustomizations"}, "", nil)
	var out bytes.Buffer
	ui.PrintError(ui.NewScreen(&out), explain(fmt.Errorf("cannot list kustomizations: %w", forbidden)))
	for _, want := range []string{"cannot list kustomizations: ", "-n NAMESPACE", "kubeconfig for the proxy"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %s\nwant %q in it", out.String(), want)
		}
	}
}

func TestGetErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ reason, args, want string }{
		"nothing found":     {"flux says it so", "hr", `no HelmRelease objects found in "flux-system" namespace`},
		"nowhere":           {"flux calls all namespaces any", "hr -A", `no HelmRelease objects found in any namespace`},
		"name not found":    {"flux says it so", "ks nope", `Kustomization object 'nope' not found in "flux-system" namespace`},
		"two names":         {"flux takes one", "ks a b", "accepts at most 1 arg(s), received 2"},
		"name for several":  {"a name alone does not tell the kind", "all x", `unknown command "x" for "get all"`},
		"bad labels":        {"the flag is named", "ks -l =", "cannot read --label-selector: "},
		"bad status":        {"other conditions are not known here", "ks --status-selector healthy=true", `cannot read --status-selector "healthy=true"`},
		"bad output":        {"the values are listed", "ks -o xml", `-o is wide, name, json or yaml, not "xml"`},
		"watch as JSON":     {"a watch is a table", "ks -o json --watch", "--watch prints a table only"},
		"no such condition": {"a condition without a status selects nothing", "ks --status-selector ready", `cannot read --status-selector "ready"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := run(t.Context(), t, &buffer{}, strings.Fields(tt.args)...)
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("%s\nerror = %v, want %s", tt.reason, err, tt.want)
			}
		})
	}
}

func TestGetWatch(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out := &buffer{}
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, t, out, "all", "-A", "--watch") }()
	want := "NAMESPACE     KIND            NAME       READY   REVISION             MESSAGE\n"
	for !strings.HasPrefix(out.String(), want) {
		select {
		case err := <-ended:
			t.Fatalf("the watch ended by itself: %v\n%s", err, out.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("a watch that is interrupted reports that it was")
	}
	for _, kind := range []string{"GitRepository", "Kustomization", "Provider"} {
		if !strings.Contains(out.String(), kind) {
			t.Errorf("the first table lacks %s:\n%s", kind, out.String())
		}
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	out := &buffer{}
	if err := run(t.Context(), t, out, "__complete", "ks", "-n", "apps", ""); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "dev-team\n:4\n") {
		t.Errorf("names of the namespace are not offered:\n%s", out.String())
	}
}

// TestWithoutFlux checks that a command for several kinds, and `get tenants`, say that the cluster has no Flux.
func TestWithoutFlux(t *testing.T) {
	t.Parallel()
	missing := interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return &apimeta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"}}
	}}
	c := fake.NewClientBuilder().WithScheme(flux.NewScheme()).WithInterceptorFuncs(missing).Build()
	out := &buffer{}
	cmd := newCommand(ui.IO{In: strings.NewReader(""), Out: out, Err: out}, func(context.Context, clusterFlags) (client.WithWatch, error) { return c, nil })
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs([]string{"all", "-A"})
	_, noTenants := discovery.Discover(t.Context(), c, discovery.Choice{})
	for name, err := range map[string]error{"all": cmd.ExecuteContext(t.Context()), "tenants": explain(noTenants)} {
		if !errors.Is(err, flux.ErrNotInstalled) || len(ui.Hints(err)) != 1 {
			t.Errorf("get %s: got %v with the hints %q", name, err, ui.Hints(err))
		}
	}
}
