package flux

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Purpose is the purpose for which an object of Flux reads a Secret.
type Purpose string

// The purposes whose Secrets can be invented: the local cluster accepts any credentials.
const (
	ForGit        Purpose = "credentials of a Git repository"
	ForRegistry   Purpose = "credentials of a registry"
	ForHelm       Purpose = "credentials of a Helm repository"
	ForBucket     Purpose = "credentials of a bucket"
	ForDecryption Purpose = "keys for decryption"
	ForVariables  Purpose = "variables for substitution"
	ForValues     Purpose = "values of a release"
	ForToken      Purpose = "token of a receiver" //nolint:gosec // a description
	ForCopy       Purpose = "data that a ResourceSet copies"
)

// IsContent reports whether the content of the Secret gets into the objects that Flux applies. A
// key for decryption does not: what it decrypts does.
func (p Purpose) IsContent() bool {
	return p == ForVariables || p == ForValues || p == ForCopy
}

// SecretUse is a Secret that an object of Flux reads.
type SecretUse struct {
	// Namespace and Name are the Secret's.
	Namespace, Name string
	Purpose         Purpose
	// Key is the key that the object names; "" if the purpose decides.
	Key string
	// Target is the field of the values that the key sets; "" if it has all values.
	Target string
	// URL is the address for credentials.
	URL string
}

// SecretUses returns the Secrets that an object of Flux needs, without optional ones and without
// those that nothing can be invented for, such as a kubeconfig or a key of signatures.
func SecretUses(u *unstructured.Unstructured) []SecretUse {
	address, _, _ := unstructured.NestedString(u.Object, "spec", "url")
	purposes := map[Kind]Purpose{
		GitRepository: ForGit, OCIRepository: ForRegistry, ImageRepository: ForRegistry,
		HelmRepository: ForHelm, Bucket: ForBucket, Receiver: ForToken,
	}
	var uses []SecretUse
	add := func(use SecretUse) {
		use.Namespace = cmp.Or(use.Namespace, u.GetNamespace())
		if use.Name != "" && !slices.Contains(uses, use) {
			uses = append(uses, use)
		}
	}
	if purpose, ok := purposes[Kind(u.GetKind())]; ok {
		name, _, _ := unstructured.NestedString(u.Object, "spec", "secretRef", "name")
		if kind, _, _ := unstructured.NestedString(u.Object, "spec", "type"); purpose == ForHelm && kind == "oci" {
			purpose = ForRegistry
		}
		image, _, _ := unstructured.NestedString(u.Object, "spec", "image")
		add(SecretUse{Name: name, Purpose: purpose, URL: cmp.Or(address, image)})
	}
	switch Kind(u.GetKind()) {
	case Kustomization:
		name, _, _ := unstructured.NestedString(u.Object, "spec", "decryption", "secretRef", "name")
		add(SecretUse{Name: name, Purpose: ForDecryption})
		for _, from := range entries(u, "spec", "postBuild", "substituteFrom") {
			if from["kind"] == "Secret" && from["optional"] != true {
				add(SecretUse{Name: fmt.Sprint(from["name"]), Purpose: ForVariables})
			}
		}
	case HelmRelease:
		for _, from := range entries(u, "spec", "valuesFrom") {
			if from["kind"] != "Secret" || from["optional"] == true {
				continue
			}
			key, _ := from["valuesKey"].(string)
			target, _ := from["targetPath"].(string)
			add(SecretUse{Name: fmt.Sprint(from["name"]), Purpose: ForValues, Key: cmp.Or(key, "values.yaml"), Target: target})
		}
	case ResourceSet:
		for _, use := range copiedSecrets(u) {
			add(use)
		}
	}
	return uses
}

// CopyAnnotation names the Secret, as NAMESPACE/NAME, from which flux-operator fills a Secret of a ResourceSet.
const CopyAnnotation = "fluxcd.controlplane.io/copyFrom"

// copiedSecrets returns the Secrets that the templates of a ResourceSet copy, without those whose name is a
// template. A copy that another template reads is for what this one reads, and a pull secret is for the
// registry of the first OCIRepository.
func copiedSecrets(set *unstructured.Unstructured) []SecretUse {
	templates := Templates(set)
	var registry string
	for _, template := range templates {
		if template["kind"] == string(OCIRepository) && registry == "" {
			registry, _, _ = unstructured.NestedString(template, "spec", "url")
		}
	}
	var uses []SecretUse
	for _, template := range templates {
		annotations, _, _ := unstructured.NestedStringMap(template, "metadata", "annotations")
		namespace, name, ok := strings.Cut(annotations[CopyAnnotation], "/")
		if template["kind"] != "Secret" || !ok || strings.Contains(annotations[CopyAnnotation], "<<") {
			continue
		}
		use := SecretUse{Namespace: namespace, Name: name, Purpose: ForCopy}
		if template["type"] == "kubernetes.io/dockerconfigjson" {
			use.Purpose, use.URL = ForRegistry, registry
		} else if read, ok := readerOf(templates, template); ok {
			use.Purpose, use.Key, use.Target, use.URL = read.Purpose, read.Key, read.Target, read.URL
		}
		uses = append(uses, use)
	}
	return uses
}

// readerOf returns the first use of a Secret by the other templates of its ResourceSet.
func readerOf(templates []map[string]any, secret map[string]any) (SecretUse, bool) {
	name, _, _ := unstructured.NestedString(secret, "metadata", "name")
	for _, template := range templates {
		for _, use := range SecretUses(&unstructured.Unstructured{Object: template}) {
			if use.Name == name && use.Purpose != ForCopy {
				return use, true
			}
		}
	}
	return SecretUse{}, false
}

// entries returns the maps in a list of an object.
func entries(u *unstructured.Unstructured, at ...string) []map[string]any {
	list, _, _ := unstructured.NestedSlice(u.Object, at...)
	var all []map[string]any
	for _, item := range list {
		if entry, ok := item.(map[string]any); ok {
			all = append(all, entry)
		}
	}
	return all
}
