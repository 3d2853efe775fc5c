package flux

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AssumedReason and AssumedMessage are the reason and message of the condition
// Ready of an object that is assumed to be ready.
const (
	AssumedReason  = "Assumed"
	AssumedMessage = "assumed ready (--assume)"
)

const (
	// assumePolicy is the name of the admission policy and of its binding, and the field
	// manager of all objects that this file writes.
	assumePolicy = "tenure-assume"
	// policyTimeout bounds the wait for the policy, which the API server
	// reads about a second after it was written.
	policyTimeout = time.Minute
)

// probe names a Kustomization that is only ever created as a dry run, to see
// whether the policy is in effect.
var probe = Ref{Kustomization, metav1.NamespaceDefault, "tenure-assume-probe"}

// assumableKinds are the kinds with spec.suspend and a condition Ready that other objects wait for.
// The two kinds of flux-operator have the annotation [reconcileAnnotation] instead of spec.suspend.
var assumableKinds = []Kind{OCIRepository, Bucket, GitRepository, HelmRepository, HelmChart, HelmRelease, Kustomization, ImageRepository, ImagePolicy, ImageUpdateAutomation, ResourceSet, ResourceSetInputProvider}

// anything stands for every namespace or every name in a reference.
const anything = "*"

// ParseAssumption reads what --assume names: NAMESPACE/NAME, which is the
// Kustomization or HelmRelease of the name (or both), or KIND/NAMESPACE/NAME,
// which may also be a source. The namespace and the name may be *, but not for all
// Kustomizations, since the root is one of them. It returns an error for another form, or for a
// kind that cannot be assumed ready.
func ParseAssumption(s string) ([]Ref, error) {
	refs, err := parseAssumption(s)
	if err == nil && slices.Contains(refs, Ref{Kustomization, anything, anything}) {
		return nil, fmt.Errorf("cannot assume %q: the root Kustomization is among them, and nothing would be applied: name a namespace or another kind, such as HelmRelease/*/*", s)
	}
	return refs, err
}

func parseAssumption(s string) ([]Ref, error) {
	if parts := strings.Split(s, "/"); len(parts) == 2 && !slices.Contains(parts, "") {
		return []Ref{{Kustomization, parts[0], parts[1]}, {HelmRelease, parts[0], parts[1]}}, nil
	}
	ref, err := ParseRef(s)
	if err != nil {
		return nil, fmt.Errorf("cannot assume %q: want NAMESPACE/NAME or KIND/NAMESPACE/NAME", s)
	}
	if !slices.Contains(assumableKinds, ref.Kind) {
		return nil, fmt.Errorf("cannot assume %q: only sources, Kustomizations, HelmReleases, image objects, ResourceSets and their input providers can be assumed ready", s)
	}
	return []Ref{ref}, nil
}

// SuspendAssumed makes the API server suspend the objects from the moment they are created, so
// that Flux never tries them, and returns when that is in effect. It needs Flux's CRDs and
// MutatingAdmissionPolicy at v1 (Kubernetes 1.36). Without objects it takes back what an
// earlier call did to the API server. [KeepAssumed] must run for the objects to count as ready.
// It returns an error if the API server refuses the policy, or if the policy does not take
// effect in time.
func SuspendAssumed(ctx context.Context, c client.Client, refs []Ref) error {
	policy, binding := assumePolicyFor(refs)
	if len(refs) == 0 {
		for _, obj := range []client.Object{binding, policy} {
			if err := c.Delete(ctx, obj); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("cannot remove the policy of --assume: %w", err)
			}
		}
		return nil
	}
	for _, obj := range []client.Object{policy, binding} {
		err := c.Create(ctx, obj)
		if apierrors.IsAlreadyExists(err) {
			err = replace(ctx, c, obj)
		}
		if err != nil {
			return fmt.Errorf("cannot install the policy of --assume: %w", err)
		}
	}
	return waitForPolicy(ctx, c)
}

// waitForPolicy creates the probe, as a dry run, until it comes back suspended.
// The policy itself may refuse it at first, while admission has not learnt of
// CRDs that were installed just before.
func waitForPolicy(ctx context.Context, c client.Client) error {
	var refused error
	err := wait.PollUntilContextTimeout(ctx, retryPause, policyTimeout, true, func(ctx context.Context) (bool, error) {
		obj := &kustomizev1.Kustomization{
			ObjectMeta: metav1.ObjectMeta{Namespace: probe.Namespace, Name: probe.Name},
			Spec: kustomizev1.KustomizationSpec{
				Interval:  metav1.Duration{Duration: time.Hour},
				SourceRef: kustomizev1.CrossNamespaceSourceReference{Kind: sourcev1.GitRepositoryKind, Name: probe.Name},
			},
		}
		refused = c.Create(ctx, obj, client.DryRunAll)
		return refused == nil && obj.Spec.Suspend, nil
	})
	if err != nil {
		return fmt.Errorf("cannot see the policy of --assume take effect: %w", errors.Join(err, refused))
	}
	return nil
}

func replace(ctx context.Context, c client.Client, obj client.Object) error {
	current := obj.DeepCopyObject().(client.Object)
	if err := c.Get(ctx, client.ObjectKeyFromObject(obj), current); err != nil {
		return err
	}
	obj.SetResourceVersion(current.GetResourceVersion())
	return c.Update(ctx, obj)
}

// assumePolicyFor writes the policy. It applies on updates too, since the next
// apply of the fleet's manifest would take spec.suspend away again.
func assumePolicyFor(refs []Ref) (*admissionv1.MutatingAdmissionPolicy, *admissionv1.MutatingAdmissionPolicyBinding) {
	var names []string
	var rules []admissionv1.NamedRuleWithOperations
	patterns := ""
	for _, ref := range append(slices.Clone(refs), probe) {
		if ref.IsPattern() {
			patterns += " || " + ref.expression()
			continue
		}
		names = append(names, ref.String())
	}
	for _, kind := range assumableKinds {
		info, _ := infoOf(kind)
		rules = append(rules, admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule: admissionv1.Rule{
				APIGroups: []string{info.version.Group}, APIVersions: []string{"*"}, Resources: []string{info.plural},
			},
		}})
	}
	list, _ := json.Marshal(names) // strings always marshal, and JSON's are CEL's
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: assumePolicy},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: rules},
			MatchConditions: []admissionv1.MatchCondition{{
				Name: "assumed",
				Expression: `has(object.metadata.name) && (` +
					`(request.kind.kind + "/" + request.namespace + "/" + object.metadata.name) in ` + string(list) + patterns + `)`,
			}},
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch,
				JSONPatch: &admissionv1.JSONPatch{Expression: `request.kind.group != "` + operatorVersion.Group + `" ? ` +
					`[JSONPatch{op: "add", path: "/spec/suspend", value: true}] : ` +
					`(has(object.metadata.annotations) ? [] : [JSONPatch{op: "add", path: "/metadata/annotations", value: {}}]) + ` +
					`[JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey("` + reconcileAnnotation + `"), value: "` + disabled + `"}]`},
			}},
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		},
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: assumePolicy},
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: assumePolicy},
	}
	return policy, binding
}

// IsPattern reports whether the reference has * as namespace or name.
func (r Ref) IsPattern() bool { return r.Namespace == anything || r.Name == anything }

// Matches reports whether a reference, which may be a pattern, names an object.
func (r Ref) Matches(object Ref) bool {
	return r.Kind == object.Kind && (r.Namespace == anything || r.Namespace == object.Namespace) && (r.Name == anything || r.Name == object.Name)
}

// expression returns CEL that is true for the objects that a pattern names.
func (r Ref) expression() string {
	terms := []string{`request.kind.kind == "` + string(r.Kind) + `"`}
	for field, value := range map[string]string{"request.namespace": r.Namespace, "object.metadata.name": r.Name} {
		if value != anything {
			quoted, _ := json.Marshal(value)
			terms = append(terms, field+" == "+string(quoted))
		}
	}
	slices.Sort(terms)
	return "(" + strings.Join(terms, " && ") + ")"
}

// Unmapped returns the objects that fail only because an address has no folder here, by the
// message of the local network: sources, and objects whose source is one of them. The objects in
// known stay in the result.
func Unmapped(rows []Row, known []Ref) []Ref {
	found := slices.Clone(known)
	for changed := true; changed; {
		changed = false
		for _, row := range rows {
			if !slices.Contains(assumableKinds, row.Kind) || slices.Contains(found, row.Ref()) {
				continue
			}
			unmapped := row.State != Ready && row.State != Suspended && lacksAddress(row)
			// The first need is the source; others can be sources too that a Kustomization applies.
			if unmapped || len(row.Needs) > 0 && slices.Contains(append(SourceKinds(), ImageRepository), row.Needs[0].Kind) && slices.Contains(found, row.Needs[0]) {
				found, changed = append(found, row.Ref()), true
			}
		}
	}
	return found
}

// lacksAddress reports whether the message of an object is about an address that it needs itself. A
// source that is mapped can lack the address of a service that verifies its signature, and the
// message of a Kustomization can be that of an object whose health it waits for.
func lacksAddress(row Row) bool {
	return strings.Contains(row.Message, notMapped) && !FailsVerification(row) &&
		(row.Kind != Kustomization || strings.Contains(row.Message, "build failed"))
}

// notMapped is a part of the messages about addresses that no folder serves.
const notMapped = "is not mapped"

// KeepAssumed writes the status of the objects, now and whenever they or their
// sources change, so that whatever depends on them goes on: Ready is True, the
// generation is the current one, and a Kustomization has applied its source's
// current revision, which kustomize-controller compares when a dependent comes
// from the same source. Objects that do not exist (yet) are waited for, and such
// that were there before [SuspendAssumed] are suspended.
//
// choose returns the objects, which may be patterns, for the current rows.
//
// It returns the context's cause, or an error when the user may not read or
// write the objects; other errors are tried again.
func KeepAssumed(ctx context.Context, c client.WithWatch, choose func(rows []Row) []Ref) error {
	for {
		err := Watch(ctx, c, Selection{Kinds: append(DeployKinds(), ImageRepository, ImagePolicy, ImageUpdateAutomation, ResourceSet, ResourceSetInputProvider)}, func(rows []Row) error {
			return assumeAll(ctx, c, rows, choose(rows))
		})
		if ctx.Err() != nil || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return err
		}
		timer := time.NewTimer(maxPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
}

func assumeAll(ctx context.Context, c client.Client, rows []Row, refs []Ref) error {
	byRef := map[Ref]Row{}
	for _, row := range rows {
		byRef[row.Ref()] = row
	}
	for _, row := range rows {
		if !namesObject(refs, row.Ref()) {
			continue
		}
		if err := assume(ctx, c, row, byRef); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot assume %s: %w", row.Ref(), err)
		}
	}
	return release(ctx, c, rows, refs)
}

func namesObject(refs []Ref, object Ref) bool {
	return slices.ContainsFunc(refs, func(ref Ref) bool { return ref.Matches(object) })
}

// release resumes the objects that an earlier run assumed to be ready and that this run does not.
func release(ctx context.Context, c client.Client, rows []Row, refs []Ref) error {
	for _, row := range rows {
		if !row.Suspended || row.Message != AssumedMessage || namesObject(refs, row.Ref()) {
			continue
		}
		if err := mergePatch(ctx, c.Patch, row.Ref(), suspension(row.Kind, nil, nil)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot resume %s, which is no longer assumed: %w", row.Ref(), err)
		}
	}
	return nil
}

// assume brings one object into the state that KeepAssumed promises, or a step
// nearer to it: each step changes the object, and the change calls again.
func assume(ctx context.Context, c client.Client, row Row, rows map[Ref]Row) error {
	owner := client.FieldOwner(assumePolicy)
	if !row.Suspended {
		return mergePatch(ctx, c.Patch, row.Ref(), suspension(row.Kind, true, disabled), owner)
	}
	revision := row.Revision
	if row.Kind == Kustomization && len(row.Needs) > 0 {
		revision = rows[row.Needs[0]].Revision
	}
	current := row.Ready == string(metav1.ConditionTrue) && row.Message == AssumedMessage && row.observed == row.generation
	if current && (row.Kind != Kustomization || row.Revision == revision) {
		return nil
	}
	status := map[string]any{
		"observedGeneration": row.generation,
		"conditions": []metav1.Condition{{
			Type: meta.ReadyCondition, Status: metav1.ConditionTrue,
			Reason: AssumedReason, Message: AssumedMessage,
			ObservedGeneration: row.generation, LastTransitionTime: metav1.Now(),
		}},
	}
	if row.Kind == Kustomization {
		status["lastAppliedRevision"], status["lastAttemptedRevision"] = revision, revision
	}
	if row.Kind == ResourceSetInputProvider {
		inputs, err := defaultInputs(ctx, c, row)
		if err != nil {
			return err
		}
		// A ResourceSet that was built without inputs is built again when the revision changes.
		status["exportedInputs"], status["lastExportedRevision"] = inputs, fmt.Sprintf("sha256:%x", sha256.Sum256(fmt.Append(nil, inputs)))
	}
	patch := func(ctx context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
		return c.Status().Patch(ctx, obj, patch, owner)
	}
	return mergePatch(ctx, patch, row.Ref(), map[string]any{"status": status})
}

// suspension returns the patch that suspends an object of Flux with a value of spec.suspend, or
// an object of flux-operator with a value of its annotation; nil resumes it.
func suspension(kind Kind, suspend, annotation any) map[string]any {
	if kind.GroupVersionKind().GroupVersion() == operatorVersion {
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{reconcileAnnotation: annotation}}}
	}
	return map[string]any{"spec": map[string]any{"suspend": suspend}}
}

// defaultInputs returns the inputs of a provider that is assumed: its default values, with an
// id as every input of a provider has one.
func defaultInputs(ctx context.Context, c client.Client, row Row) ([]any, error) {
	provider := &unstructured.Unstructured{}
	provider.SetGroupVersionKind(row.Kind.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKey{Namespace: row.Namespace, Name: row.Name}, provider); err != nil {
		return nil, err
	}
	input, _, err := unstructured.NestedMap(provider.Object, "spec", "defaultValues")
	if err != nil || len(input) == 0 {
		return []any{}, nil //nolint:nilerr // without default values it has no input
	}
	if _, ok := input["id"]; !ok {
		input["id"] = AssumedReason
	}
	return []any{input}, nil
}
