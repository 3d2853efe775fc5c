package layout

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// azureKind is the kind of the object from which Azure's extension creates the root objects. It
// is outside of the repository in most fleets.
const azureKind = "FluxConfig"

// azureConfig returns the FluxConfig in a repository whose Kustomization syncs a folder, with
// its file, or nil.
func azureConfig(dir, clusterPath string) (file string, config *unstructured.Unstructured) {
	eachManifest(os.DirFS(dir), ".", func(name string, content []byte) bool {
		objects, err := parse(content)
		if err != nil {
			return true
		}
		for i, u := range objects {
			if u.GetKind() != azureKind || !strings.HasPrefix(u.GetAPIVersion(), azureGroup+"/") || !slices.Contains(azurePaths(&u), clusterPath) {
				continue
			}
			file, config = name, &objects[i]
			return false
		}
		return true
	})
	return file, config
}

// azurePaths returns the folders that the Kustomizations of a FluxConfig apply.
func azurePaths(config *unstructured.Unstructured) []string {
	kustomizations, _, _ := unstructured.NestedMap(config.Object, "spec", "kustomizations")
	var paths []string
	for _, name := range slices.Sorted(maps.Keys(kustomizations)) {
		if fields, ok := kustomizations[name].(map[string]any); ok {
			folder, _ := fields["path"].(string)
			paths = append(paths, cleanPath(folder))
		}
	}
	return paths
}

// azureCluster returns the folder that stands for a FluxConfig: that of the first of its Kustomizations on
// which no other depends. Several clusters share the others, such as the infrastructure.
func azureCluster(config *unstructured.Unstructured) string {
	kustomizations, _, _ := unstructured.NestedMap(config.Object, "spec", "kustomizations")
	needed := map[string]bool{}
	for name := range kustomizations {
		others, _, _ := unstructured.NestedStringSlice(kustomizations, name, "dependsOn")
		for _, other := range others {
			needed[other] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(kustomizations)) {
		if folder, _, _ := unstructured.NestedString(kustomizations, name, "path"); !needed[name] {
			return cleanPath(folder)
		}
	}
	return ""
}

// azureRoots returns the objects that Azure's extension creates for a FluxConfig: its Namespace, a
// GitRepository with the name of the FluxConfig, and a Kustomization NAME-KUSTOMIZATION for each
// entry, with its fields: see Microsoft.KubernetesConfiguration/fluxConfigurations in the reference
// of Azure's resources. Sync describes the entry with the cluster's folder.
func azureRoots(config *unstructured.Unstructured, clusterPath string) (Sync, []unstructured.Unstructured) {
	name := config.GetName()
	namespace := cmp.Or(config.GetNamespace(), "cluster-config")
	repository, _, _ := unstructured.NestedMap(config.Object, "spec", "gitRepository")
	url, _ := repository["url"].(string)
	branch, _, _ := unstructured.NestedString(repository, "repositoryRef", "branch")
	sync := Sync{Kind: gitRepository, URL: url, Branch: cmp.Or(branch, "master"), Namespace: namespace, Source: name}
	source := map[string]any{"interval": seconds(repository, "syncIntervalInSeconds"), "url": url, "ref": map[string]any{"branch": sync.Branch}}
	// localAuthRef names a Secret; without it the extension makes one, here under a name of our own.
	local, _ := repository["localAuthRef"].(string)
	if sync.SecretRef = local; local == "" && strings.HasPrefix(url, "ssh://") {
		sync.SecretRef = name + "-auth"
	}
	if sync.SecretRef != "" {
		source["secretRef"] = map[string]any{"name": sync.SecretRef}
	}
	// A tag, a range of versions or a commit is in the place of the branch.
	if ref, _, _ := unstructured.NestedMap(repository, "repositoryRef"); branch == "" && len(ref) > 0 {
		source["ref"] = ref
	}
	home := unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}}}
	roots := []unstructured.Unstructured{home, newObject("source.toolkit.fluxcd.io/v1", gitRepository, namespace, name, source)}
	kustomizations, _, _ := unstructured.NestedMap(config.Object, "spec", "kustomizations")
	for _, key := range slices.Sorted(maps.Keys(kustomizations)) {
		fields, _ := kustomizations[key].(map[string]any)
		folder, _ := fields["path"].(string)
		prune, _ := fields["prune"].(bool)
		spec := map[string]any{
			"interval": seconds(fields, "syncIntervalInSeconds"), "path": "./" + cleanPath(folder), "prune": prune,
			"timeout": seconds(fields, "timeoutInSeconds"), "wait": true,
			"sourceRef": map[string]any{"kind": gitRepository, "name": name},
		}
		if fields["retryIntervalInSeconds"] != nil {
			spec["retryInterval"] = seconds(fields, "retryIntervalInSeconds")
		}
		for _, field := range []string{"force", "wait", "postBuild"} {
			if value, given := fields[field]; given {
				spec[field] = value
			}
		}
		var needs []any
		dependsOn, _, _ := unstructured.NestedStringSlice(fields, "dependsOn")
		for _, other := range dependsOn {
			needs = append(needs, map[string]any{"name": name + "-" + other})
		}
		if len(needs) > 0 {
			spec["dependsOn"] = needs
		}
		roots = append(roots, newObject("kustomize.toolkit.fluxcd.io/v1", kustomizationKind, namespace, name+"-"+key, spec))
		if cleanPath(folder) == clusterPath {
			sync.Kustomization = name + "-" + key
		}
	}
	return sync, roots
}

// seconds returns a duration of a FluxConfig, which is a number of seconds and by default ten minutes.
func seconds(fields map[string]any, name string) string {
	switch n := fields[name].(type) {
	case int64:
		return fmt.Sprintf("%ds", n)
	case float64:
		return fmt.Sprintf("%.0fs", n)
	}
	return "10m"
}

func newObject(apiVersion, kind, namespace, name string, spec map[string]any) unstructured.Unstructured {
	return unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name, "namespace": namespace}, "spec": spec,
	}}
}
