package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// credentialFields are the fields of the spec in which the platform's objects name a Secret with
// credentials.
var credentialFields = [][]string{{"secretRef", "name"}, {"decryption", "secretRef", "name"}, {"kubeConfig", "secretRef", "name"}}

// readsCredentials returns the requests with which the tenant would read the credentials of the platform:
// by a right to a single Secret in the namespace of Flux, or from a copy in its own namespaces.
func (e *Scenario) readsCredentials(ctx context.Context) ([]request, error) {
	objects, err := e.fluxObjectsIn(ctx, e.Platform)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, u := range objects {
		if e.isOwn(&u) {
			continue
		}
		for _, field := range credentialFields {
			if of, _, _ := unstructured.NestedString(u.Object, append([]string{"spec"}, field...)...); of != "" && !slices.Contains(names, of) {
				names = append(names, of)
			}
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	all := []request{{what: "read the credentials of the platform", aimed: holdsNone(e.Platform, right{
		what: "read the credentials of the platform", verbs: []string{"get"}, resources: []string{"secrets"},
		counts: func(name string) bool { return slices.Contains(names, name) },
	})}}
	copies, err := e.copiesOf(ctx, names)
	if err != nil {
		return nil, err
	}
	for _, secret := range copies {
		all = append(all, request{what: fmt.Sprintf("read Secret %s/%s, which holds the credentials of the platform", secret.Namespace, secret.Name), aimed: func(ctx context.Context, e *Scenario) error {
			return e.As.Get(ctx, client.ObjectKeyFromObject(&secret), &corev1.Secret{})
		}})
	}
	return all, nil
}

// isOwn reports whether an object in the namespace of Flux is the tenant's source or Kustomization.
func (e *Scenario) isOwn(u *unstructured.Unstructured) bool {
	for _, r := range e.Tenant.Deliveries() {
		for _, of := range []flux.Ref{r.Source, r.Kustomization} {
			if string(of.Kind) == u.GetKind() && of.Namespace == u.GetNamespace() && of.Name == u.GetName() {
				return true
			}
		}
	}
	return false
}

// privateFields are the fields of Secrets that hold the private part of credentials for Git.
var privateFields = []string{"identity", "password", "bearerToken", "githubAppPrivateKey"}

// copiesOf returns the Secrets in the tenant's namespaces with the same private content as a Secret of the
// platform, or that flux-operator copies from one: with `verify --fake-secrets`, the content of both is invented.
func (e *Scenario) copiesOf(ctx context.Context, names []string) ([]corev1.Secret, error) {
	private := map[string]bool{}
	for _, name := range names {
		secret := &corev1.Secret{}
		if err := e.Admin.Get(ctx, client.ObjectKey{Namespace: e.Platform, Name: name}, secret); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("cannot read Secret %s/%s: %w", e.Platform, name, err)
		}
		for _, field := range privateFields {
			private[string(secret.Data[field])] = true
		}
	}
	// Secrets without a value, and with the value that `verify --fake-secrets` invents, are no copies.
	for _, nothing := range []string{"", "invented"} {
		delete(private, nothing)
	}
	copied := func(secret corev1.Secret) bool {
		namespace, name, _ := strings.Cut(secret.Annotations[flux.CopyAnnotation], "/")
		return namespace == e.Platform && slices.Contains(names, name)
	}
	var found []corev1.Secret
	for _, namespace := range e.Tenant.Namespaces {
		var secrets corev1.SecretList
		if err := e.Admin.List(ctx, &secrets, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("cannot read the Secrets of namespace %s: %w", namespace, err)
		}
		for _, secret := range secrets.Items {
			if copied(secret) || slices.ContainsFunc(privateFields, func(field string) bool { return private[string(secret.Data[field])] }) {
				found = append(found, secret)
			}
		}
	}
	return found, nil
}

// answersRequests returns the requests with which the tenant would answer the API server's reviews of other
// users' objects: the API server sends these objects to a cluster-wide webhook whose Service is in a
// namespace of the tenant, and the tenant creates the Pods of the Service.
func (e *Scenario) answersRequests(ctx context.Context) ([]request, error) {
	var validating admissionv1.ValidatingWebhookConfigurationList
	var mutating admissionv1.MutatingWebhookConfigurationList
	for _, list := range []client.ObjectList{&validating, &mutating} {
		if err := e.Admin.List(ctx, list); err != nil {
			return nil, fmt.Errorf("cannot see the webhooks: %w", err)
		}
	}
	var all []request
	add := func(name string, to *admissionv1.ServiceReference, selector *metav1.LabelSelector) {
		if to == nil || !slices.Contains(e.Tenant.Namespaces, to.Namespace) || !e.selectsOthers(selector) {
			return
		}
		what := "answer for webhook " + name + ", which gets the objects of others"
		all = append(all, request{what: what, aimed: holdsNone(to.Namespace, right{what: what, verbs: []string{"create", "update", "patch"}, resources: []string{
			"pods", "deployments.apps", "replicasets.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch", "services", "endpoints", "endpointslices.discovery.k8s.io",
		}})})
	}
	for _, configuration := range validating.Items {
		for _, hook := range configuration.Webhooks {
			add(hook.Name, hook.ClientConfig.Service, hook.NamespaceSelector)
		}
	}
	for _, configuration := range mutating.Items {
		for _, hook := range configuration.Webhooks {
			add(hook.Name, hook.ClientConfig.Service, hook.NamespaceSelector)
		}
	}
	return all, nil
}

// selectsOthers reports whether a selector selects a namespace of others.
func (e *Scenario) selectsOthers(selector *metav1.LabelSelector) bool {
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && slices.ContainsFunc(e.namespaces, func(ns corev1.Namespace) bool {
		return !slices.Contains(e.Tenant.Namespaces, ns.Name) && s.Matches(labels.Set(ns.Labels))
	})
}
