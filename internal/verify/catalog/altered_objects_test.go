package catalog

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A policy that changes an object stops the attack, if it changes what the attack is about in every way to write it.
func TestAlteredObjects(t *testing.T) {
	t.Parallel()
	makes := func(value string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			return object("v1", "ConfigMap", e.Namespace, name("x"), map[string]any{"data": map[string]any{"key": value, "other": "sent"}})
		}
	}
	set := func(o client.Object, field, value string) {
		_ = unstructured.SetNestedField(o.(*unstructured.Unstructured).Object, value, "data", field)
	}
	clamps := func(o client.Object) {
		if value, _, _ := unstructured.NestedString(o.(*unstructured.Unstructured).Object, "data", "key"); value == "forbidden" {
			set(o, "key", "allowed")
		}
	}
	for _, tc := range []struct {
		reason         string
		create, change func(client.Object)
		marks          []mark
		mutates        bool
		want           Outcome
	}{
		{"the policy changes the value", clamps, clamps, nil, true, Stopped},
		{"the policy changes every object in another field", func(o client.Object) { set(o, "other", "set") }, clamps, nil, true, GotThrough},
		{"it changes the value on CREATE alone", clamps, nil, nil, true, GotThrough},
		{"a label exempts the object", func(o client.Object) {
			if o.GetLabels()["skip"] == "" {
				clamps(o)
			}
		}, clamps, []mark{{"skip", "true"}}, true, GotThrough},
		{"nothing changes objects", nil, nil, nil, true, GotThrough},
		{"the fleet has no policy that changes objects", func(o client.Object) { set(o, "key", "normalized") }, nil, nil, false, GotThrough},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			e := newFakeEnv(interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					if tc.create != nil {
						tc.create(o)
					}
					return c.Create(ctx, o, opts...)
				},
				Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
					if tc.change != nil {
						tc.change(o)
					}
					return nil
				},
			})
			e.inFull, e.mutates, e.exemptions = true, tc.mutates, exemptionsOf("", true, tc.marks)
			f := requests(request{what: "do it", aimed: creating(makes("forbidden"), makes("allowed")), own: creating(makes("allowed"))})(t.Context(), e)
			if f.Outcome != tc.want || tc.want == Stopped && f.Control != "policy that changes data.key" {
				t.Errorf("got %+v, want %s", f, tc.want)
			}
		})
	}
}

// A policy may replace a value that the schema would refuse: then no controller reads it.
func TestReplacedValues(t *testing.T) {
	t.Parallel()
	for _, mutates := range []bool{true, false} {
		e := newFakeEnv(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			spec, _ := o.(*unstructured.Unstructured).Object["spec"].(map[string]any)
			for _, field := range []string{"interval", "timeout", "retryInterval"} {
				if spec[field] != nil && spec[field] != "1h" && spec[field] != "20s" {
					spec[field] = "1m"
				}
			}
			return c.Create(ctx, o, opts...)
		}})
		e.mutates = mutates
		e.Repository = &discovery.Repository{Source: flux.Ref{Kind: flux.GitRepository, Namespace: "team", Name: "team"}, Kustomization: flux.Ref{Namespace: "team"}}
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // No controller answers the positive control.
		f := unreadable(ctx, e)
		if got := f.Outcome == GotThrough; got == mutates {
			t.Errorf("policies change objects: %t, got %+v", mutates, f)
		}
	}
}

// An object that a policy changes when the tenant creates it is changed back, or made under another name.
func TestUndoChange(t *testing.T) {
	t.Parallel()
	account := func(o client.Object) {
		u := o.(*unstructured.Unstructured)
		if _, named, _ := unstructured.NestedString(u.Object, "spec", "serviceAccountName"); !named && u.GetKind() == "Kustomization" && u.GetLabels()["skip"] == "" && u.GetName() != "free-"+name("x") {
			_ = unstructured.SetNestedField(u.Object, "team", "spec", "serviceAccountName")
		}
	}
	for _, tc := range []struct {
		reason     string
		onUpdate   bool
		marks      []mark
		want, name string
	}{
		{"the policy matches UPDATE", true, nil, "team", name("x")},
		{"the policy does not match UPDATE", false, nil, "", name("x")},
		{"a label exempts the object", true, []mark{{"skip", "true"}}, "", name("x")},
		{"a name exempts the object", true, []mark{{nameMark, "free-*"}}, "", "free-" + name("x")},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			e := newFakeEnv(interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					account(o)
					return c.Create(ctx, o, opts...)
				},
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					if tc.onUpdate {
						account(o)
					}
					var options client.PatchOptions
					options.ApplyOptions(opts)
					if len(options.DryRun) > 0 {
						return nil
					}
					return c.Update(ctx, o)
				},
			})
			e.mutates, e.exemptions = true, exemptionsOf("", true, tc.marks)
			u := e.suspended("x", withoutAccount)
			if err := e.createOrChange(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			if err := e.Admin.Get(t.Context(), keyOf(u), u); err != nil {
				t.Fatal(err)
			}
			if got, _, _ := unstructured.NestedString(u.Object, "spec", "serviceAccountName"); got != tc.want || u.GetName() != tc.name {
				t.Errorf("%s has account %q, want %s with %q", u.GetName(), got, tc.name, tc.want)
			}
		})
	}
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	of := func(spec map[string]any) *unstructured.Unstructured {
		return object("v1", "Thing", "team", "x", map[string]any{"spec": spec})
	}
	sent := of(map[string]any{"size": "1024Mi", "off": false, "none": "", "list": []any{map[string]any{"name": "a"}}, "gone": "yes", "value": int64(1)})
	got := of(map[string]any{"size": "1Gi", "list": []any{map[string]any{"name": "a", "default": true}, "more"}, "value": int64(2), "added": true})
	changed, removed := differences(sent, got)
	if diff := cmp.Diff([][]string{{"spec.value"}, {"spec.gone"}}, [][]string{changed, removed}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An empty value may be what an attack is about where Kubernetes distinguishes it from a missing one: in labels and
// annotations, and in fields that are pointers in the type of the kind.
func TestEmptyValues(t *testing.T) {
	t.Parallel()
	pod := func(spec map[string]any) *unstructured.Unstructured {
		return object("v1", "Pod", "team", "x", map[string]any{"spec": spec})
	}
	antiAffinity := func(term map[string]any) *unstructured.Unstructured {
		return pod(map[string]any{"affinity": map[string]any{"podAntiAffinity": map[string]any{"requiredDuringSchedulingIgnoredDuringExecution": []any{term}}}})
	}
	claim := func(spec map[string]any) *unstructured.Unstructured {
		return object("v1", "PersistentVolumeClaim", "team", "x", map[string]any{"spec": spec})
	}
	config := func(labels, annotations map[string]any) *unstructured.Unstructured {
		u := object("v1", "ConfigMap", "team", "x", nil)
		u.Object["metadata"] = map[string]any{"name": "x", "labels": labels, "annotations": annotations}
		return u
	}
	custom := func(spec map[string]any) *unstructured.Unstructured {
		return object("example.com/v1", "Thing", "team", "x", map[string]any{"spec": spec})
	}
	for _, tc := range []struct {
		reason    string
		sent, got *unstructured.Unstructured
		want      []string
	}{
		{"an annotation", config(nil, map[string]any{"sync": "", "a": "b"}), config(nil, map[string]any{"a": "b"}), []string{"metadata.annotations.sync"}},
		{"the only annotation", config(nil, map[string]any{"sync": ""}), object("v1", "ConfigMap", "team", "x", nil), []string{"metadata.annotations"}},
		{"a label", config(map[string]any{"role": ""}, nil), object("v1", "ConfigMap", "team", "x", nil), []string{"metadata.labels"}},
		{"no labels", config(map[string]any{}, nil), object("v1", "ConfigMap", "team", "x", nil), nil},
		{"a label of a custom resource", func() *unstructured.Unstructured {
			u := custom(nil)
			u.SetLabels(map[string]string{"role": ""})
			return u
		}(), custom(nil), []string{"metadata.labels"}},
		{"a pointer to a string", claim(map[string]any{"storageClassName": ""}), claim(map[string]any{}), []string{"spec.storageClassName"}},
		{"a string that the type drops", claim(map[string]any{"volumeName": ""}), claim(map[string]any{}), nil},
		{"a pointer to a selector, in a list", antiAffinity(map[string]any{"topologyKey": "zone", "namespaceSelector": map[string]any{}}), antiAffinity(map[string]any{"topologyKey": "zone"}), []string{"spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"}},
		{"a selector that the type drops", pod(map[string]any{"nodeSelector": map[string]any{}, "hostNetwork": false}), pod(map[string]any{}), nil},
		{"a volume without settings", pod(map[string]any{"volumes": []any{map[string]any{"name": "v", "emptyDir": map[string]any{"medium": ""}}}}), pod(map[string]any{"volumes": []any{map[string]any{"name": "v", "emptyDir": map[string]any{}}}}), nil},
		{"a field of a custom resource, which its controller reads like a missing one", custom(map[string]any{"serviceAccountName": ""}), custom(map[string]any{}), nil},
	} {
		changed, removed := differences(tc.sent, tc.got)
		got := append(changed, removed...)
		slices.Sort(got)
		if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// A policy that removes the annotation by which a controller copies an object stops the attack, also if its value is empty.
func TestRemovedAnnotations(t *testing.T) {
	t.Parallel()
	removes := func(o client.Object) {
		kept := map[string]string{}
		for key, value := range o.GetAnnotations() {
			if strings.HasPrefix(key, "tenure.dev/") {
				kept[key] = value
			}
		}
		o.SetAnnotations(kept)
	}
	e := newFakeEnv(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			removes(o)
			return c.Create(ctx, o, opts...)
		},
		Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
			removes(o)
			return nil
		},
	})
	e.inFull, e.mutates = true, true
	for _, a := range Catalogue() {
		if a.Key() != "W16-api" {
			continue
		}
		if f := a.Run(t.Context(), e); f.Outcome != Stopped {
			t.Errorf("got %+v, want %s", f, Stopped)
		}
		return
	}
	t.Fatal("the catalogue has no W16-api")
}

func TestAboutAttack(t *testing.T) {
	t.Parallel()
	of := func(spec map[string]any) *unstructured.Unstructured {
		u := object("v1", "Thing", "team", "x", map[string]any{"spec": spec})
		u.SetLabels(map[string]string{"example.com/team": "dev"})
		return u
	}
	attack := of(map[string]any{"a": map[string]any{"in": "1"}, "b": "1", "same": "1"})
	sent := of(map[string]any{"b": "2", "same": "1"})
	altered := &alteredError{[]string{"spec.a.in", "spec.b"}, attack}
	other := errors.New("refused")
	for _, tc := range []struct {
		reason   string
		err, own error
		accepted bool
		want     string
	}{
		{"another error remains", other, nil, true, "refused"},
		{"the own object is accepted", altered, nil, true, altered.Error()},
		{"the own object is refused", altered, other, false, altered.Error()},
		{"the own object is changed in one of the fields", altered, &alteredError{[]string{"spec.b"}, sent}, true, (&alteredError{[]string{"spec.a.in"}, nil}).Error()},
		{"the own object is changed in the same fields", altered, altered, true, ""},
		{"a field that both objects have", &alteredError{[]string{"spec.same"}, attack}, nil, true, ""},
		{"a label of both objects beside a field", &alteredError{[]string{"metadata.labels.example.com/team", "spec.b"}, attack}, nil, true, (&alteredError{[]string{"spec.b"}, nil}).Error()},
		{"the whole of a field", &alteredError{[]string{"spec.a"}, attack}, nil, true, (&alteredError{[]string{"spec.a"}, nil}).Error()},
		{"an own request that is none for an object", altered, nil, false, ""},
	} {
		got := ""
		if err := aboutAttack(t.Context(), tc.err, func(ctx context.Context) error {
			if tc.accepted {
				list := ctx.Value(acceptedKey{}).(*[]*unstructured.Unstructured)
				*list = append(*list, sent)
			}
			return tc.own
		}); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	}
}
