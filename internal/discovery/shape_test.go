package discovery

import (
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/flux"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestShape checks that tenants that differ only in names have the same shape, and that
// each difference that decides about attacks changes the shape.
func TestShape(t *testing.T) {
	t.Parallel()
	restricted := map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	team := func(name, role string, labels map[string]string) []client.Object {
		all := map[string]string{Label: name, corev1.LabelMetadataName: name}
		for k, v := range labels {
			all[k] = v
		}
		return []client.Object{namespace(name, all), account(name, name, map[string]string{Label: name}), binding(name, role, name)}
	}
	second := func(team string, labels map[string]string) client.Object {
		all := map[string]string{Label: team}
		for k, v := range labels {
			all[k] = v
		}
		return namespace(team+"-2", all)
	}
	also := func(team, role string) client.Object {
		return &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: team + "-2", Name: "reconciler"},
			RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: team, Name: team}},
		}
	}
	in := func(namespace string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: "x"} }
	quota := func(namespace, pods string) client.Object {
		return &corev1.ResourceQuota{ObjectMeta: in(namespace), Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse(pods)}}}
	}
	network := func(namespace string, types ...networkingv1.PolicyType) client.Object {
		return &networkingv1.NetworkPolicy{ObjectMeta: in(namespace), Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: types,
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			}}}},
		}}
	}
	role := func(namespace, verb string) []client.Object {
		return []client.Object{
			&rbacv1.Role{ObjectMeta: in(namespace), Rules: []rbacv1.PolicyRule{{Verbs: []string{verb}, Resources: []string{"pods"}, APIGroups: []string{""}}}},
			&rbacv1.RoleBinding{
				ObjectMeta: in(namespace), RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "x"},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: namespace}},
			},
		}
	}
	ofDefault := func(namespace string) client.Object {
		return &rbacv1.RoleBinding{
			ObjectMeta: in(namespace), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "default"}},
		}
	}
	policy := func(expression string, selector *metav1.LabelSelector, params bool) []client.Object {
		p := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
			Validations: []admissionv1.Validation{{Expression: expression}},
		}}
		b := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "p", MatchResources: &admissionv1.MatchResources{NamespaceSelector: selector},
		}}
		if params {
			p.Spec.ParamKind = &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
			b.Spec.ParamRef = &admissionv1.ParamRef{Name: "bounds"}
		}
		return []client.Object{p, b}
	}
	param := func(namespace, value string) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bounds"}, Data: map[string]string{"limit": value}}
	}
	shared := policy("request.namespace in params.data.limit.split(',')", nil, true)
	shared[1].(*admissionv1.ValidatingAdmissionPolicyBinding).Spec.ParamRef.Namespace = "policies"
	kyverno := func(rule string) []client.Object {
		return []client.Object{manifest(t, "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: k}\nspec: {rules: ["+rule+"]}")}
	}
	const acme = "https://git.example.com/acme/"
	delivers := func(namespace, address string) []client.Object {
		return []client.Object{
			fluxObject(flux.GitRepository, namespace, "apps", map[string]any{"url": address, "ref": map[string]any{"branch": "main"}}),
			fluxObject(flux.Kustomization, namespace, "apps", map[string]any{"serviceAccountName": namespace, "sourceRef": map[string]any{"kind": "GitRepository", "name": "apps"}}),
		}
	}
	all := func(parts ...[]client.Object) (joined []client.Object) {
		for _, part := range parts {
			joined = append(joined, part...)
		}
		return joined
	}
	each := func(make func(string) client.Object) []client.Object {
		return []client.Object{make("alpha"), make("beta")}
	}
	for name, tc := range map[string]struct {
		reason string
		beta   []client.Object // tenant beta; nil means the same as alpha
		more   []client.Object
		same   bool
	}{
		"no account": {reason: "a Kustomization that names no account", more: []client.Object{
			fluxObject(flux.Kustomization, "beta", "sync", map[string]any{"path": "./"}),
		}},
		"names": {reason: "names alone make no difference", same: true},
		"another namespace": {reason: "one more namespace that is like the first", same: true, more: []client.Object{
			second("beta", restricted), also("beta", "edit"),
		}},
		"another role there": {reason: "one more namespace with other rights", more: []client.Object{
			second("beta", restricted), also("beta", "admin"),
		}},
		"another level there": {reason: "one more namespace with other labels", more: []client.Object{second("beta", nil), also("beta", "edit")}},
		"role":                {reason: "another role", beta: team("beta", "admin", restricted)},
		"labels":              {reason: "another level of Pod Security", beta: team("beta", "edit", nil)},
		"same rules":          {reason: "Roles with the same rules", more: all(role("alpha", "get"), role("beta", "get")), same: true},
		"rules":               {reason: "Roles of the same name with other rules", more: all(role("alpha", "get"), role("beta", "delete"))},
		"default":             {reason: "rights of the account that Flux falls back to", more: []client.Object{ofDefault("beta")}},
		"cluster-wide": {reason: "rights in the whole cluster", more: []client.Object{
			clusterBinding("c", "view", nil, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "beta", Name: "beta"}),
		}},
		"everybody": {reason: "rights of everybody", same: true, more: []client.Object{
			clusterBinding("c", "view", nil, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:authenticated"}),
		}},
		"group": {reason: "rights of the accounts of one namespace", more: []client.Object{
			clusterBinding("c", "view", nil, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:beta"}),
		}},
		"quota":        {reason: "a quota that one has", more: []client.Object{quota("alpha", "5")}},
		"same quota":   {reason: "the same quota", more: []client.Object{quota("alpha", "5"), quota("beta", "5")}, same: true},
		"other quota":  {reason: "another quota", more: []client.Object{quota("alpha", "5"), quota("beta", "6")}},
		"network":      {reason: "another network policy", more: []client.Object{network("alpha", "Ingress", "Egress"), network("beta", "Ingress")}},
		"same network": {reason: "network policies that name the own namespace", more: each(func(ns string) client.Object { return network(ns, "Ingress") }), same: true},
		"policy":       {reason: "a policy for both", more: policy("true", nil, false), same: true},
		"policy for one": {reason: "a policy that does not select one of them", more: policy("true", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"beta"}},
		}}, false)},
		"policy with a name":           {reason: "a policy that decides by name", more: policy("request.namespace != 'beta'", nil, false)},
		"policy with a like name":      {reason: "a part of a word is no name", more: policy("request.namespace != 'beta-2'", nil, false), same: true},
		"policy with a part of a name": {reason: "a policy that asks how a name begins", more: policy("!request.namespace.startsWith('bet')", nil, false)},
		"policy with a pattern":        {reason: "a policy that asks how a name begins and ends", more: policy("!request.namespace.matches('^bet.*x$')", nil, false)},
		"policy with a key":            {reason: "a word of a key is no part of a name", more: policy("!object.metadata.name.startsWith('bet.dev/') && 'a bet'.contains('a')", nil, false), same: true},
		"mutation for one": {reason: "a policy that sets fields for one of them", more: []client.Object{
			&admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "m"}},
			&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{
				PolicyName: "m", MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
					MatchLabels: map[string]string{corev1.LabelMetadataName: "alpha"},
				}},
			}},
		}},
		"parameters":      {reason: "other parameters of a policy", more: all(policy("true", nil, true), []client.Object{param("alpha", "1"), param("beta", "2")})},
		"same parameters": {reason: "the same parameters", more: all(policy("true", nil, true), each(func(ns string) client.Object { return param(ns, "1") })), same: true},
		"parameters that name the tenant": {
			reason: "parameters that name their own tenant", same: true,
			more: all(policy("true", nil, true), each(func(ns string) client.Object { return param(ns, ns) })),
		},
		"parameters that name the repository": {
			reason: "parameters that name their tenant's own repository", same: true,
			more: all(policy("true", nil, true), delivers("alpha", acme+"alpha"), delivers("beta", acme+"beta"), []client.Object{param("alpha", acme+"alpha"), param("beta", acme+"beta")}),
		},
		"parameters that name another repository": {
			reason: "parameters that name the repository of the other tenant",
			more:   all(policy("true", nil, true), delivers("alpha", acme+"alpha"), delivers("beta", acme+"beta"), []client.Object{param("alpha", acme+"alpha"), param("beta", acme+"alpha")}),
		},
		"parameters that name another host": {
			reason: "repositories at different hosts, which the parameters name",
			more: all(policy("true", nil, true), delivers("alpha", acme+"alpha"), delivers("beta", "http://git.beta.svc/beta"),
				[]client.Object{param("alpha", acme+"alpha"), param("beta", "http://git.beta.svc/beta")}),
		},
		"parameters that exempt one of them": {
			reason: "parameters that all share and that name one of them",
			more:   all(shared, []client.Object{param("policies", "beta,gamma")}),
		},
		"parameters that name others": {
			reason: "parameters that all share and that name none of them", same: true,
			more: all(shared, []client.Object{param("policies", "gamma,delta")}),
		},
		"Kyverno's policy for both": {reason: "a policy of Kyverno that names none of them", more: kyverno("{}"), same: true},
		"Kyverno's policy for one":  {reason: "a policy of Kyverno that excludes a namespace", more: kyverno(`{exclude: {any: [{resources: {namespaces: [beta]}}]}}`)},
		"Kyverno's policy for some": {reason: "a policy of Kyverno for some names", more: kyverno(`{match: {any: [{resources: {namespaces: ["bet*"]}}]}}`)},
		"Kyverno's exception": {reason: "an exception from a policy of Kyverno", more: append(kyverno("{}"), manifest(t, `
apiVersion: kyverno.io/v2
kind: PolicyException
metadata: {name: e, namespace: policies}
spec: {exceptions: [{policyName: k}], match: {any: [{resources: {namespaces: [beta]}}]}}`))},
		"Kyverno's exception by an expression": {reason: "an exception from a policy of Kyverno with expressions", more: []client.Object{manifest(t, `
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: k}
spec: {validations: [{expression: "false"}]}`), manifest(t, `
apiVersion: policies.kyverno.io/v1
kind: PolicyException
metadata: {name: e, namespace: policies}
spec: {policyRefs: [{name: k, kind: ValidatingPolicy}], matchConditions: [{name: beta, expression: "object.metadata.namespace == 'beta'"}]}`)}},
		"an exception from another policy": {reason: "an exception from a policy that is not there", same: true, more: append(kyverno("{}"), manifest(t, `
apiVersion: kyverno.io/v2
kind: PolicyException
metadata: {name: e, namespace: policies}
spec: {exceptions: [{policyName: other}], match: {any: [{resources: {namespaces: [beta]}}]}}`))},
		"labelled by others": {reason: "who has labelled the namespace, and that it has parameters", same: true, beta: append(team("beta", "edit", restricted)[1:],
			namespace("beta", map[string]string{
				"pod-security.kubernetes.io/enforce": "restricted", v1alpha1.LabelTenant: "beta", v1alpha1.LabelCapsuleTenant: "beta", v1alpha1.LabelParameters: "true",
			}))},
		"webhook": {reason: "a webhook for one of them", more: []client.Object{&admissionv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "w"},
			Webhooks: []admissionv1.ValidatingWebhook{{Name: "w.example.com", NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: "alpha"},
			}}},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			beta := tc.beta
			if beta == nil {
				beta = team("beta", "edit", restricted)
			}
			found := discover(t, all(team("alpha", "edit", restricted), beta, tc.more)...)
			if len(found) != 2 {
				t.Fatalf("%d tenants, want 2", len(found))
			}
			if same := found[0].Shape == found[1].Shape; same != tc.same {
				t.Errorf("%s: the shapes are equal: %t, want %t", tc.reason, same, tc.same)
			}
		})
	}
}
