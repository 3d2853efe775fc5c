package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// parametersNotFound is a part of the API server's message about a policy whose kind of parameters
// it has not found (k8s.io/apiserver, package admission/plugin/policy/generic).
const parametersNotFound = "failed to find resource referenced by paramKind"

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
	// answered is set when the API server has answered once.
	answered atomic.Bool
}

// check returns [errParametersNotFound] if the API server refuses [probe] for this reason. It asks
// each time, since the rules may be installed after the manager. An API server that does not answer is
// an error only before its first answer: later it is no reason to take the webhooks from the owners.
func (p *parametersFound) check(request *http.Request) error {
	ctx, cancel := context.WithTimeout(request.Context(), time.Second)
	defer cancel()
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
	return nil
}

// probe returns an object that the manager has the right to create, and that the policy
// tenure-manager-parameters is about, which reads the TenancyProfile. Once the API server has found
// the kind, the rule tenure-manager refuses the object: the manager's namespace is no tenant's. The
// policies about other objects leave this namespace out.
func probe(namespace string) *v1alpha1.TenantParameters {
	return &v1alpha1.TenantParameters{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.ParametersName},
		Spec:       v1alpha1.TenantParametersSpec{Tenant: "none"},
	}
}
