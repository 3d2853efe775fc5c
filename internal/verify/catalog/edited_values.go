package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// syncResources are the resources of the kinds of [syncPatches].
var syncResources = map[flux.Kind]string{
	flux.Kustomization:  "kustomizations.kustomize.toolkit.fluxcd.io",
	flux.HelmRelease:    "helmreleases.helm.toolkit.fluxcd.io",
	flux.GitRepository:  "gitrepositories.source.toolkit.fluxcd.io",
	flux.OCIRepository:  "ocirepositories.source.toolkit.fluxcd.io",
	flux.HelmRepository: "helmrepositories.source.toolkit.fluxcd.io",
	flux.Bucket:         "buckets.source.toolkit.fluxcd.io",
}

// editsElsewhere returns the requests with which the tenant would change Flux objects in namespaces of no
// tenant, including its own sync, or the values that they read. It returns only requests that a role allows
// the tenant. A right to a single object suffices, since the object may name another account, and its
// values may become any manifest.
func (e *Scenario) editsElsewhere(ctx context.Context) ([]request, error) {
	var all []request
	for _, place := range e.elsewhere() {
		review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: place}}
		if err := e.As.Create(ctx, review); err != nil {
			return nil, fmt.Errorf("cannot read the tenant's rights: %w", err)
		}
		writes := func(resource, name string) bool {
			return slices.ContainsFunc(review.Status.ResourceRules, func(rule authorizationv1.ResourceRule) bool {
				return (covers(rule, "patch", resource) || covers(rule, "update", resource)) && (len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, name))
			})
		}
		objects, err := e.fluxObjectsIn(ctx, place)
		if err != nil {
			return nil, err
		}
		for _, u := range objects {
			if writes(syncResources[flux.Kind(u.GetKind())], u.GetName()) {
				all = append(all, request{
					what:  fmt.Sprintf("change %s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName()),
					aimed: changing(&u, effective(u.Object, syncPatches[flux.Kind(u.GetKind())]["spec.suspend"])),
				})
			}
		}
		values, err := e.valuesOf(ctx, objects)
		if err != nil {
			return nil, err
		}
		creates := func(resource string) bool {
			return slices.ContainsFunc(review.Status.ResourceRules, func(rule authorizationv1.ResourceRule) bool {
				return len(rule.ResourceNames) == 0 && covers(rule, "create", resource)
			})
		}
		for _, v := range values {
			there, err := e.exists(ctx, v.object)
			if err != nil {
				return nil, err
			}
			if there && writes(v.resource(), v.object.GetName()) || !there && creates(v.resource()) {
				all = append(all, v.request())
			}
		}
	}
	return all, nil
}

// editsValues returns the requests with which the tenant would change values that the platform's objects in
// the tenant's namespaces read. It omits an object that Flux applies as the tenant's own account, or as
// another account without rights elsewhere: the tenant gains nothing by changing its values.
func (e *Scenario) editsValues(ctx context.Context, made []unstructured.Unstructured) ([]request, error) {
	privileged, err := e.privilegedAccounts(ctx)
	if err != nil {
		return nil, err
	}
	strong := slices.DeleteFunc(slices.Clone(made), func(u unstructured.Unstructured) bool {
		controller := map[flux.Kind]string{flux.Kustomization: "kustomize-controller", flux.HelmRelease: "helm-controller"}[flux.Kind(u.GetKind())]
		if controller == "" {
			return true
		}
		account, _, _ := unstructured.NestedString(u.Object, "spec", "serviceAccountName")
		if account == "" {
			args, err := e.arguments(ctx, controller)
			if err != nil {
				return false
			}
			account = lastValue(args, "--default-service-account")
		}
		as := discovery.Account{Namespace: u.GetNamespace(), Name: account}
		return account != "" && !slices.ContainsFunc(privileged, func(p privilegedAccount) bool { return p.account == as })
	})
	values, err := e.valuesOf(ctx, strong)
	if err != nil {
		return nil, err
	}
	var all []request
	for _, v := range values {
		all = append(all, v.request())
	}
	return all, nil
}

// editsRecords returns the requests with which the tenant would change the release records that the
// platform keeps in the tenant's namespaces (spec.storageNamespace). With the rights of the HelmRelease,
// Helm deletes the objects that the last record lists and the chart lacks, and creates the hooks in the
// record. It omits a HelmRelease without rights elsewhere.
func (e *Scenario) editsRecords(ctx context.Context) ([]request, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(flux.HelmRelease.GroupVersionKind())
	if err := e.Admin.List(ctx, list); meta.IsNoMatchError(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("cannot list the HelmReleases: %w", err)
	}
	var strong []unstructured.Unstructured
	for _, u := range list.Items {
		storage, _, _ := unstructured.NestedString(u.Object, "status", "storageNamespace")
		if slices.Contains(e.Tenant.Namespaces, u.GetNamespace()) || !slices.Contains(e.Tenant.Namespaces, storage) || strings.HasPrefix(u.GetName(), name("")) {
			continue
		}
		account, _, _ := unstructured.NestedString(u.Object, "spec", "serviceAccountName")
		if account == "" {
			args, err := e.arguments(ctx, "helm-controller")
			if err != nil {
				return nil, err
			}
			account = lastValue(args, "--default-service-account")
		}
		more, err := e.hasRightsElsewhere(ctx, discovery.Account{Namespace: u.GetNamespace(), Name: account})
		if err != nil {
			return nil, err
		}
		if account == "" || more {
			strong = append(strong, u)
		}
	}
	values, err := e.valuesOf(ctx, strong)
	if err != nil {
		return nil, err
	}
	var all []request
	for _, v := range values {
		if slices.Contains(e.Tenant.Namespaces, v.object.GetNamespace()) {
			all = append(all, v.request())
		}
	}
	return all, nil
}

// value is a ConfigMap or a Secret with contents that Flux applies for a Flux object.
type value struct {
	object *unstructured.Unstructured
	reader string
}

func (v value) resource() string { return strings.ToLower(v.object.GetKind()) + "s" }

// request returns the request to change the value, or to create it if it does not exist: a value may be
// optional.
func (v value) request() request {
	return request{
		what: fmt.Sprintf("change %s %s/%s, which %s reads", v.object.GetKind(), v.object.GetNamespace(), v.object.GetName(), v.reader),
		aimed: func(ctx context.Context, e *Scenario) error {
			there, err := e.exists(ctx, v.object)
			if err != nil {
				return err
			}
			if !there {
				return e.tryCreate(ctx, v.object)
			}
			return changing(v.object, `{"data":{"tenure-attack":"eA=="}}`)(ctx, e)
		},
	}
}

// valuesOf returns the ConfigMaps and Secrets that Flux objects read, and the Secrets in which Helm keeps
// the manifests of releases.
func (e *Scenario) valuesOf(ctx context.Context, objects []unstructured.Unstructured) ([]value, error) {
	var all []value
	for _, u := range objects {
		reader := fmt.Sprintf("%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName())
		for _, at := range [][]string{{"spec", "valuesFrom"}, {"spec", "postBuild", "substituteFrom"}} {
			entries, _, _ := unstructured.NestedSlice(u.Object, at...)
			for _, entry := range entries {
				fields, _ := entry.(map[string]any)
				kind, _ := fields["kind"].(string)
				of, _ := fields["name"].(string)
				if of != "" && (kind == "ConfigMap" || kind == "Secret") {
					all = append(all, value{object("v1", kind, u.GetNamespace(), of, nil), reader})
				}
			}
		}
		records, err := e.releaseRecords(ctx, &u)
		if err != nil {
			return nil, err
		}
		for _, record := range records {
			all = append(all, value{object("v1", "Secret", record.Namespace, record.Name, nil), reader + " (the record of its release)"})
		}
	}
	return all, nil
}

// releaseRecords returns the Secrets in which Helm keeps the release of a HelmRelease.
func (e *Scenario) releaseRecords(ctx context.Context, u *unstructured.Unstructured) ([]corev1.Secret, error) {
	history, _, _ := unstructured.NestedSlice(u.Object, "status", "history")
	storage, _, _ := unstructured.NestedString(u.Object, "status", "storageNamespace")
	if u.GetKind() != string(flux.HelmRelease) || len(history) == 0 || storage == "" {
		return nil, nil
	}
	latest, _ := history[0].(map[string]any)
	release, _ := latest["name"].(string)
	var secrets corev1.SecretList
	if err := e.Admin.List(ctx, &secrets, client.InNamespace(storage), client.MatchingLabels{"owner": "helm", "name": release}); err != nil {
		return nil, fmt.Errorf("cannot read the records of release %s: %w", release, err)
	}
	return secrets.Items, nil
}

// changing returns a dry run that changes an object with a JSON merge patch or, without the right to patch,
// with the verb update.
func changing(u *unstructured.Unstructured, patch string) func(context.Context, *Scenario) error {
	return func(ctx context.Context, e *Scenario) error {
		err := merging(u, patch)(ctx, e)
		if control, _ := controlOf(fmt.Sprint(err)); err == nil || control != rbac {
			return err
		}
		return retryOnConflict(func() error {
			current := u.DeepCopy()
			if err := e.Admin.Get(ctx, keyOf(u), current); err != nil {
				return err
			}
			var changes map[string]any
			if err := json.Unmarshal([]byte(patch), &changes); err != nil {
				return fmt.Errorf("cannot read the patch: %w", err)
			}
			for field, value := range changes {
				fields, _ := value.(map[string]any)
				for key, content := range fields {
					if err := unstructured.SetNestedField(current.Object, content, field, key); err != nil {
						return fmt.Errorf("cannot change %s: %w", field, err)
					}
				}
			}
			return e.As.Update(ctx, current, client.DryRunAll)
		})
	}
}

// fluxObjectsIn returns the objects of syncs in a namespace, without the objects of attacks.
func (e *Scenario) fluxObjectsIn(ctx context.Context, namespace string) ([]unstructured.Unstructured, error) {
	var all []unstructured.Unstructured
	for kind := range syncPatches {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersionKind())
		if err := e.Admin.List(ctx, list, client.InNamespace(namespace)); meta.IsNoMatchError(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("cannot list the objects of kind %s: %w", kind, err)
		}
		all = append(all, list.Items...)
	}
	slices.SortFunc(all, func(a, b unstructured.Unstructured) int {
		return strings.Compare(a.GetKind()+"/"+a.GetName(), b.GetKind()+"/"+b.GetName())
	})
	return slices.DeleteFunc(all, func(u unstructured.Unstructured) bool { return strings.HasPrefix(u.GetName(), name("")) }), nil
}
