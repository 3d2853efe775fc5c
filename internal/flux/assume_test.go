package flux

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestParseAssumption(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason, in string
		want       []Ref
		wantErr    bool
	}{
		"name":               {"the common case leaves sources of the same name alone", "a/b", []Ref{{Kustomization, "a", "b"}, {HelmRelease, "a", "b"}}, false},
		"kind":               {"a source must be asked for", "helmrepository/a/b", []Ref{{HelmRepository, "a", "b"}}, false},
		"short":              {"as flux abbreviates it", "ks/a/b", []Ref{{Kustomization, "a", "b"}}, false},
		"alert":              {"nothing waits for an alert", "Alert/a/b", nil, true},
		"other":              {"not Flux's", "deployment/a/b", nil, true},
		"all of a kind":      {"sixty apps", "hr/*/*", []Ref{{HelmRelease, "*", "*"}}, false},
		"all of a namespace": {"an app's namespace", "apps/*", []Ref{{Kustomization, "apps", "*"}, {HelmRelease, "apps", "*"}}, false},
		"everything":         {"the root is among them", "*/*", nil, true},
		"all Kustomizations": {"the root is among them", "ks/*/*", nil, true},
		"every kind":         {"a kind must be named", "*/a/b", nil, true},
		"no name":            {"a namespace alone is too much", "a", nil, true},
		"empty":              {"parts must not be empty", "a/", nil, true},
		"too many":           {"and there are three at most", "ks/a/b/c", nil, true},
		"no string":          {"nothing is not everything", "", nil, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseAssumption(tt.in)
			if (err != nil) != tt.wantErr {
				t.Fatalf("%s\nerror = %v", tt.reason, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s\n(-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

// TestSuspendAssumed stands in for the API server: creations as a dry run come
// back suspended once the policy is there.
func TestSuspendAssumed(t *testing.T) {
	t.Parallel()
	probes := 0
	c := newFake().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			ks, ok := obj.(*kustomizev1.Kustomization)
			if !ok {
				return c.Create(ctx, obj, opts...)
			}
			probes++
			ks.Spec.Suspend = probes == 3
			return nil
		},
	}).Build()
	for _, refs := range [][]Ref{{{Kustomization, "a", "b"}}, {{Kustomization, "a", "c"}}} {
		probes = 0
		if err := SuspendAssumed(t.Context(), c, refs); err != nil {
			t.Fatal(err)
		}
		if probes != 3 {
			t.Errorf("returned after %d probes, want 3: it must wait until the policy is in effect", probes)
		}
		var policy admissionv1.MutatingAdmissionPolicy
		if err := c.Get(t.Context(), client.ObjectKey{Name: assumePolicy}, &policy); err != nil {
			t.Fatal(err)
		}
		if got := policy.Spec.MatchConditions[0].Expression; !strings.Contains(got, `"`+refs[0].String()+`"`) {
			t.Errorf("the policy does not name %s: %s", refs[0], got)
		}
	}
	if err := SuspendAssumed(t.Context(), c, nil); err != nil {
		t.Fatal(err)
	}
	var policies admissionv1.MutatingAdmissionPolicyList
	if err := c.List(t.Context(), &policies); err != nil || len(policies.Items) > 0 {
		t.Errorf("policies left without anything to assume: %d, %v", len(policies.Items), err)
	}
}

func always(refs ...Ref) func([]Row) []Ref { return func([]Row) []Ref { return refs } }

// TestAssumePatterns checks the condition for patterns, and that it names the parts that are given.
func TestAssumePatterns(t *testing.T) {
	t.Parallel()
	policy, _ := assumePolicyFor([]Ref{{HelmRelease, anything, anything}, {Kustomization, "apps", anything}, {GitRepository, "a", "b"}})
	want := `has(object.metadata.name) && ((request.kind.kind + "/" + request.namespace + "/" + object.metadata.name) in ["GitRepository/a/b","` + probe.String() + `"]` +
		` || (request.kind.kind == "HelmRelease") || (request.kind.kind == "Kustomization" && request.namespace == "apps"))`
	if diff := cmp.Diff(want, policy.Spec.MatchConditions[0].Expression); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for object, want := range map[Ref]bool{
		{Kustomization, "apps", "any"}: true, {Kustomization, "other", "any"}: false, {HelmRelease, "apps", "any"}: false,
	} {
		if got := (Ref{Kustomization, "apps", anything}).Matches(object); got != want {
			t.Errorf("Kustomization/apps/* names %s: %v", object, got)
		}
	}
}

func TestUnmapped(t *testing.T) {
	t.Parallel()
	row := func(kind Kind, name, message string, state State, needs ...Ref) Row {
		return Row{Kind: kind, Namespace: "a", Name: name, Message: message, State: state, Needs: needs}
	}
	repository, chart := Ref{HelmRepository, "a", "charts"}, Ref{HelmChart, "a", "a-app"}
	rows := []Row{
		row(HelmRelease, "app", "waits for its chart", Blocked, chart),
		row(HelmChart, "a-app", "no artifact", Blocked, repository),
		row(HelmRepository, "charts", "charts.example.com is not mapped (add --map)", Failed),
		row(Kustomization, "after", "dependency is not ready", Blocked, Ref{HelmRelease, "a", "app"}),
		row(GitRepository, "broken", "authentication failed", Failed),
		row(Kustomization, "waiting", "health check failed: HelmRelease/a/app: charts.example.com is not mapped", Failed),
		row(Kustomization, "applies", "health check failed", Failed, Ref{GitRepository, "a", "fleet"}, repository),
		row(Kustomization, "remote", "kustomize build failed: git.example.com is not mapped", Failed),
		row(OCIRepository, "signed", "failed to verify the signature: the key service is not mapped", Failed),
		row(Kustomization, "fine", "a commit says: is not mapped", Ready),
		row(Alert, "alert", "is not mapped", Failed),
		row(ImageRepository, "image", "scan failed: images.example.com is not mapped", Failed),
		row(ImagePolicy, "policy", "no tags in database", Blocked, Ref{ImageRepository, "a", "image"}),
	}
	want := []Ref{repository, {Kustomization, "a", "remote"}, {ImageRepository, "a", "image"}, {ImagePolicy, "a", "policy"}, chart, {HelmRelease, "a", "app"}}
	if diff := cmp.Diff(want, Unmapped(rows, nil)); diff != "" {
		t.Errorf("what depends on an object that is assumed runs, what has it as source does not (-want +got):\n%s", diff)
	}
	if got := Unmapped(nil, want); len(got) != len(want) {
		t.Errorf("an object whose message has changed is not assumed any more: %v", got)
	}
}

func TestKeepAssumed(t *testing.T) {
	t.Parallel()
	source := &sourcev1.GitRepository{ObjectMeta: at("a", "src", 1), Status: sourcev1.GitRepositoryStatus{Artifact: &meta.Artifact{Revision: "main@sha1:a"}}}
	spec := kustomizev1.KustomizationSpec{SourceRef: kustomizev1.CrossNamespaceSourceReference{Kind: "GitRepository", Name: "src"}}
	assumed := &kustomizev1.Kustomization{ObjectMeta: at("a", "assumed", 2), Spec: spec}
	assumed.Status.Conditions = with(ready("False", "BuildFailed", "x", 1), meta.ReconcilingCondition)
	stale := &kustomizev1.Kustomization{ObjectMeta: at("a", "stale", 1), Spec: spec}
	stale.Spec.Suspend = true
	stale.Status.Conditions = ready("True", AssumedReason, AssumedMessage, 1)
	users := &kustomizev1.Kustomization{ObjectMeta: at("a", "users", 1), Spec: spec}
	users.Spec.Suspend = true
	release := &helmv2.HelmRelease{ObjectMeta: at("a", "release", 1)}
	c := newFake(source, assumed, stale, users, release).WithInterceptorFuncs(replay()).Build()

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- KeepAssumed(ctx, c, always(Ref{Kustomization, "a", "assumed"}, Ref{HelmRelease, anything, "release"}, Ref{Kustomization, "a", "missing"}))
	}()
	get := func(obj client.Object) client.Object {
		t.Helper()
		if err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			t.Fatal(err)
		}
		return obj
	}
	eventually := func(reason string, ok func() bool) {
		t.Helper()
		err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, patience, true, func(context.Context) (bool, error) { return ok(), nil })
		if err != nil {
			t.Fatalf("%s: %v", reason, err)
		}
	}
	atRevision := func(revision string) func() bool {
		return func() bool {
			ks := get(&kustomizev1.Kustomization{ObjectMeta: at("a", "assumed", 0)}).(*kustomizev1.Kustomization)
			// What kustomize-controller's checkDependencies looks at, and no
			// condition left of the time before.
			return ks.Spec.Suspend && ks.Status.ObservedGeneration == ks.Generation && len(ks.Status.Conditions) == 1 &&
				apimeta.IsStatusConditionTrue(ks.Status.Conditions, meta.ReadyCondition) && ks.Status.LastAppliedRevision == revision
		}
	}
	eventually("the Kustomization counts as applied at its source's revision", atRevision("main@sha1:a"))
	eventually("the HelmRelease counts as ready", func() bool {
		hr := get(&helmv2.HelmRelease{ObjectMeta: at("a", "release", 0)}).(*helmv2.HelmRelease)
		return hr.Spec.Suspend && hr.Status.ObservedGeneration == hr.Generation && apimeta.IsStatusConditionTrue(hr.Status.Conditions, meta.ReadyCondition)
	})
	eventually("what an earlier run assumed is resumed", func() bool {
		return !get(&kustomizev1.Kustomization{ObjectMeta: at("a", "stale", 0)}).(*kustomizev1.Kustomization).Spec.Suspend
	})
	moved := get(&sourcev1.GitRepository{ObjectMeta: at("a", "src", 0)}).(*sourcev1.GitRepository)
	moved.Status.Artifact.Revision = "main@sha1:b"
	if err := c.Status().Update(ctx, moved); err != nil {
		t.Fatal(err)
	}
	eventually("the Kustomization follows its source", atRevision("main@sha1:b"))
	users, ok := get(&kustomizev1.Kustomization{ObjectMeta: at("a", "users", 0)}).(*kustomizev1.Kustomization)
	if !ok || !users.Spec.Suspend {
		t.Error("what the user suspended was resumed")
	}
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("KeepAssumed ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("KeepAssumed does not end with its context")
	}
}

// TestAssumeProvider checks that an assumed provider has a new revision with its inputs: flux-operator builds
// a ResourceSet again, which it built without inputs, only if the revision changes.
func TestAssumeProvider(t *testing.T) {
	t.Parallel()
	revisions := map[any]bool{}
	for _, values := range []map[string]any{{"team": "lime"}, {"team": "plum"}, nil} {
		provider := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"defaultValues": values}}}
		provider.SetGroupVersionKind(ResourceSetInputProvider.GroupVersionKind())
		provider.SetNamespace("lime")
		provider.SetName("pulls")
		c := newFake(provider).WithStatusSubresource(provider).Build()
		row := Row{Kind: ResourceSetInputProvider, Namespace: "lime", Name: "pulls", Suspended: true}
		if err := assume(t.Context(), c, row, nil); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(provider), provider); err != nil {
			t.Fatal(err)
		}
		inputs, _, err := unstructured.NestedSlice(provider.Object, "status", "exportedInputs")
		if err != nil || len(inputs) != min(len(values), 1) {
			t.Errorf("%v has inputs %v, %v", values, inputs, err)
		}
		revision, _, _ := unstructured.NestedString(provider.Object, "status", "lastExportedRevision")
		revisions[revision] = true
	}
	if len(revisions) != 3 || revisions[""] {
		t.Errorf("the revisions of three providers are %v", revisions)
	}
}

// TestKeepAssumedErrors has a server that answers the first writes with an
// error, in a time of its own.
func TestKeepAssumedErrors(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Resource: "helmreleases"}
	for name, tc := range map[string]struct {
		reason string
		err    error
		ends   bool
	}{
		"forbidden": {"Whoever may not write would try for ever.", apierrors.NewForbidden(resource, "release", errors.New("no")), true},
		"conflict":  {"Somebody else has written at the same time.", apierrors.NewConflict(resource, "release", errors.New("changed")), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				refused := false
				refuse := func() error {
					if refused && !tc.ends {
						return nil
					}
					refused = true
					return tc.err
				}
				release := &helmv2.HelmRelease{ObjectMeta: at("a", "release", 1)}
				c := newFake(release).WithInterceptorFuncs(interceptor.Funcs{
					Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
						if err := refuse(); err != nil {
							return err
						}
						return c.Patch(ctx, obj, patch, opts...)
					},
					Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
						if err := refuse(); err != nil {
							return err
						}
						return c.Update(ctx, obj, opts...)
					},
				}).Build()
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errDone)
				defer cancel()
				err := KeepAssumed(ctx, c, always(Ref{HelmRelease, "a", "release"}))
				if tc.ends != apierrors.IsForbidden(err) || !tc.ends && !errors.Is(err, errDone) {
					t.Errorf("%s\nKeepAssumed ended with %v", tc.reason, err)
				}
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(release), release); err != nil {
					t.Fatal(err)
				}
				if release.Spec.Suspend == tc.ends {
					t.Errorf("%s\nthe release is assumed: %v", tc.reason, release.Spec.Suspend)
				}
			})
		})
	}
}
