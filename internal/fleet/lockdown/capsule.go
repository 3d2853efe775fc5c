package lockdown

import (
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// capsuleFile is the file in a fleet with Capsule's kinds, their rule and the rights to read
	// them. Flux applies it before the Kustomization that delivers tenants, whose Tenants need the
	// kinds.
	capsuleFile = Infrastructure + "/capsule.yaml"
	// capsuleFlag is the argument of the manager and of the proxy.
	capsuleFlag = "--capsule"
)

// firstArgument matches the first of the arguments in the manifests of config/manager and
// config/proxy.
var firstArgument = regexp.MustCompile(`(?m)^( +- )(manager|proxy)$`)

// withCapsule returns the manifests of the manager or the proxy with the argument.
func withCapsule(manifests string) string {
	return firstArgument.ReplaceAllString(manifests, "${1}${2}\n${1}"+capsuleFlag)
}

// capsuleManifests returns Capsule's kinds, their rule and rights, for a manager in a
// namespace.
func capsuleManifests(namespace string) string {
	all := strings.Join([]string{string(config.CapsuleCRDs()), string(config.CapsuleRoles()), string(config.CapsulePolicies())}, "\n---\n")
	return moved(all, namespace)
}

// writeCapsule adds the files for Capsule's kinds to the tree, or removes them, and reports
// whether the tree has them. It leaves out objects that the fleet delivers itself, such as the
// kinds of a fleet that installed Capsule from files: the manager needs the others, and two
// Kustomizations would apply one object in turn.
func (t *tree) writeCapsule(c *component, s *survey, wanted *bool) bool {
	there := t.hadCapsule()
	if wanted != nil {
		there = *wanted
	}
	delete(t.now, capsuleFile)
	c.Capsule = false
	if there {
		if rest := s.without(capsuleManifests(c.Namespace)); rest != "" {
			c.Capsule = true
			t.now[capsuleFile] = rest
		}
	}
	return there
}

// without returns the manifests of the objects that the fleet does not deliver itself.
func (s *survey) without(manifests string) string {
	own := map[string]bool{}
	identity := func(o *unstructured.Unstructured) string {
		return strings.Join([]string{o.GroupVersionKind().Group, o.GetKind(), o.GetNamespace(), o.GetName()}, "/")
	}
	for _, o := range s.objects {
		own[identity(o.Unstructured)] = true
	}
	return strings.Join(slices.DeleteFunc(strings.Split(manifests, "\n---\n"), func(text string) bool {
		objects, err := flux.ReadObjects([]byte(text))
		return err == nil && !slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return !own[identity(o)] })
	}), "\n---\n")
}

// hadCapsule reports whether the fleet has the files for Capsule's kinds.
func (t *tree) hadCapsule() bool {
	_, there := t.before[capsuleFile]
	args, _, _ := unstructured.NestedStringSlice(managerContainer(t.before[managerFile]), "args")
	return there || slices.Contains(args, capsuleFlag)
}

// noRights is an account that every namespace has, and that should have no rights.
const noRights = "default"

// defaultAccount returns the account that Flux uses for a Kustomization or HelmRelease
// without one. If the fleet's controllers already use one of the profile's reconcilers,
// as in a fleet for Capsule, it keeps that account: Flux may apply tenants as that
// account anyway.
func (t *tree) defaultAccount(plain *survey, o Options) (string, error) {
	own := ""
	for _, d := range plain.system() {
		if name := d.GetName(); d.GetKind() != "Deployment" || name != "kustomize-controller" && name != "helm-controller" {
			continue
		}
		values := valuesOf(arguments(d), defaultAccountFlag)
		if len(values) == 0 || own != "" && own != values[len(values)-1] {
			return noRights, nil
		}
		own = values[len(values)-1]
	}
	text := t.now[Infrastructure+"/profile.yaml"]
	if text == "" {
		var err error
		if text, err = plain.posture(t.fleet.Sync.Namespace, o.Allow); err != nil {
			return "", err
		}
	}
	objects, err := flux.ReadObjects([]byte(text))
	if err != nil {
		return noRights, nil //nolint:nilerr // what does not parse is refused when it is built
	}
	for _, o := range plain.objects {
		objects = append(objects, o.Unstructured)
	}
	for _, u := range objects {
		profile := v1alpha1.TenancyProfile{}
		if u.GetKind() == "TenancyProfile" && runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &profile) == nil &&
			slices.Contains(profile.Spec.Tenants.Accounts.Reconcilers, own) {
			return own, nil
		}
	}
	return noRights, nil
}
