package lockdown

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// artifactNamespace is the namespace of the objects in the folder of [Artifact].
const artifactNamespace = "flux-system"

// artifactFiles are the files with the objects of each installation, in the order in which they
// can be applied.
var artifactFiles = []string{"crds.yaml", "roles.yaml", "policies.yaml", "profile.yaml", "manager.yaml"}

// Artifact returns the manifests of [Objects] as a folder for kustomize, by slash-separated
// file names: the objects of each installation in the folder itself, and the optional parts as
// components below components. The namespace is flux-system. Flux applies the folder with an
// OCIRepository and a Kustomization whose spec.components selects the parts. It returns an
// error if the image is not valid or the manifests cannot be encoded.
func Artifact(image string) (map[string]string, error) {
	base, err := artifactObjects(Options{ManagerImage: image})
	if err != nil {
		return nil, err
	}
	documents := map[string][]string{}
	for _, o := range base {
		keep(o)
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, fmt.Errorf("cannot write the manifests: %w", err)
		}
		name := artifactFile(o)
		documents[name] = append(documents[name], string(text))
	}
	files := map[string]string{"kustomization.yaml": kustomization("kustomize.config.k8s.io/v1beta1", "Kustomization", artifactFiles)}
	for name, texts := range documents {
		files[name] = strings.Join(texts, "---\n")
	}
	for _, name := range artifactFiles {
		if files[name] == "" {
			return nil, fmt.Errorf("cannot write the manifests: no object is for %s", name)
		}
	}
	parts, err := artifactParts(image, base)
	if err != nil {
		return nil, err
	}
	maps.Copy(files, parts)
	return files, nil
}

// artifactParts returns the files of the components.
func artifactParts(image string, base []*unstructured.Unstructured) (map[string]string, error) {
	yes := true
	files := map[string]string{}
	for name, o := range map[string]Options{
		"proxy":    {Proxy: &yes},
		"capsule":  {Capsule: &yes},
		"defaults": {Defaults: &yes},
		"check":    {Check: &yes},
		"shards":   {Shards: []string{"any"}},
		"warn":     {Warn: &yes},
	} {
		o.ManagerImage = image
		with, err := artifactObjects(o)
		if err != nil {
			return nil, err
		}
		var documents []string
		for _, object := range with {
			if slices.ContainsFunc(base, func(other *unstructured.Unstructured) bool { return sameObject(other, object) }) {
				continue
			}
			keep(object)
			text, err := yaml.Marshal(object.Object)
			if err != nil {
				return nil, fmt.Errorf("cannot write the manifests: %w", err)
			}
			documents = append(documents, string(text))
		}
		if len(documents) == 0 {
			return nil, errors.New("cannot write the manifests: the component " + name + " has no objects")
		}
		dir := "components/" + name + "/"
		files[dir+name+".yaml"] = strings.Join(documents, "---\n")
		files[dir+"kustomization.yaml"] = componentFile(name + ".yaml")
	}
	files["components/capsule/kustomization.yaml"] += capsulePatch
	files["components/warn/kustomization.yaml"] += warnPatch + warnCheckPatch
	files["components/release/kustomization.yaml"] = componentFile() + releaseComponent
	return files, nil
}

// The patches of components. The component capsule comes after proxy, whose Deployment it patches
// too, and warn after check.
const (
	capsulePatch = `patches:
  - target: {kind: Deployment, labelSelector: app.kubernetes.io/name=tenure}
    patch: '[{"op": "add", "path": "/spec/template/spec/containers/0/args/1", "value": "` + capsuleFlag + `"}]'
`
	releaseComponent = `# The step before an uninstallation: the manager removes its finalizers, and does nothing else.
patches:
  - target: {kind: Deployment, name: ` + managerName + `}
    patch: |
      - {op: add, path: /spec/template/spec/containers/0/args/-, value: ` + ReleaseFlag + `}
      - {op: replace, path: /spec/replicas, value: 1}
      - {op: add, path: /spec/strategy, value: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}}
`
	warnPatch = `# The rules only warn and write to the audit log. Rules that limit rights which RBAC cannot limit still deny.
patches:
  - target: {kind: ValidatingAdmissionPolicyBinding, labelSelector: "` + admission.WarnSelector + `"}
    patch: '[{"op": "replace", "path": "/spec/validationActions", "value": ["Warn", "Audit"]}]'
`
)

// warnCheckPatch is for the CronJob, if the component check comes before.
const warnCheckPatch = `  - target: {kind: CronJob, name: ` + checkName + `}
    patch: '[{"op": "replace", "path": "/spec/jobTemplate/spec/template/spec/containers/0/args/2", "value": "--mode=warn"}]'
`

// warnComponent is the kustomization file of the component that lets the rules of a fleet warn.
var warnComponent = "# `tenure profile multi-tenant` writes this file.\n" + componentFile("policies.yaml") + warnPatch

// componentFile returns the kustomization file of a component.
func componentFile(resources ...string) string {
	return kustomization("kustomize.config.k8s.io/v1alpha1", "Component", resources)
}

// kustomization returns a kustomization file.
func kustomization(version, kind string, resources []string) string {
	text := "apiVersion: " + version + "\nkind: " + kind + "\n"
	if len(resources) > 0 {
		text += "resources:\n  - " + strings.Join(resources, "\n  - ") + "\n"
	}
	return text
}

func artifactObjects(o Options) ([]*unstructured.Unstructured, error) {
	manifests, err := Objects(artifactNamespace, o)
	if err != nil {
		return nil, err
	}
	return flux.ReadObjects(manifests)
}

func sameObject(a, b *unstructured.Unstructured) bool {
	return a.GroupVersionKind() == b.GroupVersionKind() && ObjectName(a) == ObjectName(b)
}

// artifactFile returns the name of the file for an object of each installation.
func artifactFile(o *unstructured.Unstructured) string {
	switch kind := o.GetKind(); {
	case kind == kindCRD:
		return "crds.yaml"
	case kind == "TenancyProfile":
		return "profile.yaml"
	case strings.Contains(kind, "AdmissionPolicy"):
		return "policies.yaml"
	case o.GetLabels()["app.kubernetes.io/component"] == "manager", strings.HasSuffix(kind, "WebhookConfiguration"):
		return "manager.yaml"
	}
	return "roles.yaml"
}

// keep annotates an object that Flux must not prune: with a kind, its objects are deleted, and
// without a TenancyProfile the rules refuse every request of a tenant while they are there.
func keep(o *unstructured.Unstructured) {
	if o.GetKind() != kindCRD && o.GetKind() != "TenancyProfile" {
		return
	}
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations["kustomize.toolkit.fluxcd.io/prune"] = "disabled"
	o.SetAnnotations(annotations)
}
