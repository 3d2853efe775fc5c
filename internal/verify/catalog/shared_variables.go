package catalog

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// noVariableControl is the control that stops a tenant whose sync reads no values of others.
const noVariableControl = "variables per tenant"

// variableName matches the keys of a Secret that are names of variables.
var variableName = regexp.MustCompile("^[_A-Za-z][_A-Za-z0-9]*$")

// sharedVariable is a key of a Secret that kustomize-controller substitutes in manifests of the tenant.
type sharedVariable struct {
	secret client.ObjectKey
	key    string
	// reader is another Flux object that reads the Secret, as KIND NAMESPACE/NAME.
	reader string
}

// sharedVariables returns one variable of each Secret that the platform's syncs of the tenant substitute
// and that Flux also reads for others. A ConfigMap holds no secrets, and a Secret that Flux reads for no
// other object belongs to the tenant.
func (e *Scenario) sharedVariables(ctx context.Context) ([]sharedVariable, error) {
	if e.Repository == nil || !e.platformDelivers() {
		return nil, nil
	}
	in := e.deliversFrom()
	readers, err := e.kustomizations(ctx)
	if err != nil {
		return nil, err
	}
	releases := &unstructured.UnstructuredList{}
	releases.SetGroupVersionKind(flux.HelmRelease.GroupVersionKind())
	if err := e.Admin.List(ctx, releases, client.InNamespace(in)); err != nil {
		return nil, fmt.Errorf("cannot list the HelmReleases: %w", err)
	}
	var own []string
	others := map[string]string{}
	for _, u := range append(readers, releases.Items...) {
		if u.GetNamespace() != in {
			continue
		}
		tenants := u.GetKind() == string(flux.Kustomization) && e.appliesTenant(client.ObjectKeyFromObject(&u))
		for _, secret := range valueSecrets(&u) {
			switch {
			case !tenants:
				others[secret] = fmt.Sprintf("%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName())
			case !slices.Contains(own, secret):
				own = append(own, secret)
			}
		}
	}
	var shared []sharedVariable
	for _, name := range own {
		if others[name] == "" {
			continue
		}
		secret := &corev1.Secret{}
		err := e.Admin.Get(ctx, client.ObjectKey{Namespace: in, Name: name}, secret)
		if apierrors.IsNotFound(err) {
			continue // it is optional
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read Secret %s/%s: %w", in, name, err)
		}
		for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
			if variableName.MatchString(key) && strings.Trim(string(secret.Data[key]), "\n") != "" {
				shared = append(shared, sharedVariable{client.ObjectKeyFromObject(secret), key, others[name]})
				break
			}
		}
	}
	return shared, nil
}

// valueSecrets returns the names of the Secrets with values that become part of the objects which Flux
// applies for a Flux object.
func valueSecrets(u *unstructured.Unstructured) []string {
	var names []string
	for _, at := range [][]string{{"spec", "valuesFrom"}, {"spec", "postBuild", "substituteFrom"}} {
		entries, _, _ := unstructured.NestedSlice(u.Object, at...)
		for _, entry := range entries {
			fields, _ := entry.(map[string]any)
			if name, _ := fields["name"].(string); name != "" && fields["kind"] == "Secret" {
				names = append(names, name)
			}
		}
	}
	return names
}

// variableID is a part of the names of the objects and folders for the canaries with variables.
const variableID = "S10-git-variables"

// canaryOf returns a ConfigMap with the length of a variable, so that the value itself is not copied.
func (e *Scenario) canaryOf(v sharedVariable) *unstructured.Unstructured {
	return object("v1", "ConfigMap", e.Namespace, name(variableID), map[string]any{"data": map[string]any{"length": "length ${#" + v.key + "}"}})
}

// variableFiles returns a canary for the first shared variable, and no file if there is none.
func (e *Scenario) variableFiles() map[string]string {
	ctx, cancel := context.WithTimeout(context.Background(), sealPatience)
	defer cancel()
	shared, err := e.sharedVariables(ctx)
	if err != nil || len(shared) == 0 {
		return nil // Run reports the error.
	}
	return map[string]string{"variables/canary.yaml": manifest(e.canaryOf(shared[0]))}
}

// readsVariables makes Flux write the length of the first shared variable into a ConfigMap of the tenant,
// from the Secret that the tenant's own sync names. It returns the finding f if there is no shared
// variable.
func (e *Scenario) readsVariables(ctx context.Context, f Finding) Finding {
	shared, err := e.sharedVariables(ctx)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	if len(shared) == 0 {
		return f
	}
	if e, err = e.delivering(ctx); err != nil {
		return notProven(firstLine(err.Error()))
	}
	v := shared[0]
	canary := e.canaryOf(v)
	if there, err := e.exists(ctx, canary); err != nil || there {
		return notProven(fmt.Sprintf("the canary %s cannot be distinguished from an existing object (%v)", keyOf(canary), err))
	}
	sync := e.kustomization(variableID, folder("S10-git-shared")+"/variables", func(spec map[string]any) {
		e.asItSyncs(spec)
		spec["postBuild"] = map[string]any{"substituteFrom": []any{map[string]any{"kind": "Secret", "name": v.secret.Name}}}
	})
	var length string
	var lookErr error
	said, err := e.apply(ctx, sync, func() {
		made := canary.DeepCopy()
		if lookErr = client.IgnoreNotFound(e.Admin.Get(ctx, keyOf(canary), made)); lookErr == nil {
			length, _, _ = unstructured.NestedString(made.Object, "data", "length")
		}
	})
	switch {
	case lookErr != nil:
		return notProven("cannot read the canary: " + firstLine(lookErr.Error()))
	case err != nil:
		return notProven("the Kustomization for the variables was refused: " + firstLine(err.Error()))
	case variableRead.MatchString(length):
		e.remove(canary)
		return gotThrough(fmt.Sprintf("Flux wrote what is in key %s of Secret %s into its manifest, and %s reads this Secret for others", v.key, v.secret, v.reader))
	}
	e.remove(canary)
	return notProven("the answer is neither a success nor a known refusal: " + firstLine(said.message))
}

// variableRead matches the length of a variable that has a value.
var variableRead = regexp.MustCompile("^length [1-9][0-9]*$")
