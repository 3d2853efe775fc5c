package attack

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// pushes runs an attack by a commit to what the tenant's own Kustomization
// applies: a canary that must not appear. That an honest commit is applied shows
// in the commit that takes the attack back.
func (e *Env) pushes(ctx context.Context, id string, canary *unstructured.Unstructured) Finding {
	if e.Repository == nil {
		return unproven("no repository of the tenant is mapped")
	}
	said, err := e.push(ctx, id, manifest(canary))
	touched, lookErr := e.exists(ctx, canary)
	if touched {
		e.remove(canary)
	}
	switch {
	case err != nil:
		return unproven("Flux gave no answer in time: " + firstLine(err.Error()))
	case lookErr != nil:
		return unproven("cannot look after the canary: " + firstLine(lookErr.Error()))
	case touched || said.ready == "True":
		return through(fmt.Sprintf("Flux applied %s %s from the tenant's repository", canary.GetKind(), canary.GetName()))
	}
	control, ok := controlOf(said.message)
	if !ok {
		return unproven("the answer is neither yes nor a refusal: " + firstLine(said.message))
	}
	return stopped(control, firstLine(said.message))
}
