package catalog

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// objectIdentity is the feature gate with which a Flux controller gets cloud credentials for an account in
// the object's namespace.
const objectIdentity = "ObjectLevelWorkloadIdentity"

func addControllerCloudIdentity(register func(...Attack)) {
	sources := ownIdentity("source-controller", "--default-service-account")
	images := ownIdentity("image-reflector-controller", "--default-service-account")
	posts := ownIdentity("notification-controller", "--default-service-account")
	policy := admissionLayer("policy on spec.provider", func(e *Scenario) *unstructured.Unstructured { return gitSource(e, "azure") })
	register(Attack{
		ID: "I19", Via: API,
		Kinds:      []string{"Bucket", "GitRepository", "HelmRepository", "ImageRepository", "OCIRepository", "Provider"},
		Title:      "fetches or posts with the cloud identity of a controller (spec.provider of sources, spec.type of Providers)",
		Controls:   []string{"policy on spec.provider or on the addresses of sources", sources.Name, "policy on spec.type of Providers", posts.Name},
		References: []string{"Flux: workload identity", "RFC-0010"},
		Fix:        Fix{Advice: "forbid spec.provider other than generic in tenants' sources, and the types googlepubsub, azureeventhub and azuredevops of Providers, with a ValidatingAdmissionPolicy, or start source-controller, image-reflector-controller and notification-controller with the gate " + objectIdentity + " and --default-service-account, so that they get credentials as an account of the tenant's namespace only"},
		Layers:     []Layer{policy, sources},
		Run: func(ctx context.Context, e *Scenario) Finding {
			with := func(kind string, fields map[string]any) func(*Scenario) *unstructured.Unstructured {
				spec := e.approved(ctx, kind)
				maps.Copy(spec, fields)
				return source(kind, spec)
			}
			charts := map[string]any{"type": "oci", "provider": "gcp"}
			if url, _ := e.approved(ctx, "HelmRepository")["url"].(string); !strings.HasPrefix(url, "oci://") {
				charts["url"] = "oci://charts.unapproved.example.net/any"
			}
			git := request{
				what:  "have source-controller fetch a GitRepository with its own Azure identity",
				aimed: creating(func(e *Scenario) *unstructured.Unstructured { return gitSource(e, "azure") }),
				own:   creating(func(e *Scenario) *unstructured.Unstructured { return gitSource(e, "generic") }),
			}
			artifact := request{
				what:  "have source-controller fetch an OCIRepository with its own AWS identity",
				aimed: creating(with("OCIRepository", map[string]any{"provider": "aws"})),
			}
			if e.deliversArtifacts() {
				// A policy on addresses may allow the tenant no Git repository at all.
				git.own, artifact.own = nil, creating(with("OCIRepository", map[string]any{"provider": "generic"}))
			}
			f := unlessIdentityIsOwn(sources, git, artifact,
				request{
					what:  "have source-controller fetch a HelmRepository with its own Google identity",
					aimed: creating(with("HelmRepository", charts)),
				},
				request{
					what:  "have source-controller fetch a Bucket with its own AWS identity",
					aimed: creating(with("Bucket", map[string]any{"provider": "aws"})),
				},
			)(ctx, e)
			for _, other := range []struct {
				by       Layer
				requests []request
			}{
				{images, []request{{
					what:  "have image-reflector-controller scan an image with its own AWS identity",
					aimed: creating(scanned(e.approved(ctx, "ImageRepository"), "aws")),
				}}},
				{posts, []request{
					posting("googlepubsub", "Google"), posting("azureeventhub", "Azure"), posting("azuredevops", "Azure"),
				}},
			} {
				if f.Outcome != Stopped {
					return f
				}
				if g := unlessIdentityIsOwn(other.by, other.requests...)(ctx, e); g.Outcome != Stopped {
					f = g
				} else {
					f = f.and(g)
				}
			}
			return f
		},
	})
	register(decryptionWithIdentity())
}

// decryptionWithIdentity returns the attack on the cloud identities with which kustomize-controller
// decrypts.
func decryptionWithIdentity() Attack {
	keys := ownIdentity("kustomize-controller", "--default-decryption-service-account")
	withoutKey := decrypting(map[string]any{"provider": "sops"})
	withKey := creating(decrypting(map[string]any{"provider": "sops", "secretRef": map[string]any{"name": "any"}}))
	return Attack{
		ID: "I19", Via: API, Kind: "Kustomization",
		Kinds:      []string{"Kustomization", "Secret"},
		Title:      "decrypts with a cloud identity that is not its own (spec.decryption without a key, or with one if the controller has a cloud identity, with credentials of a cloud in a Secret, or with another account of its namespace)",
		Controls:   []string{"policy on spec.decryption", keys.Name, "policy on the Secrets with keys"},
		References: []string{"Flux: workload identity", "RFC-0010"},
		Fix:        Fix{Advice: "give kustomize-controller no cloud identity and demand spec.decryption.secretRef, or the tenant's own account in spec.decryption.serviceAccountName, in tenants' Kustomizations with a ValidatingAdmissionPolicy, or start kustomize-controller with the gate " + objectIdentity + " and --default-decryption-service-account, give it no rights on keys of its own, keep accounts with cloud identities of others out of the tenant's namespaces, and refuse the keys sops.azure-kv and sops.gcp-kms in tenants' Secrets"},
		Layers:     []Layer{admissionLayer("policy on spec.decryption", withoutKey), keys},
		Run: func(ctx context.Context, e *Scenario) Finding {
			aimed := request{
				what:  "have kustomize-controller ask a cloud's key service as itself",
				aimed: creating(withoutKey),
				own:   withKey,
			}
			identity, err := e.controllersIdentity(ctx, "kustomize-controller")
			if err != nil {
				return notProven(firstLine(err.Error()))
			}
			if identity != "" {
				// If no key in the Secret decrypts a file, Flux uses its own identity.
				aimed.what += " (" + identity + "), with a key of its own, too"
				aimed.aimed, aimed.own = withKey, creating(func(e *Scenario) *unstructured.Unstructured { return e.suspended("i19", nil) })
			}
			f := unlessIdentityIsOwn(keys, aimed)(ctx, e)
			if f.Outcome != Stopped {
				return f
			}
			// A tenant without a sync has no use for a key.
			if withKey(ctx, e) == nil {
				g := requests(controllersKey())(ctx, e)
				if g.Outcome != Stopped {
					return g
				}
				f = f.and(g)
			}
			return decryptsAsAnother(ctx, e, f)
		},
	}
}

// controllersKey returns the request for a Secret with cloud credentials, which may name any identity.
func controllersKey() request {
	secret := func(key string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			return object("v1", "Secret", e.Namespace, name("i19"), map[string]any{"stringData": map[string]any{key: "clientId: 00000000-0000-0000-0000-000000000000"}})
		}
	}
	return request{
		what:  "give kustomize-controller credentials of a cloud that may name the identity of others",
		aimed: creating(secret("sops.azure-kv"), secret("any")),
		own:   creating(secret("any")),
	}
}

// decrypting returns a Kustomization with the field spec.decryption that Flux does not apply.
func decrypting(decryption map[string]any) func(*Scenario) *unstructured.Unstructured {
	return func(e *Scenario) *unstructured.Unstructured {
		return e.suspended("i19", func(spec map[string]any) { spec["decryption"] = decryption })
	}
}

// decryptsAsAnother tries to decrypt as each foreign account with a cloud identity in the tenant's
// namespace. It adds the controls that stopped it to a finding. Without the gate, kustomize-controller
// refuses every account in spec.decryption.
func decryptsAsAnother(ctx context.Context, e *Scenario, f Finding) Finding {
	accounts, err := e.cloudAccounts(ctx)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	args, err := e.arguments(ctx, "kustomize-controller")
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	if len(accounts) == 0 || !gateIsOn(args, objectIdentity) {
		return f
	}
	var all []request
	for _, account := range accounts {
		all = append(all, request{
			what:  "decrypt with the cloud identity of ServiceAccount " + e.Namespace + "/" + account,
			aimed: creating(decrypting(map[string]any{"provider": "sops", "serviceAccountName": account})),
			own:   creating(decrypting(map[string]any{"provider": "sops", "secretRef": map[string]any{"name": "any"}})),
		})
	}
	g := requests(all...)(ctx, e)
	if g.Outcome != Stopped {
		return g
	}
	return f.and(g)
}

// cloudIdentities are the annotations by which clouds give an account an identity.
var cloudIdentities = []string{"eks.amazonaws.com/role-arn", "iam.gke.io/gcp-service-account", "azure.workload.identity/client-id"}

// controllersIdentity returns the cloud identity of a controller's account, as the annotation that gives
// it, or "" if the account has none or the controller is not installed. It does not find an identity that
// the cloud or the node gives without an annotation.
func (e *Scenario) controllersIdentity(ctx context.Context, controller string) (string, error) {
	deployment := &appsv1.Deployment{}
	if err := e.Admin.Get(ctx, client.ObjectKey{Namespace: e.Platform, Name: controller}, deployment); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	account := &corev1.ServiceAccount{}
	name := cmp.Or(deployment.Spec.Template.Spec.ServiceAccountName, controller)
	if err := e.Admin.Get(ctx, client.ObjectKey{Namespace: e.Platform, Name: name}, account); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	for _, annotation := range cloudIdentities {
		if value := account.Annotations[annotation]; value != "" {
			return annotation + ": " + value, nil
		}
	}
	return "", nil
}

// cloudAccounts returns the accounts with a cloud identity in the attacked namespace, without the tenant's
// accounts: those as which Flux applies the tenant, and those that the tenant's own syncs apply.
func (e *Scenario) cloudAccounts(ctx context.Context) ([]string, error) {
	var accounts corev1.ServiceAccountList
	if err := e.Admin.List(ctx, &accounts, client.InNamespace(e.Namespace)); err != nil {
		return nil, fmt.Errorf("cannot list the accounts: %w", err)
	}
	var found []string
	for _, a := range accounts.Items {
		own := slices.Contains(e.Tenant.Accounts, discovery.Account{Namespace: a.Namespace, Name: a.Name}) || ofTenant(flux.AppliedBy(a.Labels), []discovery.Tenant{e.Tenant})
		identity := slices.ContainsFunc(cloudIdentities, func(annotation string) bool { return a.Annotations[annotation] != "" })
		if identity && !own {
			found = append(found, a.Name)
		}
	}
	return found, nil
}

// posting returns the request for a Provider of a type that uses the identity of the controller if the
// tenant gives it none.
func posting(kind, cloud string) request {
	return request{
		what: "have notification-controller post with its own " + cloud + " identity, by a Provider of type " + kind,
		aimed: creating(func(e *Scenario) *unstructured.Unstructured {
			return object(notificationAPI, "Provider", e.Namespace, name("i19-"+kind), map[string]any{"spec": map[string]any{"type": kind, "channel": "any"}})
		}),
	}
}

// scanned is an ImageRepository that is not scanned.
func scanned(spec map[string]any, provider string) func(*Scenario) *unstructured.Unstructured {
	return func(e *Scenario) *unstructured.Unstructured {
		full := map[string]any{"interval": "1h", "suspend": true, "provider": provider}
		maps.Copy(full, spec)
		return object(imageAPI, "ImageRepository", e.Namespace, name("i19"), map[string]any{"spec": full})
	}
}

// gitSource returns a GitRepository at an address of the tenant, or at an unapproved address if the tenant
// has none.
func gitSource(e *Scenario, provider string) *unstructured.Unstructured {
	url := "https://git.unapproved.example.net/any/thing"
	if i := slices.IndexFunc(e.Tenant.Repositories, inGit); i >= 0 {
		url = e.Tenant.Repositories[i].URL
	}
	return source("GitRepository", map[string]any{"url": url, "provider": provider})(e)
}

// deliversArtifacts reports whether the tenant delivers OCI artifacts and no Git repository.
func (e *Scenario) deliversArtifacts() bool {
	return len(e.Tenant.Repositories) > 0 && !slices.ContainsFunc(e.Tenant.Repositories, inGit)
}

// source returns a source that Flux does not fetch.
func source(kind string, spec map[string]any) func(*Scenario) *unstructured.Unstructured {
	return func(e *Scenario) *unstructured.Unstructured {
		full := map[string]any{"interval": "1h", "suspend": true}
		for key, value := range spec {
			full[key] = value
		}
		return object("source.toolkit.fluxcd.io/v1", kind, e.Namespace, name("i19"), map[string]any{"spec": full})
	}
}

// ownIdentity returns the layer that a controller gets cloud credentials as an account in the object's
// namespace, named or not, and never as itself.
func ownIdentity(controller, flag string) Layer {
	return Layer{
		Name: "gate " + objectIdentity + " and flag " + flag + " of " + controller,
		Holds: func(ctx context.Context, e *Scenario) (bool, error) {
			args, err := e.arguments(ctx, controller)
			if apierrors.IsNotFound(err) {
				return false, nil // the controller is not installed
			}
			return err == nil && gateIsOn(args, objectIdentity) && lastValue(args, flag) != "", err
		},
	}
}

// unlessIdentityIsOwn sends the requests if the layer does not hold in the controller itself.
func unlessIdentityIsOwn(layer Layer, all ...request) func(context.Context, *Scenario) Finding {
	return func(ctx context.Context, e *Scenario) Finding {
		holds, err := layer.Holds(ctx, e)
		if err != nil {
			return notProven(firstLine(err.Error()))
		}
		if !holds {
			return requests(all...)(ctx, e)
		}
		if err := identityWorks(ctx, e); err != nil {
			return notProven("the tenant cannot do anything here: " + firstLine(err.Error()))
		}
		return stopped(layer.Name, "the controller is started with both")
	}
}
