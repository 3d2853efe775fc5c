package catalog

import (
	"context"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	imageAPI = "image.toolkit.fluxcd.io/v1"
	crossing = "policy on references to other namespaces"
)

func addCrossNamespaceImage(register func(...Attack)) {
	policy := imageReference{
		kind: "ImagePolicy", to: "ImageRepository",
		make: func(e *Scenario, id, namespace, target string) *unstructured.Unstructured {
			return object(imageAPI, "ImagePolicy", e.Namespace, name(id), map[string]any{"spec": map[string]any{
				"imageRepositoryRef": map[string]any{"name": target, "namespace": namespace},
				// The controller looks for the repository before it reads this field.
				"policy": map[string]any{"semver": map[string]any{"range": "none"}},
			}})
		},
		reached: regexp.MustCompile(`invalid policy`),
	}
	register(Attack{
		ID: "S1", Via: API, Kind: policy.kind,
		Kinds:      []string{policy.kind},
		Title:      "uses an ImageRepository of another namespace",
		Controls:   []string{"flag --no-cross-namespace-refs of image-reflector-controller", "spec.accessFrom of the ImageRepository"},
		References: []string{"RFC-0003"},
		Fix: Fix{
			Advice: "start image-reflector-controller with --no-cross-namespace-refs=true, and give ImageRepositories no accessFrom that fits other tenants",
			Flags:  []Flag{noCrossNamespaceRefs("image-reflector-controller")},
		},
		Layers: []Layer{flagLayer(noCrossNamespaceRefs("image-reflector-controller"))},
		Deep:   true,
		Run:    policy.foreignRepository,
	})
	automation := imageReference{
		kind: "ImageUpdateAutomation", to: "GitRepository",
		make: func(e *Scenario, id, namespace, target string) *unstructured.Unstructured {
			return object(imageAPI, "ImageUpdateAutomation", e.Namespace, name(id), map[string]any{"spec": map[string]any{
				"interval":  "1h",
				"sourceRef": map[string]any{"kind": "GitRepository", "name": target, "namespace": namespace},
				"git":       map[string]any{"commit": map[string]any{"author": map[string]any{"name": "canary", "email": "canary@example.com"}}},
				// The folder does not exist, so there is nothing to change and push.
				"update": map[string]any{"strategy": "Setters", "path": "./" + missingFolder},
			}})
		},
		reached: regexp.MustCompile(`failed to apply policies|repository up-to-date`),
	}
	register(Attack{
		ID: "S1", Via: API, Kind: automation.kind,
		Kinds:      []string{automation.kind},
		Title:      "lets Flux commit to the repository of another namespace with that namespace's credentials",
		Controls:   []string{"flag --no-cross-namespace-refs of image-automation-controller"},
		References: []string{"RFC-0003"},
		Fix: Fix{
			Advice: "start image-automation-controller with --no-cross-namespace-refs=true",
			Flags:  []Flag{noCrossNamespaceRefs("image-automation-controller")},
		},
		Layers: []Layer{
			flagLayer(noCrossNamespaceRefs("image-automation-controller")),
			admissionLayer(crossing, func(e *Scenario) *unstructured.Unstructured {
				return automation.make(e, "s1-automation", e.Root.Namespace, e.Root.Name)
			}),
		},
		Deep: true,
		Run: func(ctx context.Context, e *Scenario) Finding {
			aimed := automation.try(ctx, e, "s1-automation", e.Root.Namespace, e.Root.Name)
			if aimed.Outcome != Stopped || aimed.Control == notInstalled {
				return aimed
			}
			if e.Repository == nil {
				if !e.Tenant.Synced && aimed.Control == rbac {
					return e.withPositiveControl(ctx, aimed) // the tenant may not make an automation for any source
				}
				return e.noRepository()
			}
			if !inGit(*e.Repository) {
				return notProven("image-automation-controller opens Git repositories only, and the tenant delivers " + e.Repository.Source.String())
			}
			own := e.Repository.Source
			return e.unless(ctx, aimed, automation.try(ctx, e, "s1-automation-own", own.Namespace, own.Name))
		},
	})
}

// imageReference is a kind of Flux's image automation with a reference to another object.
type imageReference struct {
	kind, to string
	// make returns an object of the tenant that refers to a target.
	make func(e *Scenario, id, namespace, target string) *unstructured.Unstructured
	// reached matches the message of the controller after it has followed the reference.
	reached *regexp.Regexp
}

// try creates the object and returns the finding from the controller's answer.
func (r imageReference) try(ctx context.Context, e *Scenario, id, namespace, target string) Finding {
	said, err := e.apply(ctx, r.make(e, id, namespace, target), func() {})
	if err != nil {
		return judge(err, "")
	}
	control, refused := controlOf(said.message)
	switch {
	case said.ready == "True", r.reached.MatchString(said.message):
		return gotThrough(fmt.Sprintf("its %s opened %s %s/%s", r.kind, r.to, namespace, target))
	case refused:
		return stopped(control, firstLine(said.message))
	}
	return notProven("the answer is neither a success nor a known refusal: " + firstLine(said.message))
}

// foreignRepository refers to an ImageRepository of the victim, which grants no access.
func (r imageReference) foreignRepository(ctx context.Context, e *Scenario) Finding {
	at := func(id, namespace string) Finding {
		repository := object(imageAPI, "ImageRepository", namespace, name(id), map[string]any{"spec": map[string]any{
			"interval": "1h", "image": "images.example.com/canary", "suspend": true,
		}})
		if err := e.Admin.Create(ctx, repository); err != nil {
			if f := judge(err, ""); f.Control == notInstalled {
				return f
			}
			return notProven("cannot create the referenced object: " + firstLine(err.Error()))
		}
		defer e.remove(repository)
		return r.try(ctx, e, id, namespace, repository.GetName())
	}
	aimed := at("s1-images", e.Victim.Namespace)
	if aimed.Outcome != Stopped || aimed.Control == notInstalled {
		return aimed
	}
	return e.unless(ctx, aimed, at("s1-images-own", e.Namespace))
}
