package model

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }

const patience = 2 * time.Minute

// fixture has the tenant's two namespaces, a namespace of another tenant, and the posture.
const fixture = `
apiVersion: v1
kind: Namespace
metadata: {name: flux-system}
---
apiVersion: v1
kind: Namespace
metadata: {name: foreign, labels: {toolkit.fluxcd.io/tenant: other}}
---
apiVersion: v1
kind: Namespace
metadata: {name: profiled, labels: {toolkit.fluxcd.io/tenant: dev-team, pod-security.kubernetes.io/enforce: baseline}}
---
apiVersion: v1
kind: Namespace
metadata: {name: parametrised, labels: {toolkit.fluxcd.io/tenant: dev-team, tenure.dev/parameters: tenure, pod-security.kubernetes.io/enforce: baseline}}
---
apiVersion: tenure.dev/v1alpha1
kind: TenancyProfile
metadata: {name: default}
spec: {tenants: POSTURE}
---
apiVersion: tenure.dev/v1alpha1
kind: TenantParameters
metadata: {name: tenure, namespace: parametrised}
spec: {tenant: dev-team, tenants: POSTURE}
`

// inEach has the accounts and the RoleBinding that the platform creates in each of the
// tenant's namespaces.
const inEach = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: dev-team, namespace: NAMESPACE}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: app, namespace: NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenure-reconciler, namespace: NAMESPACE, labels: {tenure.dev/managed-by: manager}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tenure-tenant}
subjects: [{kind: ServiceAccount, name: dev-team, namespace: profiled}]
`

var (
	prepared sync.Once
	shared   client.Client
)

// asTenant returns a client of the tenant's account, on a cluster where the rules are in
// force.
func asTenant(t testing.TB) client.Client {
	t.Helper()
	c := testcluster.Shared(t)
	prepared.Do(func() { shared = prepare(t, c.REST) })
	return shared
}

func prepare(t testing.TB, admin *rest.Config) client.Client {
	t.Helper()
	mine := strings.ReplaceAll(fixture, "POSTURE", posture)
	for _, namespace := range []string{profiled, parametrised} {
		mine += "---" + strings.ReplaceAll(inEach, "NAMESPACE", namespace)
	}
	testcluster.Apply(t, admin, testcluster.WithoutControllers, config.FluxComponents(), config.FluxImageComponents(), config.CRDs(), config.Roles(), []byte(mine), config.Policies())
	as := rest.CopyConfig(admin)
	as.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + profiled + ":" + tenant,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + profiled, "system:authenticated"},
	}
	c, err := client.New(as, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the rules to be in force", patience, func() (bool, string) {
		for _, namespace := range []string{profiled, parametrised} {
			// One object for each policy that the model describes.
			for rule, broken := range map[string]string{
				"tenure-tokens":   "{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: x, annotations: {kubernetes.io/service-account.name: dev-team}}}",
				"tenure-accounts": "{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: x}, spec: {interval: 1h, prune: true, sourceRef: {kind: GitRepository, name: x}}}",
				"tenure-shards":   "{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: x, labels: {sharding.fluxcd.io/key: a}}, spec: {interval: 1h, url: 'https://git.example.com/acme/x'}}",
				"tenure-managed":  "{apiVersion: v1, kind: ConfigMap, metadata: {name: x, labels: {tenure.dev/managed-by: manager}}}",
				"tenure-contents": "{apiVersion: v1, kind: ConfigMap, metadata: {name: x, finalizers: [example.com/hold]}}",
			} {
				if rule == "tenure-contents" && namespace == profiled {
					rule = "tenure-new-namespaces" // the rule for namespaces without TenantParameters
				}
				o := &unstructured.Unstructured{}
				if err := yaml.Unmarshal([]byte(broken), &o.Object); err != nil {
					t.Fatal(err)
				}
				o.SetNamespace(namespace)
				if err := c.Create(t.Context(), o, client.DryRunAll); err == nil || !strings.Contains(err.Error(), rule) {
					return false, fmt.Sprint(namespace, ": ", err)
				}
			}
		}
		return true, ""
	})
	for _, namespace := range []string{profiled, parametrised} {
		for i, template := range templates {
			there := template.ordinary()
			if kinds(there) != "" {
				continue
			}
			there.SetNamespace(namespace)
			there.SetName(existing(i))
			if err := c.Create(t.Context(), there); err != nil {
				t.Fatal(err)
			}
		}
	}
	return c
}

// existing returns the name of the tenant's object that prepare created from a template.
func existing(template int) string { return fmt.Sprintf("there-%d", template) }

// verdict has the answer to a request, and the answer that the model expects.
type verdict struct {
	object *unstructured.Unstructured
	// changes is set if the request was a patch of an existing object.
	changes  bool
	admitted bool
	// unusable is set if the object fails the validation of its schema.
	unusable bool
	expected string
	answer   error
}

// wrong returns the difference between the answer and the model, or the empty string.
func (v verdict) wrong() string {
	content, _ := yaml.Marshal(v.object.Object)
	if v.changes {
		content = append([]byte("# changed from an ordinary one\n"), content...)
	}
	switch {
	case v.unusable:
		return ""
	case v.admitted && v.expected != "":
		return fmt.Sprintf("admitted, although %s:\n%s", v.expected, content)
	case !v.admitted && v.expected == "":
		return fmt.Sprintf("refused, although the tenant may do it: %v\n%s", v.answer, content)
	}
	return ""
}

// ask generates the object of a seed and sends it to the API server as a dry run: as a create
// request, as a server-side apply, or as a patch of an existing object.
func ask(t testing.TB, c client.Client, seed uint64) verdict {
	random := rand.New(rand.NewPCG(seed, 0))
	i, o := object(random)
	v := verdict{object: o.DeepCopy(), expected: expected(o)}
	switch way := random.IntN(3); {
	case way == 0:
		v.answer = c.Create(t.Context(), o, client.DryRunAll)
	case way == 1 || o.GetNamespace() == foreign || kinds(o) != "":
		v.answer = c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.DryRunAll, client.FieldOwner("model"))
	default:
		v.changes = true
		o.SetName(existing(i))
		v.object = templates[i].ordinary()
		merge(v.object.Object, o.DeepCopy().Object)
		v.expected = expected(v.object)
		patch, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		v.answer = c.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, patch), client.DryRunAll)
	}
	v.admitted = v.answer == nil
	v.unusable = apierrors.IsInvalid(v.answer) && !strings.Contains(v.answer.Error(), "ValidatingAdmissionPolicy")
	if v.answer != nil && !v.unusable && !apierrors.IsForbidden(v.answer) && !apierrors.IsInvalid(v.answer) {
		t.Errorf("neither admitted nor refused: %v", v.answer)
	}
	return v
}

// merge changes an object by a JSON merge patch that removes nothing (RFC 7386).
func merge(into, patch map[string]any) {
	for key, value := range patch {
		change, isMap := value.(map[string]any)
		there, wasMap := into[key].(map[string]any)
		if isMap && wasMap {
			merge(there, change)
			continue
		}
		into[key] = value
	}
}

// TestModel compares 3,000 answers of the API server with the model. Of each kind, some
// objects must be admitted and some refused: otherwise the generator covers too little.
func TestModel(t *testing.T) {
	t.Parallel()
	c := asTenant(t)
	const objects = 3000
	all := make([]verdict, objects)
	group := errgroup.Group{}
	group.SetLimit(4)
	for seed := range all {
		group.Go(func() error {
			all[seed] = ask(t, c, uint64(seed))
			return nil
		})
	}
	_ = group.Wait()
	type counts struct{ admitted, refused, unusable int }
	of := map[string]*counts{}
	var changes counts
	for seed, v := range all {
		if wrong := v.wrong(); wrong != "" {
			t.Errorf("seed %d: %s", seed, wrong)
		}
		kind := v.object.GetKind()
		if of[kind] == nil {
			of[kind] = &counts{}
		}
		count := of[kind]
		if v.changes {
			count = &changes // most fields of Pods and Jobs are immutable
		}
		switch {
		case v.unusable:
			count.unusable++
		case v.admitted:
			count.admitted++
		default:
			count.refused++
		}
	}
	t.Logf("%-20s %3d admitted %3d refused %3d invalid", "changes", changes.admitted, changes.refused, changes.unusable)
	if changes.admitted < objects/20 || changes.refused < objects/20 {
		t.Errorf("of %d objects, %d changes were admitted and %d refused", objects, changes.admitted, changes.refused)
	}
	for kind, n := range of {
		t.Logf("%-20s %3d admitted %3d refused %3d invalid", kind, n.admitted, n.refused, n.unusable)
		never := kinds(&unstructured.Unstructured{Object: map[string]any{"kind": kind}}) != ""
		if n.refused == 0 || n.admitted == 0 != never || n.unusable > n.admitted+n.refused {
			t.Errorf("of kind %s, %d objects were admitted, %d refused and %d invalid", kind, n.admitted, n.refused, n.unusable)
		}
	}
}

// FuzzModel compares answers with the model for random seeds.
func FuzzModel(f *testing.F) {
	f.Add(uint64(1))
	c := asTenant(f) // the fuzzing engine stops an input after 10 s, and a cluster starts slower
	f.Fuzz(func(t *testing.T, seed uint64) {
		if wrong := ask(t, c, seed).wrong(); wrong != "" {
			t.Error(wrong)
		}
	})
}
