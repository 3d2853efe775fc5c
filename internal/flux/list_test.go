package flux

import (
	"context"
	"errors"
	"testing"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// missing makes lists and watches of kinds fail as they do without the CRD.
func missing(is func(client.ObjectList) bool) interceptor.Funcs {
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "x"}, "")
	return interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if is(list) {
				return notFound
			}
			return c.List(ctx, list, opts...)
		},
	}
}

func newFake(objects ...client.Object) *fake.ClientBuilder {
	return fake.NewClientBuilder().WithScheme(NewScheme()).WithRESTMapper(newMapper()).
		WithObjects(objects...).WithStatusSubresource(objects...)
}

func names(rows []Row) []string {
	var refs []string
	for _, row := range rows {
		refs = append(refs, row.Ref().String())
	}
	return refs
}

func TestList(t *testing.T) {
	t.Parallel()
	labelled := &kustomizev1.Kustomization{ObjectMeta: at("b", "two", 1)}
	labelled.Labels = map[string]string{"team": "dev"}
	objects := []client.Object{
		labelled,
		&kustomizev1.Kustomization{ObjectMeta: at("a", "two", 1)},
		&kustomizev1.Kustomization{ObjectMeta: at("a", "one", 1)},
		&sourcev1.GitRepository{ObjectMeta: at("a", "src", 1)},
	}
	noBuckets := missing(func(list client.ObjectList) bool { _, ok := list.(*sourcev1.BucketList); return ok })
	c := newFake(objects...).WithInterceptorFuncs(noBuckets).Build()
	tests := map[string]struct {
		reason    string
		selection Selection
		want      []string
		err       error
	}{
		"everything": {
			reason: "sources come before what uses them, as in flux get all; a missing CRD among many is no error",
			want:   []string{"GitRepository/a/src", "Kustomization/a/one", "Kustomization/a/two", "Kustomization/b/two"},
		},
		"namespace": {
			reason:    "-n",
			selection: Selection{Kinds: []Kind{Kustomization}, Namespace: "b"},
			want:      []string{"Kustomization/b/two"},
		},
		"name": {
			reason:    "a name may be in several namespaces",
			selection: Selection{Kinds: []Kind{Kustomization}, Name: "two"},
			want:      []string{"Kustomization/a/two", "Kustomization/b/two"},
		},
		"labels": {
			reason:    "-l",
			selection: Selection{Labels: labels.SelectorFromSet(labels.Set{"team": "dev"})},
			want:      []string{"Kustomization/b/two"},
		},
		"missing kind": {
			reason:    "who asks for one kind wants to know that it does not exist",
			selection: Selection{Kinds: []Kind{Bucket}},
			err:       ErrNotInstalled,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows, err := List(t.Context(), c, tt.selection)
			if !errors.Is(err, tt.err) {
				t.Fatalf("%s\nerror = %v, want %v", tt.reason, err, tt.err)
			}
			if diff := cmp.Diff(tt.want, names(rows)); diff != "" {
				t.Errorf("%s\n(-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

func TestRequestReconcile(t *testing.T) {
	t.Parallel()
	c := newFake(&sourcev1.GitRepository{ObjectMeta: at("a", "src", 1)}).Build()
	if err := RequestReconcile(t.Context(), c, Ref{GitRepository, "a", "src"}); err != nil {
		t.Fatal(err)
	}
	var got sourcev1.GitRepository
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "src"}, &got); err != nil {
		t.Fatal(err)
	}
	if got.Annotations[meta.ReconcileRequestAnnotation] == "" {
		t.Errorf("annotations = %v, want %s", got.Annotations, meta.ReconcileRequestAnnotation)
	}
	if err := RequestReconcile(t.Context(), c, Ref{GitRepository, "a", "gone"}); !apierrors.IsNotFound(err) {
		t.Errorf("error for an object that does not exist = %v, want not found", err)
	}
}

func TestNormalizeURL(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ reason, in, want string }{
		"https":      {"the scheme does not matter", "https://github.com/acme/fleet", "github.com/acme/fleet"},
		"suffix":     {".git and slashes do not matter", "https://github.com/acme/fleet.git/", "github.com/acme/fleet"},
		"case":       {"hosts have no case, paths do", "https://GitHub.com/Acme/fleet", "github.com/Acme/fleet"},
		"user":       {"who asks does not matter", "ssh://git@github.com/acme/fleet", "github.com/acme/fleet"},
		"short ssh":  {"the short form of git", "git@github.com:acme/fleet.git", "github.com/acme/fleet"},
		"port":       {"another port is another server", "https://github.com:8443/acme/fleet", "github.com:8443/acme/fleet"},
		"no port":    {"the scheme's own port is none", "https://github.com:443/acme/fleet", "github.com/acme/fleet"},
		"wrong port": {"443 is not the port of ssh", "ssh://github.com:443/acme/fleet", "github.com:443/acme/fleet"},
		"ipv6":       {"brackets come with the port", "http://[::1]:8080/x", "[::1]:8080/x"},
		"space":      {"pasted text has space around it", " https://github.com/a/b\n", "github.com/a/b"},
		"path":       {"a folder is compared as it is", "../fleet", "../fleet"},
		"empty":      {"nothing is nothing", "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := NormalizeURL(tt.in); got != tt.want {
				t.Errorf("%s\nNormalizeURL(%q) = %q, want %q", tt.reason, tt.in, got, tt.want)
			}
		})
	}
}

func TestReadObjects(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason, in string
		want       []string
		wantErr    bool
	}{
		"documents": {"comments and empty documents are not objects", "# x\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n---\n# y\n", []string{"Namespace a"}, false},
		"list":      {"lists are taken apart", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: a}}\n", []string{"ConfigMap a/b"}, false},
		"no name":   {"it could not be applied", "apiVersion: v1\nkind: Namespace\n", nil, true},
		"no yaml":   {"the error names the document", "a: b: c", nil, true},
		"empty":     {"no objects are no error", "", nil, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, err := ReadObjects([]byte(tt.in))
			if (err != nil) != tt.wantErr {
				t.Fatalf("%s\nerror = %v", tt.reason, err)
			}
			var got []string
			for _, obj := range objects {
				got = append(got, describeObject(obj))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s\n(-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}
