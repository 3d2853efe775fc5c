package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addLookalikeNamespace(register func(...Attack)) {
	register(Attack{
		ID: "I16", Via: API, Owners: OwnersAnywhere,
		Kinds:      []string{"Namespace"},
		Title:      "creates a namespace whose name or label only looks like an allowed one",
		Controls:   []string{"RBAC on namespaces", "policy and webhook that compare names exactly"},
		References: []string{"GHSA-gjw4-3v3v-rqxg"},
		Fix:        Fix{Advice: "compare names, owners and labels of namespaces exactly, in lower case, with patterns that match whole names"},
		Slow:       true,
		Run:        readsLikeAnother,
	})
}

// nameCheck is the control that stops names that no object can have.
const nameCheck = "Kubernetes' check of names"

// readsLikeAnother tries to create namespaces whose names and labels differ from forbidden ones in case
// only, or that use an allowed name as a pattern.
func readsLikeAnother(ctx context.Context, e *Scenario) Finding {
	names, err := e.keptNames(ctx)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	// The positive control runs once, since the profile may list a hundred names.
	accepted := false
	own := func(ctx context.Context, e *Scenario) error {
		if accepted {
			return nil
		}
		err := e.positiveControlNamespace(ctx)
		accepted = err == nil
		return err
	}
	var all []request
	for _, kept := range names {
		all = append(all, request{what: "make a namespace " + kept + ", a name that the platform keeps", aimed: e.makesNamespace(kept, e.Tenant.Name), own: own})
	}
	// Kubernetes refuses capital letters in every name, so one name is enough.
	inOtherLetters := strings.ToUpper(names[0][:1]) + names[0][1:]
	all = append(all, request{what: "make a namespace with the name " + names[0] + " in other letters", aimed: checkedName(e.makesNamespace(inOtherLetters, e.Tenant.Name)), own: own})
	for what, tenant := range map[string]string{
		"its tenant's name in other letters": strings.ToUpper(e.Tenant.Name[:1]) + e.Tenant.Name[1:],
		"its tenant's name as a pattern":     e.Tenant.Name[:1] + "." + e.Tenant.Name[min(len(e.Tenant.Name)-1, 2):],
	} {
		if tenant != e.Tenant.Name {
			all = append(all, request{what: "make a namespace for the tenant " + tenant + ", " + what, aimed: e.makesNamespace(name("i16"), tenant), own: own})
		}
	}
	return requests(all...)(ctx, e)
}

// checkedName turns the answer to a name that no object can have into a refusal: the part of the API server
// that refuses the name does not matter.
func checkedName(try func(context.Context, *Scenario) error) func(context.Context, *Scenario) error {
	return func(ctx context.Context, e *Scenario) error {
		err := try(ctx, e)
		var status *apierrors.StatusError
		if apierrors.IsInvalid(err) && errors.As(err, &status) && status.ErrStatus.Details != nil &&
			slices.ContainsFunc(status.ErrStatus.Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.name" }) {
			return &invalidNameError{err}
		}
		return err
	}
}

// invalidNameError is the error for a name that Kubernetes does not allow.
type invalidNameError struct{ error }

func (e *invalidNameError) Unwrap() error { return e.error }

// makesNamespace returns a dry run that creates a namespace with the labels of a tenant's owner.
func (e *Scenario) makesNamespace(name, tenant string) func(context.Context, *Scenario) error {
	return func(ctx context.Context, e *Scenario) error {
		u := object("v1", "Namespace", "", name, nil)
		u.SetLabels(labelsOfOwners(tenant))
		return e.tryCreate(ctx, u)
	}
}

// labelsOfOwners returns the labels of a namespace that an owner creates for a tenant.
// The webhook adds them. The attack sets them itself, so that a fleet without the webhook
// does not deny the namespace for missing labels.
func labelsOfOwners(tenant string) map[string]string {
	return map[string]string{v1alpha1.LabelTenant: tenant, v1alpha1.LabelMadeBy: v1alpha1.MadeByOwner}
}

// keptNames returns reserved namespace names that no namespace has: the API server would refuse an existing
// name for that reason alone.
func (e *Scenario) keptNames(ctx context.Context) ([]string, error) {
	names := []string{"kube-" + name("i16")}
	profile := object(v1alpha1.GroupVersion.String(), "TenancyProfile", "", v1alpha1.ProfileName, nil)
	if there, err := e.exists(ctx, profile); err != nil || !there {
		return names, err
	}
	if err := e.Admin.Get(ctx, keyOf(profile), profile); err != nil {
		return nil, fmt.Errorf("cannot read the TenancyProfile: %w", err)
	}
	patterns, _, _ := unstructured.NestedStringSlice(profile.Object, "spec", "protectedNamespaces")
	for _, pattern := range patterns {
		names = append(names, strings.ReplaceAll(pattern, "*", name("i16")))
	}
	return names, nil
}

// positiveControlNamespace asks the API server whether the tenant could create a namespace that its Tenant
// allows.
func (e *Scenario) positiveControlNamespace(ctx context.Context) error {
	u, err := e.wantedNamespace(ctx)
	if err != nil {
		return err
	}
	return e.As.Create(ctx, u, client.DryRunAll)
}

// wantedNamespace returns a namespace that the Tenant allows.
func (e *Scenario) wantedNamespace(ctx context.Context) (*unstructured.Unstructured, error) {
	u := object("v1", "Namespace", "", name(e.ofTenant("i16")), nil)
	u.SetLabels(labelsOfOwners(e.Tenant.Name))
	tenant := object(v1alpha1.GroupVersion.String(), "Tenant", "", e.Tenant.Name, nil)
	there, err := e.exists(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("cannot read the Tenant: %w", err)
	}
	if there {
		if err := e.Admin.Get(ctx, keyOf(tenant), tenant); err != nil {
			return nil, fmt.Errorf("cannot read the Tenant: %w", err)
		}
		asWanted(u, tenant)
	}
	return u, nil
}

// asWanted gives a namespace the name, labels and annotations that its Tenant requires.
func asWanted(ns, tenant *unstructured.Unstructured) {
	if prefix, given, _ := unstructured.NestedBool(tenant.Object, "spec", "namespaces", "prefix"); prefix || !given {
		ns.SetName(tenant.GetName() + "-" + ns.GetName())
	}
	wanted := func(have map[string]string, field string) map[string]string {
		patterns, _, _ := unstructured.NestedStringMap(tenant.Object, "spec", "namespaces", "required", field)
		for key, pattern := range patterns {
			if have == nil {
				have = map[string]string{}
			}
			have[key] = strings.ReplaceAll(pattern, "*", "x")
		}
		return have
	}
	ns.SetLabels(wanted(ns.GetLabels(), "labels"))
	ns.SetAnnotations(wanted(ns.GetAnnotations(), "annotations"))
}
