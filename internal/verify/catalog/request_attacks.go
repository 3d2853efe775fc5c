package catalog

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// request is a request for a foreign object, with its positive control.
type request struct {
	// what describes the request in a phrase that completes "it could …".
	what string
	// aimed sends the request, as a dry run if it would write.
	aimed func(context.Context, *Scenario) error
	// own sends the same request for an object of the tenant. It is nil if a tenant owns no such object. If
	// it is nil, and if RBAC does not allow the request at all, another request shows that the identity
	// works.
	own func(context.Context, *Scenario) error
}

// requests returns an attack that only sends requests. A control must refuse each aimed request, and the
// API server must accept the positive control of each request that has one.
func requests(all ...request) func(context.Context, *Scenario) Finding {
	return func(ctx context.Context, e *Scenario) Finding {
		var controls, messages []string
		var works bool
		for _, r := range all {
			err := r.aimed(ctx, e)
			var own func(context.Context) error
			if r.own != nil {
				own = func(ctx context.Context) error { return r.own(ctx, e) }
			}
			err = aboutAttack(ctx, err, own)
			f := judge(err, "it could "+r.what)
			if f.Outcome != Stopped {
				return f
			}
			if other := byAnotherRule(ctx, err, f); other.Outcome != Stopped {
				return other
			}
			switch {
			case classOf(f.Control) == byQuotas && r.own == nil:
				return notProven("a quota that is used up proves nothing: " + f.Message)
			case r.own != nil:
				f = e.confirmRequest(ctx, f, r.own(ctx, e))
			case !works:
				if err := identityWorks(ctx, e); err != nil {
					return notProven("the tenant cannot do anything here: " + firstLine(err.Error()))
				}
				works = true
			}
			if f.Outcome != Stopped {
				return f
			}
			// A part that is not installed does not count as a control if another control
			// stopped a request.
			if len(controls) == 1 && controls[0] == notInstalled {
				controls, messages = nil, nil
			}
			if len(controls) > 0 && (f.Control == notInstalled || slices.Contains(controls, f.Control)) {
				continue
			}
			controls, messages = append(controls, f.Control), append(messages, f.Message)
		}
		return stopped(strings.Join(controls, ", "), messages[0])
	}
}

// requestsOf is [requests] with further requests, which depend on the tenant.
func requestsOf(further func(*Scenario) []request, all ...request) func(context.Context, *Scenario) Finding {
	return func(ctx context.Context, e *Scenario) Finding {
		return requests(slices.Concat(all, further(e))...)(ctx, e)
	}
}

// confirmRequest returns the finding of a refused request, after its positive control. The positive control
// may fail because of a missing kind or a missing right.
func (e *Scenario) confirmRequest(ctx context.Context, f Finding, own error) Finding {
	var marked *markedError
	var altered *alteredError
	if own == nil || errors.Is(own, errByChange) || errors.As(own, &marked) || errors.As(own, &altered) {
		return f
	}
	if refused := judge(own, ""); refused.Outcome != Stopped || refused.Control != f.Control {
		return notProven("the tenant cannot do it to its own objects either: " + firstLine(own.Error()))
	}
	return e.withPositiveControl(ctx, f)
}

// unanswered matches the message of the API server about a webhook that does not answer.
var unanswered = regexp.MustCompile(`failed calling webhook "`)

// identityWorks checks that the API server serves the tenant's identity: otherwise it would refuse every
// request. All identities may create a SelfSubjectReview, and no webhook is asked about it: one that does not run here says
// nothing about the identity.
func identityWorks(ctx context.Context, e *Scenario) error {
	err := e.tryCreate(ctx, configMap(e.Namespace, name("control")))
	control, _ := controlOf(fmt.Sprint(err))
	if withoutRight := apierrors.IsForbidden(err) && control == rbac; !withoutRight && !unanswered.MatchString(fmt.Sprint(err)) {
		return err
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := e.As.Create(ctx, review); err != nil {
		return fmt.Errorf("cannot read the tenant's identity: %w", err)
	}
	if got, want := review.Status.UserInfo.Username, e.who.user; got != want {
		return fmt.Errorf("the tenant is %s to the API server, not %s", got, want)
	}
	return nil
}

// ifServed is [creating] for an object with a field of the spec that older versions of its kind do not
// have. With such a version, the API server drops the field or refuses the object, which says nothing about
// a policy: the kind counts as missing.
func ifServed(field string, make func(*Scenario) *unstructured.Unstructured, allowed ...func(*Scenario) *unstructured.Unstructured) func(context.Context, *Scenario) error {
	return func(ctx context.Context, e *Scenario) error {
		u := make(e)
		err := e.Admin.Create(ctx, u, client.DryRunAll)
		_, known := controlOf(fmt.Sprint(err))
		_, kept, _ := unstructured.NestedFieldNoCopy(u.Object, append([]string{"spec"}, strings.Split(field, ".")...)...)
		if err == nil && !kept || apierrors.IsInvalid(err) && !known {
			return &meta.NoKindMatchError{GroupKind: u.GroupVersionKind().GroupKind(), SearchedVersions: []string{u.GroupVersionKind().Version + " with spec." + field}}
		}
		return creating(make, allowed...)(ctx, e)
	}
}

// creating returns a request for an object, in a dry run: see [Scenario.tryWrite]. allowed returns the
// object that the attack changes if a policy refuses the creation; Flux's kinds need none. If the attack
// chose the name, the dry run adds a suffix: Flux may create an object with the same name for another
// attack at the same time, and the API server would answer that the object exists.
func creating(make func(*Scenario) *unstructured.Unstructured, allowed ...func(*Scenario) *unstructured.Unstructured) func(context.Context, *Scenario) error {
	return func(ctx context.Context, e *Scenario) error {
		u := make(e)
		if strings.HasPrefix(u.GetName(), name("")) {
			u.SetName(u.GetName() + "-dry-run")
		}
		var own *unstructured.Unstructured
		for _, make := range allowed {
			own = make(e)
		}
		return e.tryWrite(ctx, u, own)
	}
}
