package flux

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const someManifests = `
apiVersion: example.com/v1
kind: Thing
metadata: {name: thing, namespace: new}
---
apiVersion: v1
kind: Namespace
metadata: {name: new}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
`

// server stands in for an API server: it notes what is applied, refuses what
// fail refuses, and establishes CRDs when it is asked for the third time.
type server struct {
	fail    func(kind string, attempt int) error
	refused string // condition NamesAccepted is False with this message

	mu       sync.Mutex
	applied  []string
	attempts map[string]int
	gets     int
}

func (s *server) client() client.Client {
	return newFake().WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(_ context.Context, _ client.WithWatch, config runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			kind := config.(interface{ GetKind() string }).GetKind()
			s.attempts[kind]++
			if err := s.fail(kind, s.attempts[kind]); err != nil {
				return err
			}
			s.applied = append(s.applied, kind)
			return nil
		},
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.gets++
			conditions := []any{map[string]any{"type": "Established", "status": map[bool]string{true: "True", false: "False"}[s.gets >= 3]}}
			if s.refused != "" {
				conditions = []any{map[string]any{"type": "NamesAccepted", "status": "False", "message": s.refused}}
			}
			return unstructured.SetNestedSlice(obj.(*unstructured.Unstructured).Object, conditions, "status", "conditions")
		},
	}).Build()
}

func TestApplyAll(t *testing.T) {
	t.Parallel()
	thing := schema.GroupKind{Group: "example.com", Kind: "Thing"}
	refusal := errors.New("no")
	tests := map[string]struct {
		reason  string
		fail    func(kind string, attempt int) error
		refused string
		last    string // the kind that must come last
		gets    int
		wantErr string
	}{
		"order": {
			reason: "definitions first, and the rest when the CRD is established",
			fail:   func(string, int) error { return nil },
			last:   "Thing", gets: 3,
		},
		"not served yet": {
			reason: "a kind takes a moment to be served after its CRD says so, and so does a namespace",
			fail: func(kind string, attempt int) error {
				switch {
				case kind == "Thing" && attempt == 1:
					return &apimeta.NoKindMatchError{GroupKind: thing}
				case kind == "Thing" && attempt == 2:
					return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "new")
				}
				return nil
			},
			last: "Thing", gets: 3,
		},
		"refused": {
			reason: "an error names the object, and what depends on it is not tried",
			fail: func(kind string, _ int) error {
				if kind == "Namespace" {
					return refusal
				}
				return nil
			},
			wantErr: "cannot apply Namespace new: no",
		},
		"names taken": {
			reason:  "a CRD whose names another one has will never be established",
			fail:    func(string, int) error { return nil },
			refused: "plural in use",
			wantErr: "cannot wait until CustomResourceDefinition things.example.com is established",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{fail: tt.fail, refused: tt.refused, attempts: map[string]int{}}
			objects, err := ReadObjects([]byte(someManifests))
			if err != nil {
				t.Fatal(err)
			}
			err = applyAll(t.Context(), s.client(), objects)
			if tt.wantErr != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tt.wantErr) || s.attempts["Thing"] > 0 {
					t.Errorf("%s\nerror = %v, want %s; attempts %v", tt.reason, err, tt.wantErr, s.attempts)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s\n%v", tt.reason, err)
			}
			if diff := cmp.Diff(tt.last, s.applied[len(s.applied)-1]); diff != "" || len(s.applied) != len(objects) || s.gets != tt.gets {
				t.Errorf("%s\napplied %v after %d looks at the CRD, want %s last and %d", tt.reason, s.applied, s.gets, tt.last, tt.gets)
			}
		})
	}
}

// What the API server did not complete in time is tried again, but not without end.
func TestApplyTimedOut(t *testing.T) {
	t.Parallel()
	for timeouts, want := range map[int]bool{0: true, 2: true, 3: false} {
		attempt := 0
		c := interceptor.NewClient(nil, interceptor.Funcs{Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			if attempt++; attempt <= timeouts {
				return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
			}
			return nil
		}})
		thing := &unstructured.Unstructured{}
		thing.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"})
		if err := applyObject(t.Context(), c, thing); (err == nil) != want || attempt > applyAttempts {
			t.Errorf("%d timeouts: got %v after %d attempts", timeouts, err, attempt)
		}
	}
}

// Few policies are applied at a time, since each takes long to compile.
func TestApplyPolicies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		c := interceptor.NewClient(nil, interceptor.Funcs{Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			most.Store(max(most.Load(), now.Add(1)))
			<-time.After(time.Second) // of the bubble
			now.Add(-1)
			return nil
		}})
		var policies []*unstructured.Unstructured
		for range 6 {
			p := &unstructured.Unstructured{}
			p.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"})
			policies = append(policies, p)
		}
		if err := applyAll(t.Context(), c, policies); err != nil || most.Load() != policyConcurrency {
			t.Errorf("%d at a time, %v, want %d", most.Load(), err, policyConcurrency)
		}
	})
}

// An answer that comes late is one all the same: only refusals are given up.
func TestApplySlowly(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason   string
		attempts int // that are refused
		takes    time.Duration
		want     bool
	}{
		{"a request that takes longer than refusals are tried again", 0, 3 * servedTimeout, true},
		{"the same after refusals", 5, 3 * servedTimeout, true},
		{"refusals without end", int(2 * servedTimeout / retryPause), 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			attempt := 0
			c := interceptor.NewClient(nil, interceptor.Funcs{Apply: func(ctx context.Context, _ client.WithWatch, _ runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
				if attempt++; attempt <= tc.attempts {
					return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "new")
				}
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(tc.takes):
					return nil
				}
			}})
			thing := &unstructured.Unstructured{}
			thing.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"})
			if err := applyObject(t.Context(), c, thing); (err == nil) != tc.want || err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("%s: got %v after %d attempts", tc.reason, err, attempt)
			}
		})
	}
}
