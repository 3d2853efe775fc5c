package catalog

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/tenure-dev/tenure/internal/admission"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ControllerSimulated is the beginning of the reason of an attack that is not proven because the API server
// accepted the object and the object's controller does not run here.
const ControllerSimulated = "controller simulated: "

// simulated returns an attack with an object whose controller does not run on a local cluster. The attack
// is stopped if the API server refuses the object, and not proven if the API server accepts it.
func simulated(controller string, aimed, own func(*Scenario) *unstructured.Unstructured) func(context.Context, *Scenario) Finding {
	return func(ctx context.Context, e *Scenario) Finding {
		f := judge(aboutAttack(ctx, e.tryWrite(ctx, aimed(e), nil), func(ctx context.Context) error { return e.tryIntact(ctx, own(e)) }), "")
		switch f.Outcome {
		case GotThrough:
			return notProven(fmt.Sprintf(ControllerSimulated+"no policy refuses the object, and %s does not run here, so its decision is unknown", controller))
		case Stopped:
			return e.confirmRequest(ctx, f, e.tryCreate(ctx, own(e)))
		}
		return f
	}
}

// ownToo follows a control that refuses the same steps on the tenant's own objects.
const ownToo = " (own objects too)"

// onFlagger returns an attack that creates an object of Flagger. If the platform does not allow Flagger to
// the tenant, the rule tenure-flagger refuses every object, also the positive control. The attack is then
// stopped, as for a tenant without the right to create such objects.
func onFlagger(aimed, own func(*Scenario) *unstructured.Unstructured) func(context.Context, *Scenario) Finding {
	return func(ctx context.Context, e *Scenario) Finding {
		f := simulated("flagger", aimed, own)(ctx, e)
		if _, allowed := e.policy(ctx, "flagger"); f.Outcome != NotProven || allowed {
			return f
		}
		refused, ownRefused := judge(e.tryCreate(ctx, aimed(e)), ""), e.tryCreate(ctx, own(e))
		if refused.Outcome != Stopped || !strings.Contains(fmt.Sprint(ownRefused), "(rule "+admission.Prefix+"flagger)") {
			return f
		}
		if err := identityWorks(ctx, e); err != nil {
			return notProven("the tenant cannot do anything here: " + firstLine(err.Error()))
		}
		refused.Control += ownToo
		return refused
	}
}

// positiveControl runs the positive control of a stopped attack: it applies a Flux object of the tenant
// that refers to the tenant's own objects, and checks with reached that Flux processes it as far as
// expected. If the tenant may create no such object, the attack is stopped.
func (e *Scenario) positiveControl(ctx context.Context, f Finding, own *unstructured.Unstructured, reached func(readiness) bool) Finding {
	if f.Outcome != Stopped {
		return f
	}
	said, err := e.apply(ctx, own, func() {})
	if apierrors.IsForbidden(err) && judge(err, "").Control == f.Control {
		return e.withPositiveControl(ctx, f)
	}
	if err != nil {
		return notProven("the tenant cannot do it to its own objects either: " + firstLine(err.Error()))
	}
	if reachesTheServer(f, said) {
		return f
	}
	if !reached(said) {
		return notProven("the same steps with the tenant's own objects do not work either: " + firstLine(said.message))
	}
	return f
}

// reachesTheServer reports whether RBAC refused the positive control of a tenant without rights. An attack
// that another control stopped before remains stopped.
func reachesTheServer(f Finding, positive readiness) bool {
	control, _ := controlOf(positive.message)
	return f.Control != rbac && control == rbac && positive.ready == metav1.ConditionFalse
}

// isReady reports whether Flux reconciled an object successfully.
func isReady(said readiness) bool { return said.ready == "True" }

// unhealthy matches the message of kustomize-controller about applied objects that do not become healthy.
var unhealthy = regexp.MustCompile(`^health check failed after `)

// isUnhealthy reports whether Flux waits in vain for the health of objects. A policy may demand spec.wait of a Kustomization, and
// an object of an attack, such as a suspended one, never becomes healthy.
func isUnhealthy(said readiness) bool {
	return said.ready == metav1.ConditionFalse && unhealthy.MatchString(said.message)
}

// messageMatches returns a test for the message of an object that fails on purpose, after the step that the
// attack tests.
func messageMatches(words *regexp.Regexp) func(readiness) bool {
	return func(said readiness) bool { return words.MatchString(said.message) }
}

// isAllowed asks the API server whether the tenant has a right.
func (e *Scenario) isAllowed(ctx context.Context, attributes authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes}}
	if err := e.As.Create(ctx, review); err != nil {
		return false, fmt.Errorf("cannot read the tenant's rights: %w", err)
	}
	return review.Status.Allowed, nil
}
