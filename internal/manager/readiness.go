package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/internal/admission"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	// kube writes to the API server, and apiReader reads from it.
	kube      client.Client
	apiReader client.Reader
	// namespace is the manager's own.
	namespace string
	// answered is set when the API server has answered once.
	answered atomic.Bool
}

// check returns [errParametersNotFound] if the API server refuses, for this reason, a change of the
// Secret of the webhooks, which the policy tenure-objects is about and the manager may write. Without
// webhooks there is no such Secret, and the check passes. It asks each time, since the rules may be installed after
// the manager. An API server that does not answer is an error only before its first answer: later it
// is no reason to take the webhooks from the owners.
func (p *parametersFound) check(request *http.Request) error {
	ctx, cancel := context.WithTimeout(request.Context(), time.Second)
	defer cancel()
	secret := &corev1.Secret{}
	err := p.apiReader.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: admission.WebhookService}, secret)
	if err == nil {
		err = p.kube.Update(ctx, secret, client.DryRunAll)
	}
	var answer apierrors.APIStatus
	switch {
	case err != nil && !errors.As(err, &answer):
		if p.answered.Load() {
			return nil
		}
		return fmt.Errorf("cannot ask the API server whether it has found the kind TenancyProfile: %w", err)
	case err != nil && strings.Contains(err.Error(), parametersNotFound):
		return errParametersNotFound
	}
	p.answered.Store(true)
	return nil
}
