package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// parametersNotFound is a part of the API server's message about a policy whose kind of parameters
// it has not found (k8s.io/apiserver, package admission/plugin/policy/generic).
const parametersNotFound = "failed to find resource referenced by paramKind"

// lastPolicy is the name of the policy in config/manager that is created after the rules, and of the
// Lease that it refuses.
const lastPolicy = "tenure-enforced"

// errNotEnforced is returned by the readiness check while the API server does not enforce the rules.
var errNotEnforced = errors.New("the API server does not enforce the rules yet: it admits Lease " + lastPolicy + ", which the policy of this name refuses; if this stays so, apply all manifests of the manager")

// rulesEnforced finds out whether the API server enforces the rules. The reconciler of Tenants and
// the readiness check wait for that: the API server reads new policies at intervals and compiles
// them, which takes seconds on a busy machine, and until then admits requests that they forbid.
type rulesEnforced struct {
	kube client.Client
	// namespace is the manager's own.
	namespace string
	// proven is set when the API server has refused the Lease once. From then on the API server
	// has the rules, also after a restart: it answers no request before it has read the policies.
	proven atomic.Bool
}

// Enforced reports whether the API server has refused the Lease, now or before. It returns an error if
// the API server does not answer, or refuses the Lease for another reason.
func (r *rulesEnforced) Enforced(ctx context.Context) (bool, error) {
	if r.proven.Load() {
		return true, nil
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: lastPolicy}}
	err := r.kube.Create(ctx, lease, client.DryRunAll)
	switch {
	case err == nil:
		return false, nil
	case !strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+lastPolicy+"'"):
		return false, fmt.Errorf("cannot find out whether the API server enforces the rules: %w", err)
	}
	r.proven.Store(true)
	return true, nil
}

// check is a readiness check. It returns [errNotEnforced], or the error of [rulesEnforced.Enforced].
func (r *rulesEnforced) check(request *http.Request) error {
	ctx, cancel := context.WithTimeout(request.Context(), time.Second)
	defer cancel()
	enforced, err := r.Enforced(ctx)
	if err == nil && !enforced {
		return errNotEnforced
	}
	return err
}

// errParametersNotFound is returned by the readiness check while the API server has not found the
// TenancyProfile's kind.
var errParametersNotFound = errors.New("the API server has not found the kind TenancyProfile yet, and refuses every request that a rule is about; it looks for new kinds every 30 s")

// parametersFound is a readiness check. The API server refuses every request that a policy matches
// until it has found the kind of the policy's parameters, for up to 30 s after the kind was
// installed. Installers wait for the manager; docs/design/manager.md says what this does not cover.
type parametersFound struct {
	kube client.Client
	// namespace is the manager's own.
	namespace string
	rules     *rulesEnforced
	// answered is set when the API server has answered once; found, when it enforces the rules and has
	// found the kind.
	answered, found atomic.Bool
}

// check returns [errParametersNotFound] if the API server refuses [probe] for this reason. It asks
// until the API server enforces the rules and has found the kind, because the rules may be
// installed after the manager. If the API server does not answer, check returns an error only
// before the first answer: later, an error would take this Pod, and with it the webhooks, out of
// the Service.
func (p *parametersFound) check(request *http.Request) error {
	if p.found.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(request.Context(), time.Second)
	defer cancel()
	enforced, _ := p.rules.Enforced(ctx) // the check of the rules returns the error
	err := p.kube.Create(ctx, probe(p.namespace), client.DryRunAll)
	var answer apierrors.APIStatus
	switch {
	case err != nil && !errors.As(err, &answer):
		if p.answered.Load() {
			return nil
		}
		return fmt.Errorf("cannot find out whether the API server has found the kind TenancyProfile: %w", err)
	case err != nil && strings.Contains(err.Error(), parametersNotFound):
		return errParametersNotFound
	}
	p.answered.Store(true)
	p.found.Store(enforced)
	return nil
}

// probe returns an object that the manager has the right to create. The policy
// tenure-manager-parameters, which reads the TenancyProfile, matches it. Once the API server has
// found the kind, the rule tenure-manager refuses the object, because the manager's namespace
// belongs to no tenant. The policies about other objects exclude this namespace.
func probe(namespace string) *v1alpha1.TenantParameters {
	return &v1alpha1.TenantParameters{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.ParametersName},
		Spec:       v1alpha1.TenantParametersSpec{Tenant: "none"},
	}
}

// logReason returns a readiness check that logs why it fails whenever the reason changes, and when it
// succeeds after a failure. Readiness probes show no reason to a client.
func logReason(log logr.Logger, name string, check healthz.Checker) healthz.Checker {
	var mu sync.Mutex
	logged := ""
	return func(request *http.Request) error {
		err := check(request)
		reason := ""
		if err != nil {
			reason = err.Error()
		}
		mu.Lock()
		defer mu.Unlock()
		if reason == logged {
			return err
		}
		logged = reason
		if err == nil {
			log.Info("ready", "check", name)
			return nil
		}
		log.Info("not ready", "check", name, "reason", reason)
		return err
	}
}
