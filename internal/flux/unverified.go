package flux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// unverifiedPolicy is the name of the admission policy of [SkipVerification] and of its binding.
const unverifiedPolicy = "tenure-unverified"

// verifiedKinds are the kinds of sources whose spec.verify demands a signature, and their plurals.
var verifiedKinds = map[Kind]string{OCIRepository: "ocirepositories", GitRepository: "gitrepositories", HelmChart: "helmcharts"}

// SkipVerification makes the API server remove spec.verify from the OCIRepositories of the
// addresses and from the sources in refs, and returns when that is in effect. The local cluster
// serves their content itself, without the signature of its authors. A later call replaces the
// earlier one's addresses and sources. It needs Flux's CRDs and MutatingAdmissionPolicy at v1. It
// returns an error if the API server refuses the policy, or if the policy does not take effect in
// time.
func SkipVerification(ctx context.Context, c client.Client, addresses []string, refs []Ref) error {
	// Its name is new for each list, so that it shows when the API server has read the policy.
	probe := Ref{OCIRepository, metav1.NamespaceDefault, fmt.Sprintf("%s-%d-%d", unverifiedPolicy, len(addresses), len(refs))}
	names := []string{probe.String()}
	for _, ref := range refs {
		names = append(names, ref.String())
	}
	quoted, _ := json.Marshal(append([]string{}, addresses...)) // strings always marshal, and JSON's are CEL's
	quotedNames, _ := json.Marshal(names)
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: unverifiedPolicy},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
					Rule: admissionv1.Rule{
						APIGroups: []string{sourcev1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: slices.Sorted(maps.Values(verifiedKinds)),
					},
				},
			}}},
			MatchConditions: []admissionv1.MatchCondition{{
				Name: "served-here",
				Expression: `has(object.spec.verify) && (has(object.spec.url) && object.spec.url in ` + string(quoted) +
					` || has(object.metadata.name) && (request.kind.kind + "/" + request.namespace + "/" + object.metadata.name) in ` + string(quotedNames) + `)`,
			}},
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch,
				JSONPatch: &admissionv1.JSONPatch{Expression: `[JSONPatch{op: "remove", path: "/spec/verify"}]`},
			}},
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		},
	}
	err := putIntoEffect(ctx, c, policy, func(ctx context.Context) (bool, error) {
		obj := &sourcev1.OCIRepository{
			ObjectMeta: metav1.ObjectMeta{Namespace: probe.Namespace, Name: probe.Name},
			Spec: sourcev1.OCIRepositorySpec{
				URL: "oci://registry.invalid/probe", Interval: metav1.Duration{Duration: time.Hour},
				Verify: &sourcev1.OCIRepositoryVerification{Provider: "cosign"},
			},
		}
		err := c.Create(ctx, obj, client.DryRunAll)
		return obj.Spec.Verify == nil, err
	})
	if err != nil {
		return fmt.Errorf("cannot leave out signatures: %w", err)
	}
	return nil
}

// putIntoEffect installs a policy that changes objects, with a binding of its name, and returns when
// changes reports true without an error: the API server reads policies a moment later.
func putIntoEffect(ctx context.Context, c client.Client, policy *admissionv1.MutatingAdmissionPolicy, changes func(context.Context) (bool, error)) error {
	binding := &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policy.Name},
	}
	for _, obj := range []client.Object{policy, binding} {
		err := c.Create(ctx, obj)
		if apierrors.IsAlreadyExists(err) {
			err = replace(ctx, c, obj)
		}
		if err != nil {
			return fmt.Errorf("cannot install the policy %s: %w", policy.Name, err)
		}
	}
	var refused error
	err := wait.PollUntilContextTimeout(ctx, retryPause, policyTimeout, true, func(ctx context.Context) (bool, error) {
		var changed bool
		changed, refused = changes(ctx)
		return changed && refused == nil, nil
	})
	if err != nil {
		return fmt.Errorf("cannot see the policy %s take effect: %w", policy.Name, errors.Join(err, refused))
	}
	return nil
}

// Unverified returns the address of a source whose signature Flux could not verify, by its message,
// and whether it is one. public reports whether the source trusts Sigstore's public root, which Flux
// fetches, and neither a key nor a root of its own. The address of a HelmChart is its HelmRepository's,
// with the name of the chart in an OCI registry, or "" for a chart from another source.
func Unverified(ctx context.Context, c client.Reader, row Row) (address string, public, ok bool) {
	if row.State == Ready || row.State == Suspended || !FailsVerification(row) {
		return "", false, false
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(row.Kind.GroupVersionKind())
	if c.Get(ctx, client.ObjectKey{Namespace: row.Namespace, Name: row.Name}, u) != nil {
		return "", false, false
	}
	verify, _, _ := unstructured.NestedMap(u.Object, "spec", "verify")
	if len(verify) == 0 {
		return "", false, false
	}
	public = row.Kind != GitRepository && verify["secretRef"] == nil && verify["trustedRootSecretRef"] == nil
	chart := ""
	if row.Kind == HelmChart {
		chart, _, _ = unstructured.NestedString(u.Object, "spec", "chart")
		source, _, _ := unstructured.NestedStringMap(u.Object, "spec", "sourceRef")
		u = &unstructured.Unstructured{}
		u.SetGroupVersionKind(Kind(source["kind"]).GroupVersionKind())
		if c.Get(ctx, client.ObjectKey{Namespace: row.Namespace, Name: source["name"]}, u) != nil {
			return "", false, false
		}
	}
	address, _, _ = unstructured.NestedString(u.Object, "spec", "url")
	if chart != "" && strings.HasPrefix(address, "oci://") {
		address = strings.TrimSuffix(address, "/") + "/" + chart
	}
	return address, public, true
}

// FailsVerification reports whether the message of a source is about its signature.
func FailsVerification(row Row) bool {
	return verifiedKinds[row.Kind] != "" && strings.Contains(row.Message, "verif")
}

// WithoutVerification removes spec.verify from a source; see [SkipVerification]. It returns the error of the API server.
func WithoutVerification(ctx context.Context, c client.Client, ref Ref) error {
	return mergePatch(ctx, c.Patch, ref, map[string]any{"spec": map[string]any{"verify": nil}}, client.FieldOwner(unverifiedPolicy))
}

// DemandsVerification reports whether an admission policy of the cluster refers to spec.verify. It returns an error if it cannot list the policies.
func DemandsVerification(ctx context.Context, c client.Reader) (bool, error) {
	policies := &admissionv1.ValidatingAdmissionPolicyList{}
	if err := c.List(ctx, policies); err != nil {
		return false, fmt.Errorf("cannot see the policies about signatures: %w", err)
	}
	return slices.ContainsFunc(policies.Items, func(policy admissionv1.ValidatingAdmissionPolicy) bool {
		spec, _ := json.Marshal(policy.Spec) // an object of Kubernetes always marshals
		return strings.Contains(string(spec), "spec.verify")
	}), nil
}
