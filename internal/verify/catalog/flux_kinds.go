package catalog

import (
	"context"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	sourceAPI       = "source.toolkit.fluxcd.io/v1"
	notificationAPI = "notification.toolkit.fluxcd.io/v1beta3"
	operatorAPI     = "fluxcd.controlplane.io/v1"
)

// annotations maps kinds without some fields in the spec to the annotations that hold these fields.
var annotations = map[string]map[string]string{
	"ArtifactGenerator":        {"interval": "source.extensions.fluxcd.io/reconcileEvery"},
	"ResourceSet":              operatorAnnotations,
	"ResourceSetInputProvider": operatorAnnotations,
}

var operatorAnnotations = map[string]string{"interval": "fluxcd.controlplane.io/reconcileEvery", "timeout": "fluxcd.controlplane.io/reconcileTimeout"}

// ofEveryKind returns a valid object of each Flux kind with an interval or a timeout, as a tenant would
// write it. It uses approved addresses if it can find them.
func (e *Scenario) ofEveryKind(ctx context.Context, id string) []*unstructured.Unstructured {
	make := func(apiVersion, kind string, spec map[string]any) *unstructured.Unstructured {
		spec["interval"] = "1h"
		return object(apiVersion, kind, e.Namespace, name(id), map[string]any{"spec": spec})
	}
	suspended := func(kind string) *unstructured.Unstructured {
		spec := e.approved(ctx, kind)
		spec["suspend"] = true
		return make(sourceAPI, kind, spec)
	}
	generator := object("source.extensions.fluxcd.io/v1beta1", "ArtifactGenerator", e.Namespace, name(id), map[string]any{"spec": map[string]any{
		"sources":   []any{map[string]any{"alias": "base", "kind": "GitRepository", "name": "any"}},
		"artifacts": []any{map[string]any{"name": name(id), "copy": []any{map[string]any{"from": "@base/**", "to": "@artifact/"}}}},
	}})
	image := e.approved(ctx, "ImageRepository")
	image["suspend"] = true
	return []*unstructured.Unstructured{
		e.suspended(id, nil), e.suspendedRelease(id, nil),
		suspended("GitRepository"), suspended("HelmRepository"), suspended("OCIRepository"), suspended("Bucket"),
		make(sourceAPI, "HelmChart", map[string]any{"chart": "any", "suspend": true, "sourceRef": map[string]any{"kind": "HelmRepository", "name": "any"}}),
		make(imageAPI, "ImageRepository", image),
		make(imageAPI, "ImagePolicy", map[string]any{
			"imageRepositoryRef": map[string]any{"name": "any"}, "policy": map[string]any{"alphabetical": map[string]any{}},
			"digestReflectionPolicy": "Always", // without it, an ImagePolicy has no interval
		}),
		make(imageAPI, "ImageUpdateAutomation", map[string]any{
			"suspend": true, "sourceRef": map[string]any{"kind": "GitRepository", "name": "any"},
			"git": map[string]any{"commit": map[string]any{"author": map[string]any{"email": "canary@example.com"}}},
		}),
		make("notification.toolkit.fluxcd.io/v1", "Receiver", map[string]any{
			"suspend": true, "type": "github", "secretRef": map[string]any{"name": "any"},
			"resources": []any{map[string]any{"kind": "GitRepository", "name": "any"}},
		}),
		make(notificationAPI, "Provider", map[string]any{"suspend": true, "type": "slack", "channel": "any"}),
		generator,
		e.resourceSet(id, configMap(e.Namespace, name(id)), nil),
		object(operatorAPI, "ResourceSetInputProvider", e.Namespace, name(id), map[string]any{"spec": map[string]any{
			"type": "Static", "defaultValues": map[string]any{"any": "any"},
		}}),
	}
}

// approved returns the address fields in the spec of a source of a kind: from one of the tenant's own
// sources, or else from the rules of the fleet.
func (e *Scenario) approved(ctx context.Context, kind string) map[string]any {
	fields := map[string][]string{"Bucket": {"endpoint", "bucketName", "region"}, "ImageRepository": {"image"}}[kind]
	apiVersion := sourceAPI
	switch {
	case kind == "ImageRepository":
		apiVersion = imageAPI
	case fields == nil:
		fields = []string{"url"}
	}
	own := &unstructured.UnstructuredList{}
	own.SetGroupVersionKind(object(apiVersion, kind+"List", "", "", nil).GroupVersionKind())
	if err := e.Admin.List(ctx, own, client.InNamespace(e.Namespace), client.Limit(1)); err == nil && len(own.Items) > 0 {
		spec := map[string]any{}
		for _, field := range fields {
			if value, found, _ := unstructured.NestedString(own.Items[0].Object, "spec", field); found {
				spec[field] = value
			}
		}
		return spec
	}
	return e.allowed(ctx, kind)
}

// policy returns a field of spec.tenants in the TenantParameters of the tenant's namespace
// or, if there are none, in the TenancyProfile, and whether the field is set.
func (e *Scenario) policy(ctx context.Context, field string) (content map[string]any, set bool) {
	for _, from := range []*unstructured.Unstructured{
		object(v1alpha1.GroupVersion.String(), "TenancyProfile", "", v1alpha1.ProfileName, nil),
		object(v1alpha1.GroupVersion.String(), "TenantParameters", e.Namespace, v1alpha1.ParametersName, nil),
	} {
		if e.Admin.Get(ctx, keyOf(from), from) == nil {
			content, set, _ = unstructured.NestedMap(from.Object, "spec", "tenants", field)
		}
	}
	return content, set
}

// allowed returns the address fields with an address that the tenant's parameters allow or, if there are no
// parameters, the profile. If no address is listed, it returns an unapproved address.
func (e *Scenario) allowed(ctx context.Context, kind string) map[string]any {
	var sources v1alpha1.Sources
	content, _ := e.policy(ctx, "sources")
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(content, &sources)
	first := func(patterns []v1alpha1.AddressPattern, otherwise string) string {
		if len(patterns) == 0 {
			return otherwise
		}
		return strings.NewReplacer("/**", "/any", "*", "any").Replace(string(patterns[0]))
	}
	switch kind {
	case string(flux.GitRepository):
		return map[string]any{"url": first(sources.Git, "https://git.unapproved.example.net/any/thing")}
	case "HelmRepository":
		return map[string]any{"url": first(sources.Helm, "https://charts.unapproved.example.net")}
	case "ImageRepository":
		return map[string]any{"image": strings.TrimPrefix(first(sources.OCI, "images.unapproved.example.net/any"), "oci://")}
	case "Bucket":
		spec := map[string]any{"endpoint": "buckets.unapproved.example.net", "bucketName": "any"}
		if len(sources.Buckets) > 0 {
			spec["endpoint"] = sources.Buckets[0].Endpoint
			if name := sources.Buckets[0].BucketName; name != "" {
				spec["bucketName"] = strings.ReplaceAll(name, "*", "any")
			}
			if region := sources.Buckets[0].Region; region != "" {
				spec["region"] = region
			}
		}
		return spec
	}
	return map[string]any{"url": first(sources.OCI, "oci://images.unapproved.example.net/any")}
}

// durations returns an attack that writes a value into a field of objects of every kind
// that has it. fields are paths below the spec, by kind; the paths of "" apply to all
// kinds. It skips a kind of which the tenant may not create a valid object.
func durations(id, value string, fields map[string][]string) func(context.Context, *Scenario) Finding {
	return func(ctx context.Context, e *Scenario) Finding {
		var all []request
		var refused *Finding
		for _, own := range e.ofEveryKind(ctx, id) {
			if err := e.tryCreate(ctx, own); err != nil {
				f := judge(err, "")
				if f.Outcome != Stopped {
					return notProven("cannot create an allowed " + own.GetKind() + ": " + firstLine(err.Error()))
				}
				if refused == nil || refused.Control == notInstalled {
					refused = &f
				}
				continue
			}
			for _, field := range append(fields[""], fields[own.GetKind()]...) {
				aimed := own.DeepCopy()
				annotation, annotated := annotations[aimed.GetKind()]
				switch {
				case !annotated:
					path := append([]string{"spec"}, strings.Split(field, ".")...)
					if unstructured.SetNestedField(aimed.Object, value, path...) != nil {
						continue
					}
					if parent := path[:len(path)-1]; parent[len(parent)-1] == "strategy" {
						_ = unstructured.SetNestedField(aimed.Object, "RetryOnFailure", append(slices.Clone(parent), "name")...)
					}
				case annotation[field] != "":
					aimed.SetAnnotations(map[string]string{annotation[field]: value})
				default:
					continue
				}
				if !hasField(aimed.GetKind(), field) {
					continue
				}
				all = append(all, request{
					what:  "set the " + field + " of a " + aimed.GetKind() + " to " + value,
					aimed: creating(func(*Scenario) *unstructured.Unstructured { return aimed }),
					own:   creating(func(*Scenario) *unstructured.Unstructured { return own }),
				})
			}
		}
		if len(all) == 0 && refused != nil {
			return e.withPositiveControl(ctx, *refused)
		}
		return requests(all...)(ctx, e)
	}
}

// hasField reports whether objects of a kind have a field that most kinds have.
func hasField(kind, field string) bool {
	without := map[string]string{"HelmChart": "timeout", "ImagePolicy": "timeout", "ImageUpdateAutomation": "timeout", "Receiver": "timeout", "Provider": "interval"}
	return without[kind] != field
}
