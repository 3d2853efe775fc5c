package flux

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// identityPolicy is the name of the admission policy of [SkipCloudIdentity] and of its binding.
const identityPolicy = "tenure-cloud-identity"

// identityKinds are the kinds whose spec.provider selects a cloud or an app of GitHub for the
// credentials, and their plurals. No Bucket is among them: the local cluster serves none.
var identityKinds = map[Kind]string{
	OCIRepository: "ocirepositories", GitRepository: "gitrepositories", HelmRepository: "helmrepositories", ImageRepository: "imagerepositories",
}

// CloudIdentity returns the source because of which an object is not ready and which fetches with
// credentials of a cloud or of a GitHub app, with its provider and its address. A HelmChart fails
// because of its HelmRepository. ok is false for other objects.
func CloudIdentity(ctx context.Context, c client.Reader, row Row) (source Ref, provider, address string, ok bool) {
	if row.State == Ready || row.State == Suspended {
		return Ref{}, "", "", false
	}
	read := func(ref Ref) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(ref.Kind.GroupVersionKind())
		if c.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, u) != nil {
			return &unstructured.Unstructured{} // it is gone
		}
		return u
	}
	source = row.Ref()
	if source.Kind == HelmChart {
		of, _, _ := unstructured.NestedStringMap(read(source).Object, "spec", "sourceRef")
		source = Ref{Kind(of["kind"]), source.Namespace, of["name"]}
	}
	if identityKinds[source.Kind] == "" {
		return Ref{}, "", "", false
	}
	object := read(source).Object
	provider, _, _ = unstructured.NestedString(object, "spec", "provider")
	address, _, _ = unstructured.NestedString(object, "spec", "url")
	return source, provider, address, provider != "" && provider != sourcev1.GenericOCIProvider
}

// FailsIdentity reports whether the message of an object is about the credentials of a cloud or of a
// GitHub app.
func FailsIdentity(row Row) bool {
	text := strings.ToLower(row.Message)
	return row.State != Ready && (strings.Contains(text, "access token") || strings.Contains(text, "failed to get credential") || strings.Contains(text, "github app"))
}

// SkipCloudIdentity makes the API server set spec.provider of the sources in refs to generic, with
// what that forbids left out, and returns when that is in effect. A later call replaces the sources of
// the earlier one. It needs Flux's CRDs and MutatingAdmissionPolicy at v1. It returns an error if the
// API server refuses the policy, or if the policy does not take effect in time.
func SkipCloudIdentity(ctx context.Context, c client.Client, refs []Ref) error {
	probe := Ref{OCIRepository, metav1.NamespaceDefault, fmt.Sprintf("%s-%d", identityPolicy, len(refs))}
	names := []string{probe.String()}
	for _, ref := range refs {
		names = append(names, ref.String())
	}
	quoted, _ := json.Marshal(names) // strings always marshal, and JSON's are CEL's
	rule := func(group string, kinds ...Kind) admissionv1.NamedRuleWithOperations {
		var plurals []string
		for _, kind := range kinds {
			plurals = append(plurals, identityKinds[kind])
		}
		return admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: plurals},
		}}
	}
	const git = `request.kind.kind == "GitRepository" && `
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: identityPolicy},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{
				rule(sourcev1.GroupVersion.Group, OCIRepository, GitRepository, HelmRepository),
				rule(ImageRepository.GroupVersionKind().Group, ImageRepository),
			}},
			MatchConditions: []admissionv1.MatchCondition{{
				Name: "without-identity",
				Expression: `has(object.spec.provider) && object.spec.provider != "generic" && has(object.metadata.name) && ` +
					`(request.kind.kind + "/" + request.namespace + "/" + object.metadata.name) in ` + string(quoted),
			}},
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch,
				JSONPatch: &admissionv1.JSONPatch{Expression: `[JSONPatch{op: "replace", path: "/spec/provider", value: "generic"}] + ` +
					// source-controller refuses the key of an app with the provider generic.
					`(` + git + `object.spec.provider == "github" && has(object.spec.secretRef) ? [JSONPatch{op: "remove", path: "/spec/secretRef"}] : []) + ` +
					`(` + git + `has(object.spec.serviceAccountName) ? [JSONPatch{op: "remove", path: "/spec/serviceAccountName"}] : [])`},
			}},
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		},
	}
	err := putIntoEffect(ctx, c, policy, func(ctx context.Context) (bool, error) {
		obj := &sourcev1.OCIRepository{
			ObjectMeta: metav1.ObjectMeta{Namespace: probe.Namespace, Name: probe.Name},
			Spec: sourcev1.OCIRepositorySpec{
				URL: "oci://registry.invalid/probe", Interval: metav1.Duration{Duration: time.Hour}, Provider: sourcev1.AmazonOCIProvider,
			},
		}
		err := c.Create(ctx, obj, client.DryRunAll)
		return obj.Spec.Provider == sourcev1.GenericOCIProvider, err
	})
	if err != nil {
		return fmt.Errorf("cannot leave out cloud identities: %w", err)
	}
	return nil
}
