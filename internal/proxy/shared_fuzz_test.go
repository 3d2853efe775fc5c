package proxy

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tenure-dev/tenure/api/capsule/v1beta1"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
)

// fuzzUsers are the subjects of the fuzzer. They are few, so that shares overlap.
var fuzzUsers = []string{"ann", "ben", "system:serviceaccount:a1:a", "system:serviceaccount:b1:b", "system:serviceaccount:b1:a"}

func (d dice) selector() metav1.LabelSelector {
	s := metav1.LabelSelector{}
	for _, key := range d.some("x", "y") {
		op := metav1.LabelSelectorOperator(d.of("In", "In", "NotIn", "Exists", "DoesNotExist"))
		r := metav1.LabelSelectorRequirement{Key: key, Operator: op}
		if op == "In" || op == "NotIn" {
			r.Values = d.some("1", "2", "3")
		}
		s.MatchExpressions = append(s.MatchExpressions, r)
	}
	if d.IntN(8) == 0 {
		return metav1.LabelSelector{}
	}
	return s
}

// fuzzSubject returns a user as a Tenant names it.
func fuzzSubject(name string) v1alpha1.Subject {
	if namespace, account, ok := cutAccount(name); ok {
		return v1alpha1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: account}
	}
	return v1alpha1.Subject{Kind: "User", Name: name}
}

func cutAccount(name string) (string, string, bool) {
	const prefix = "system:serviceaccount:"
	if len(name) <= len(prefix) || name[:len(prefix)] != prefix {
		return "", "", false
	}
	return name[len(prefix) : len(prefix)+2], name[len(prefix)+3:], true
}

// given is one entry of the model: the tenant or platform that shares, the subjects, the
// verbs and the selector.
type given struct {
	tenant string // "" for the platform's settings
	by     string // the tenant in whose namespace a ProxySetting is
	to     []string
	verbs  []string
	which  metav1.LabelSelector
}

// FuzzShared shares objects at random, and compares the objects that each identity can get
// with a model without keys, indexes and unions: no identity gets an object that is not
// shared with it.
func FuzzShared(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		d := dice{rand.New(rand.NewPCG(seed, 7))}
		v, err := newAuthorizationCache(&rest.Config{Host: "http://127.0.0.1:1"}, true)
		if err != nil {
			t.Fatal(err)
		}
		put := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		kind := schema.GroupResource{Group: "g", Resource: "r"}
		var model []given
		owners := map[string][]string{}
		for _, name := range []string{"a", "b"} {
			ns := &corev1.Namespace{ObjectMeta: objectMeta("", name+"1")}
			ns.Labels = map[string]string{v1alpha1.LabelTenant: name}
			put(v.namespaces.GetIndexer().Add(ns))
			tenant := &v1alpha1.Tenant{ObjectMeta: objectMeta("", name)}
			owners[name] = d.some("ann", "ben", "system:serviceaccount:b1:b")
			for _, o := range owners[name] {
				s := fuzzSubject(o)
				tenant.Spec.Owners = append(tenant.Spec.Owners, v1alpha1.Owner{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name})
			}
			for range d.IntN(3) {
				g := given{tenant: name, verbs: d.some("get", "list"), which: d.selector()}
				r := v1alpha1.ClusterResource{APIGroups: []string{"g"}, Resources: []string{"r", "other"}, Verbs: g.verbs, Selector: g.which}
				g.to = append(slices.Clone(owners[name]), "system:serviceaccount:"+name+"1:"+name)
				if d.IntN(2) == 0 {
					g.to = d.some(fuzzUsers...)
					for _, who := range g.to {
						r.Subjects = append(r.Subjects, fuzzSubject(who))
					}
				}
				tenant.Spec.ClusterResources = append(tenant.Spec.ClusterResources, r)
				model = append(model, g)
			}
			put(v.tenants.GetIndexer().Add(tenant))
			if d.IntN(2) == 0 {
				g := given{by: name, to: d.some(fuzzUsers...), verbs: []string{"list"}, which: d.selector()}
				setting := &v1beta1.ProxySetting{ObjectMeta: objectMeta(name+"1", "s")}
				for _, who := range g.to {
					setting.Spec.Subjects = append(setting.Spec.Subjects, v1beta1.ProxySubject{
						ProxyIdentity:    v1beta1.ProxyIdentity{Kind: fuzzSubject(who).Kind, Name: who},
						ClusterResources: []v1beta1.ClusterResource{{APIGroups: []string{"g"}, Resources: []string{"r"}, Operations: []v1beta1.ClusterResourceOperation{"List"}, Selector: &g.which}},
					})
				}
				put(v.settings.GetIndexer().Add(setting))
				model = append(model, g)
			}
		}
		for _, who := range fuzzUsers {
			for _, verb := range []string{"get", "list"} {
				identity := &user.DefaultInfo{Name: who, Groups: []string{user.AllAuthenticated}}
				all := sharedRule{v, kind, verb}.Select(identity)
				single := v.shares(identity, kind, verb)
				for _, set := range fuzzSets() {
					may := mayRead(model, owners, who, verb, set)
					if all.Refusal == "" && all.Labels.Matches(set) && !may {
						t.Errorf("%s is sent %v by a %s with %q, which nobody gave", who, set, verb, all.Labels)
					}
					if single.matches(set) != may {
						t.Errorf("%s may %s %v: %v, want %v", who, verb, set, !may, may)
					}
				}
				again := sharedRule{v, kind, verb}.Select(identity)
				if !sameSelection(all, again) {
					t.Errorf("%s is selected %v, and then %v", who, all, again)
				}
			}
		}
	})
}

func fuzzSets() []labels.Set {
	var all []labels.Set
	for _, x := range []string{"", "1", "2", "3"} {
		for _, y := range []string{"", "1", "2", "4"} {
			set := labels.Set{}
			if x != "" {
				set["x"] = x
			}
			if y != "" {
				set["y"] = y
			}
			all = append(all, set)
		}
	}
	return all
}

// mayRead returns the answer of the model.
func mayRead(model []given, owners map[string][]string, who, verb string, set labels.Set) bool {
	selects := func(g given) bool {
		s, err := metav1.LabelSelectorAsSelector(&g.which)
		return err == nil && s.Matches(set) && slices.Contains(g.verbs, verb)
	}
	return slices.ContainsFunc(model, func(g given) bool {
		if !selects(g) || !slices.Contains(g.to, who) {
			return false
		}
		if g.by == "" {
			return true
		}
		// A tenant shares the objects that one entry shares with all of its owners, with
		// users or with accounts of its namespaces.
		if namespace, _, ok := cutAccount(who); ok && namespace != g.by+"1" {
			return false
		}
		return slices.ContainsFunc(model, func(b given) bool {
			return b.tenant == g.by && selects(b) && !slices.ContainsFunc(owners[g.by], func(o string) bool { return !slices.Contains(b.to, o) })
		})
	})
}
