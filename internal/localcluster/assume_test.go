package localcluster

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// unverifiedSource is a source whose signature Flux could not verify.
const unverifiedSource = `apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: app, namespace: flux-system, generation: 1}
spec: {interval: 1h, url: "oci://registry.example.com/app", verify: {provider: cosign}}
status: {observedGeneration: 1, conditions: [{type: Ready, status: "False", reason: VerificationError, lastTransitionTime: "2026-01-01T00:00:00Z", message: failed to verify the signature}]}
`

// signatureCluster returns a cluster with one source whose signature Flux could not verify, and a client
// whose first requests for the policies fail. The errors that the cluster reports go to reported.
func signatureCluster(t *testing.T, failures int, reported func(error)) (*Cluster, client.WithWatch) {
	t.Helper()
	objects, err := flux.ReadObjects([]byte(unverifiedSource))
	if err != nil {
		t.Fatal(err)
	}
	scheme := flux.NewScheme()
	if err := admissionv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects[0]).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*admissionv1.ValidatingAdmissionPolicyList); ok && asked.Add(1) <= int64(failures) {
				return errors.New("the API server is busy")
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if obj.GetNamespace() == "default" {
				return withoutVerify(obj)
			}
			return c.Create(ctx, obj, opts...)
		},
	}).Build()
	return &Cluster{
		life: t.Context(), log: slog.New(slog.DiscardHandler), opts: Options{Report: reported},
		Fleet: &layout.Fleet{Sync: layout.Sync{Namespace: "flux-system"}},
	}, kube
}

// withoutVerify does to a probe what the policy of the API server does.
func withoutVerify(obj client.Object) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return err
	}
	unstructured.RemoveNestedField(fields, "spec", "verify")
	return runtime.DefaultUnstructuredConverter.FromUnstructured(fields, obj)
}

// TestSkipSignatures checks that a failed request about a signature is tried again at once, and by the
// next change of the source if it goes on failing.
func TestSkipSignatures(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason   string
		failures int
		// reported is whether the failure is reported, so that only a change of the source helps.
		reported bool
	}{
		{"no request fails", 0, false},
		{"fewer than the retries", shortRetries.Steps - 1, false},
		{"all retries", shortRetries.Steps, true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var reports []string
			c, kube := signatureCluster(t, tc.failures, func(err error) {
				mu.Lock()
				defer mu.Unlock()
				reports = append(reports, err.Error())
			})
			life, end := context.WithCancel(t.Context())
			c.life = life
			ended := make(chan error, 1)
			go func() { ended <- c.skipSignatures(kube) }()
			source := &unstructured.Unstructured{}
			source.SetGroupVersionKind(flux.OCIRepository.GroupVersionKind())
			key := client.ObjectKey{Namespace: "flux-system", Name: "app"}
			if tc.reported {
				testwait.For(t, "the failure to be reported", 20*time.Second, func() (bool, string) {
					mu.Lock()
					defer mu.Unlock()
					return len(reports) == 1 && strings.HasPrefix(reports[0], "cannot leave out the signature of OCIRepository/flux-system/app: "), strings.Join(reports, "; ")
				})
				if err := kube.Get(t.Context(), key, source); err != nil {
					t.Fatal(err)
				}
				changed := source.DeepCopy()
				if err := unstructured.SetNestedField(changed.Object, []any{map[string]any{
					"type": "Ready", "status": "False", "reason": "VerificationError", "lastTransitionTime": "2026-01-01T00:00:00Z", "message": "failed to verify the signature again",
				}}, "status", "conditions"); err != nil {
					t.Fatal(err)
				}
				if err := kube.Patch(t.Context(), changed, client.MergeFrom(source)); err != nil {
					t.Fatal(err)
				}
			}
			testwait.For(t, "the source without spec.verify", 20*time.Second, func() (bool, string) {
				if err := kube.Get(t.Context(), key, source); err != nil {
					return false, err.Error()
				}
				_, verifies, _ := unstructured.NestedMap(source.Object, "spec", "verify")
				c.fakesMu.Lock()
				defer c.fakesMu.Unlock()
				return !verifies && len(c.fakes) == 1, "spec.verify is still there"
			})
			end()
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(reports) > 0 != tc.reported {
				t.Errorf("%s: reports %q", tc.reason, reports)
			}
		})
	}
}

// TestAssumesSignature lists whose signatures are left out when Flux could not verify them.
func TestAssumesSignature(t *testing.T) {
	t.Parallel()
	signed := t.TempDir()
	if err := os.WriteFile(filepath.Join(signed, "oci-layout"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := &Cluster{opts: Options{Maps: []network.Map{
		{Kind: network.KindOCI, URL: "oci://registry.example.com/folder:v1", Dir: t.TempDir()},
		{Kind: network.KindOCI, URL: "oci://registry.example.com/layout:v1", Dir: signed},
		{Kind: network.KindGit, URL: "https://git.example.com/acme/app", Dir: t.TempDir()},
	}}}
	for _, tc := range []struct {
		reason, address         string
		public, offline, online bool
	}{
		{"a folder has no signatures", "oci://registry.example.com/folder", false, true, true},
		{"a layout can have signatures", "oci://registry.example.com/layout", false, false, false},
		{"without a network, Flux has no public root", "oci://registry.example.com/layout", true, true, false},
		{"a repository can have changes that nobody signed", "https://git.example.com/acme/app.git", false, true, true},
		{"the network has what is not mapped", "oci://registry.example.com/other", false, true, false},
		{"a chart that is no artifact", "", false, true, false},
	} {
		for online, want := range map[bool]bool{false: tc.offline, true: tc.online} {
			c.opts.Online = online
			if got := c.assumesSignature(tc.address, tc.public); got != want {
				t.Errorf("%s: with online %t, got %t, want %t", tc.reason, online, got, want)
			}
		}
	}
}
