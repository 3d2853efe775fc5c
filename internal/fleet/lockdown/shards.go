package lockdown

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// shardPrefix begins the names of the folders of shards, in the component's.
const shardPrefix = "shard-"

// shardControllers are the controllers that each shard runs. The other controllers do little
// for each object, and notification-controller does not support shards.
var shardControllers = []string{"source-controller", "kustomize-controller", "helm-controller"}

// shardName is the syntax of a shard's name, which its controllers' names end with.
var shardName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$`)

// unshardedSelector selects the objects without a shard, for the controllers of the cluster.
const unshardedSelector = "!" + v1alpha1.LabelShard

// shardsFrom returns the sorted shards of the options, or the earlier shards if the options have
// none.
func shardsFrom(wanted, before []string) ([]string, error) {
	if wanted == nil {
		return before, nil
	}
	shards := slices.Clone(wanted)
	for _, name := range shards {
		if !shardName.MatchString(name) {
			return nil, fmt.Errorf("cannot make a shard %q: its name has at most 20 lower case letters, digits and hyphens", name)
		}
	}
	slices.Sort(shards)
	return slices.Compact(shards), nil
}

// shardFiles returns the files of the shards by their names in the component's folder.
// Components is the path of Flux's manifests relative to the folder of a shard.
func (c *component) shardFiles(components string) (map[string]string, error) {
	if len(c.Shards) == 0 {
		return nil, nil
	}
	all := map[string]string{"shards.yaml": string(config.Shards())}
	for _, name := range c.Shards {
		text, err := renderFile("shard.yaml", struct {
			Name, Components string
			Controllers      []string
		}{name, components, shardControllers})
		if err != nil {
			return nil, err
		}
		all[shardPrefix+name+"/kustomization.yaml"] = text
	}
	return all, nil
}

// rememberedShards returns the shards in the component.
func (t *tree) rememberedShards() []string {
	var shards []string
	for name := range t.before {
		dir := path.Dir(name)
		if shard, is := strings.CutPrefix(path.Base(dir), shardPrefix); is && path.Dir(dir) == path.Dir(t.component("x")) {
			shards = append(shards, shard)
		}
	}
	slices.Sort(shards)
	return slices.Compact(shards)
}

// inComponent reports whether a file belongs to the component or to one of its shards.
func (t *tree) inComponent(name string) bool {
	own := path.Dir(t.component("x"))
	dir := path.Dir(name)
	return dir == own || path.Dir(dir) == own && strings.HasPrefix(path.Base(dir), shardPrefix)
}

// checkShards returns the objects that no controller, or two controllers, would reconcile.
func (s *survey) checkShards() []string {
	served := map[string][]string{}
	for _, o := range s.system() {
		if controller := controllerOf(o); o.GetKind() == "Deployment" && slices.Contains(shardControllers, controller) {
			selectors := valuesOf(arguments(o), "--watch-label-selector")
			served[controller] = append(served[controller], strings.Join(selectors[max(0, len(selectors)-1):], ""))
		}
	}
	var wrong []string
	used := map[string]string{}
	for _, o := range s.objects {
		switch shard := o.GetLabels()[v1alpha1.LabelShard]; {
		case shard != "" && o.GetKind() == "Namespace" && s.tenants[o.GetName()] != "":
			used[shard] = "Namespace " + o.GetName() + ": it has"
		case o.GetKind() == "Tenant":
			for _, shard := range shardsOf(o.Unstructured) {
				used[shard] = "Tenant " + o.GetName() + ": its namespaces get"
			}
		}
	}
	for _, shard := range slices.Sorted(maps.Keys(used)) {
		for _, controller := range slices.Sorted(maps.Keys(served)) {
			if !slices.Contains(served[controller], v1alpha1.LabelShard+"="+shard) {
				wrong = append(wrong, fmt.Sprintf("  %s the label %s: %s, and no %s works on that shard: make it with --shard %s, or take the label off",
					used[shard], v1alpha1.LabelShard, shard, controller, shard))
			}
		}
	}
	for _, controller := range slices.Sorted(maps.Keys(served)) {
		if len(served[controller]) > 1 && slices.ContainsFunc(served[controller], func(selector string) bool { return selector == "" }) {
			wrong = append(wrong, fmt.Sprintf("  %s: with shards, each has to leave the others' objects alone: give it --watch-label-selector=%s", controller, unshardedSelector))
		}
	}
	return wrong
}

// shardsOf returns the shards that a Tenant, of Tenure or of Capsule, assigns its namespaces to.
func shardsOf(tenant *unstructured.Unstructured) []string {
	var shards []string
	add := func(labels map[string]string) {
		if shard := labels[v1alpha1.LabelShard]; shard != "" {
			shards = append(shards, shard)
		}
	}
	for _, path := range [][]string{{"namespaces", "labels"}, {"namespaceOptions", "additionalMetadata", "labels"}} {
		labels, _, _ := unstructured.NestedStringMap(tenant.Object, append([]string{"spec"}, path...)...)
		add(labels)
	}
	for _, path := range [][]string{{"namespaces", "selected"}, {"namespaceOptions", "additionalMetadataList"}} {
		entries, _, _ := unstructured.NestedSlice(tenant.Object, append([]string{"spec"}, path...)...)
		for _, entry := range entries {
			fields, _ := entry.(map[string]any)
			labels, _, _ := unstructured.NestedStringMap(fields, "labels")
			add(labels)
		}
	}
	return shards
}

// controllerOf returns the name of the Flux controller that a Deployment runs, also for the copy
// of a shard: Flux's manifests have it in a label, in older versions too.
func controllerOf(o *unstructured.Unstructured) string {
	const component = "app.kubernetes.io/component"
	if name := o.GetLabels()[component]; name != "" && strings.HasPrefix(o.GetName(), name+"-") && o.GetLabels()["app.kubernetes.io/part-of"] == "flux" {
		return name
	}
	return o.GetName()
}
