package flux

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// MissingGroup is an API group that the cluster does not serve, and that objects of a fleet need.
type MissingGroup struct {
	// Group is the API group, and Kinds its kinds, as Kind.version.
	Group string
	Kinds []string
	// Objects are the objects of Flux that apply objects of these kinds.
	Objects []Ref
	// Waiting are the objects of Flux that wait for Objects.
	Waiting []Ref
}

// noMatch finds the kind in the messages of kustomize-controller, helm-controller and
// flux-operator about an object whose CRD does not exist.
var noMatch = regexp.MustCompile(`no matches for kind "([^"]+)" in version "([^"]+)"`)

// MissingGroups returns the API groups that the failures of a fleet name as not served, by group.
func MissingGroups(failures []Finding) []MissingGroup {
	groups := map[string]*MissingGroup{}
	for _, f := range failures {
		for _, match := range noMatch.FindAllStringSubmatch(f.Reason, -1) {
			group, version, _ := strings.Cut(match[2], "/")
			if version == "" || ofFlux(group) || scheme.Scheme.IsGroupRegistered(group) {
				continue // a removed version of Kubernetes or Flux, not a CRD that a chart has: see removedVersions
			}
			g := groups[group]
			if g == nil {
				g = &MissingGroup{Group: group}
				groups[group] = g
			}
			if kind := match[1] + "." + version; !slices.Contains(g.Kinds, kind) {
				g.Kinds = append(g.Kinds, kind)
			}
			if !slices.Contains(g.Objects, f.Row.Ref()) {
				g.Objects = append(g.Objects, f.Row.Ref())
			}
		}
	}
	var all []MissingGroup
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		g := groups[name]
		slices.Sort(g.Kinds)
		g.Waiting = waitingFor(failures, g.Objects)
		all = append(all, *g)
	}
	return all
}

func ofFlux(group string) bool { return strings.HasSuffix(group, ".toolkit.fluxcd.io") }

// removedVersions returns a sentence for each kind of Flux or Kubernetes that a fleet has in a version that is not
// served any more.
func removedVersions(failures []Finding) []string {
	needing := map[schema.GroupVersionKind][]Ref{}
	for _, f := range failures {
		for _, match := range noMatch.FindAllStringSubmatch(f.Reason, -1) {
			kind := schema.FromAPIVersionAndKind(match[2], match[1])
			if builtIn := kind.Group == "" || scheme.Scheme.IsGroupRegistered(kind.Group); builtIn || ofFlux(kind.Group) {
				needing[kind] = append(needing[kind], f.Row.Ref())
			}
		}
	}
	var all []string
	for kind, refs := range needing {
		way := "change its apiVersion to one that kubectl api-resources lists"
		if ofFlux(kind.Group) {
			way = "change its apiVersion, as flux migrate -f DIR does in a folder"
		}
		all = append(all, fmt.Sprintf("%s is not served in version %s: %s; %s", kind.Kind, kind.GroupVersion(), whoNeed(unique(refs)), way))
	}
	slices.Sort(all)
	return all
}

// unique returns the objects without duplicates, in the same order.
func unique(refs []Ref) []Ref {
	var all []Ref
	for _, ref := range refs {
		if !slices.Contains(all, ref) {
			all = append(all, ref)
		}
	}
	return all
}

// waitingFor returns the failed objects that wait for the given ones, directly or not.
func waitingFor(failures []Finding, objects []Ref) []Ref {
	reached := slices.Clone(objects)
	var waiting []Ref
	for changed := true; changed; {
		changed = false
		for _, f := range failures {
			ref := f.Row.Ref()
			if slices.Contains(reached, ref) || !slices.ContainsFunc(f.Row.Needs, func(need Ref) bool { return slices.Contains(reached, need) }) {
				continue
			}
			reached, waiting, changed = append(reached, ref), append(waiting, ref), true
		}
	}
	return waiting
}

// String returns a sentence with the group, the objects that depend on it, and the way out.
func (g MissingGroup) String() string {
	text := fmt.Sprintf("API group %s (%s) is not served here: %s", g.Group, strings.Join(g.Kinds, ", "), whoNeed(g.Objects))
	if len(g.Waiting) > 0 {
		text += fmt.Sprintf(", and %s for that", whoWait(g.Waiting))
	}
	return text + "; a chart or an operator brings its CRDs: map the chart with --map, or give the CRDs with --crds DIR"
}

// missingSecret finds the name in the messages of Flux's controllers about a Secret that does not
// exist, and missingConfig that of a ConfigMap.
var (
	missingSecret = regexp.MustCompile(`secrets "([^"]+)" not found`)
	missingConfig = regexp.MustCompile(`configmaps "([^"]+)" not found`)
)

// undeclared finds the object and the field in the API server's message about a field that the kind does
// not have, such as one that a newer version of the kind dropped.
var undeclared = regexp.MustCompile(`failed to create typed patch object \(([^;)]+); ([^,]+), Kind=(\w+)\): (\.[^:]+): field not declared in schema`)

// unanswered finds the webhook and the Service in the API server's message about a webhook whose program does
// not run in the local cluster.
var unanswered = regexp.MustCompile(`(?:failed calling webhook "([^"]+)"|(conversion) webhook for .+? failed).+? behind the Service ([^\s:]+): .*the Pod is simulated`)

// silentWebhooks returns a sentence for each webhook that gets no answer.
func silentWebhooks(failures []Finding) []string {
	var all []string
	needing := map[string][]Ref{}
	for _, f := range failures {
		match := unanswered.FindStringSubmatch(f.Reason)
		if match == nil {
			continue
		}
		hook := fmt.Sprintf("webhook %s of Service %s", match[1]+match[2], match[3])
		needing[hook] = append(needing[hook], f.Row.Ref())
	}
	for _, hook := range slices.Sorted(maps.Keys(needing)) {
		all = append(all, fmt.Sprintf("the %s gets no answer, since its program does not run here: %s; take that as ready with --assume %s, or give --fleet a copy without the webhook",
			hook, whoNeed(needing[hook]), needing[hook][0]))
	}
	return all
}

// unknownFields returns a sentence for each field that an object has and its kind has not.
func unknownFields(failures []Finding) []string {
	var all []string
	for _, f := range failures {
		for _, match := range undeclared.FindAllStringSubmatch(f.Reason, -1) {
			all = append(all, fmt.Sprintf("%s has no field %s in %s: delete it from %s, and from all objects that Flux has not tried yet, in what %s applies",
				match[3], match[4], match[2], match[1], f.Row.Ref()))
		}
	}
	return all
}

// missingConfigs returns a sentence for each ConfigMap that does not exist.
func missingConfigs(failures []Finding) []string {
	needing := map[string][]Ref{}
	for _, f := range failures {
		for _, match := range missingConfig.FindAllStringSubmatch(f.Reason, -1) {
			config := f.Row.Namespace + "/" + match[1]
			if !slices.Contains(needing[config], f.Row.Ref()) {
				needing[config] = append(needing[config], f.Row.Ref())
			}
		}
	}
	var all []string
	for _, config := range slices.Sorted(maps.Keys(needing)) {
		all = append(all, fmt.Sprintf("ConfigMap %s is not there: %s; if it is not in the repository, such as one that a script makes, give it with --apply FILE",
			config, whoNeed(needing[config])))
	}
	return all
}

// unfetched finds the reference in the messages of a GitRepository that its mapped repository does not have.
var unfetched = regexp.MustCompile(`couldn't find remote ref "refs/(tags|heads)/([^"]+)"|no match found for (semver): (.+)$`)

// missingReferences returns a sentence for each GitRepository whose mapped folder lacks the tag, the range or the branch.
func missingReferences(failures []Finding) []string {
	var all []string
	for _, f := range failures {
		match := unfetched.FindStringSubmatch(strings.TrimSpace(f.Reason))
		if match == nil || f.Row.Kind != GitRepository {
			continue
		}
		what, way := "tag "+match[2], "map a Git work tree that has it, for instance after git fetch --tags"
		switch {
		case match[1] == "heads":
			what, way = "branch "+match[2], "map a Git work tree that has it, or a folder as URL#"+match[2]+"=DIR"
		case match[3] != "":
			what = "tag in the range " + match[4]
		}
		all = append(all, fmt.Sprintf("%s selects the %s, which the folder of its address in --map does not have: %s", f.Row.Ref(), what, way))
	}
	return all
}

// unmatched finds the address and the range in the message of an OCIRepository that finds no tag.
var unmatched = regexp.MustCompile(`the artifact tag for '(oci://[^']+)': no match found for semver: (.+)$`)

// unmatchedVersions returns a sentence for each OCIRepository whose folder has no tag in its range.
func unmatchedVersions(failures []Finding) []string {
	var all []string
	for _, f := range failures {
		if match := unmatched.FindStringSubmatch(strings.TrimSpace(f.Reason)); match != nil && f.Row.Kind == OCIRepository {
			all = append(all, fmt.Sprintf("%s selects a version in %s, and its folder has none: add a version of this range to the address in --map, as in %s:VERSION=DIR", f.Row.Ref(), match[2], match[1]))
		}
	}
	return all
}

// unreadProviders returns a sentence for each input provider whose address is not here, and for each
// Bucket, which no --map serves.
func unreadProviders(failures []Finding) []string {
	var all []string
	for _, f := range failures {
		if f.Row.Kind == Bucket && strings.Contains(f.Reason, notMapped) {
			flags := "--assume " + f.Row.Ref().String()
			for _, other := range failures {
				if slices.Contains(other.Row.Needs, f.Row.Ref()) {
					flags += " --assume " + other.Row.Ref().String()
				}
			}
			all = append(all, fmt.Sprintf("%s is a bucket, which no --map serves: take it and what needs it as ready with %s", f.Row.Ref(), flags))
		}
		if f.Row.Kind == ResourceSetInputProvider && strings.Contains(f.Reason, notMapped) {
			all = append(all, fmt.Sprintf("%[1]s reads from an address outside of the cluster, which no --map serves: take it as ready, with spec.defaultValues as its input, with --assume %[1]s", f.Row.Ref()))
		}
	}
	return all
}

// unknownInput finds the input in the message of a ResourceSet none of whose inputs has it.
var unknownInput = regexp.MustCompile(`map has no entry for key "(\w+)"`)

// unknownInputs returns a sentence for each ResourceSet that uses an input which it does not have.
func unknownInputs(failures []Finding) []string {
	var all []string
	for _, f := range failures {
		if match := unknownInput.FindStringSubmatch(f.Reason); match != nil && f.Row.Kind == ResourceSet {
			all = append(all, fmt.Sprintf("%s uses the input %s, which it does not have: if a provider gives it that is assumed, add %[2]s to the provider's spec.defaultValues, in the fleet or in a copy", f.Row.Ref(), match[1]))
		}
	}
	return all
}

// unreachedClusters returns a sentence for each object that applies into a cluster of a cloud.
func unreachedClusters(failures []Finding) []string {
	var all []string
	for _, f := range failures {
		if strings.Contains(f.Reason, "failed to get access token for cluster") {
			all = append(all, fmt.Sprintf("%[1]s applies into another cluster with the identity of a cloud, and neither is here: take it as ready with --assume %[1]s", f.Row.Ref()))
		}
	}
	return all
}

// missingNamespace finds the name in the API server's message about a namespace that does not exist.
var missingNamespace = regexp.MustCompile(`namespaces "([^"]+)" not found`)

// missingNamespaces returns a sentence for each namespace that does not exist.
func missingNamespaces(failures []Finding) []string {
	needing := map[string][]Ref{}
	for _, f := range failures {
		for _, match := range missingNamespace.FindAllStringSubmatch(f.Reason, -1) {
			if !slices.Contains(needing[match[1]], f.Row.Ref()) {
				needing[match[1]] = append(needing[match[1]], f.Row.Ref())
			}
		}
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(needing)) {
		all = append(all, fmt.Sprintf("namespace %s is not there: %s; if it is not in the repository, such as one that a script or a chart makes, give a manifest of the Namespace with --apply FILE",
			name, whoNeed(needing[name])))
	}
	return all
}

// variable finds a variable in a value that the API server refuses. A Kustomization with
// spec.postBuild replaces all variables.
var variable = regexp.MustCompile(`"[^"$]*\$\{(\w+)[^}]*\}`)

// unreplaced returns a sentence for each Kustomization that fails since it replaces no variables.
func unreplaced(failures []Finding) []string {
	var all []string
	for _, f := range failures {
		if f.Row.Kind != Kustomization {
			continue
		}
		var names []string
		for _, match := range variable.FindAllStringSubmatch(f.Reason, -1) {
			if name := "${" + match[1] + "}"; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			all = append(all, fmt.Sprintf("nothing replaces %s in what %s applies: add spec.postBuild to it; if a script replaces them, such as with envsubst, give --fleet a copy in which it has",
				strings.Join(names, ", "), f.Row.Ref()))
		}
	}
	return all
}

// unset finds the variable in the message of a Kustomization whose spec.postBuild has no value for it.
var unset = regexp.MustCompile(`variable not set \(strict mode\): "(\w+)"`)

// unsetVariables returns a sentence for each Kustomization that replaces a variable without a value.
func unsetVariables(failures []Finding) []string {
	var all []string
	for _, f := range failures {
		if match := unset.FindStringSubmatch(f.Reason); match != nil && f.Row.Kind == Kustomization {
			all = append(all, fmt.Sprintf("${%[1]s} has no value in spec.postBuild of %[2]s, which Flux refuses since version 2.9, unless the gate StrictPostBuildSubstitutions is off: give it one there, in a ConfigMap that it names, or as ${%[1]s:=value}",
				match[1], f.Row.Ref()))
		}
	}
	return all
}

// Lacking returns a sentence for each API group that the failures of a fleet name as not served, one
// for each Secret, ConfigMap and namespace that does not exist, for each input provider and Bucket without its address, for each input that a ResourceSet lacks, for each cluster of a cloud, for each OCIRepository without a version, for each GitRepository without its tag or branch, for each kind in a removed version, for each Kustomization whose variables nothing
// replaces or have no value, for each field that a kind does not have, and for each webhook without an
// answer, with the objects that need them and the way out.
func Lacking(failures []Finding) []string {
	var all []string
	for _, missing := range MissingGroups(failures) {
		all = append(all, missing.String())
	}
	needing, kubeconfig := map[string][]Ref{}, map[string]bool{}
	for _, f := range failures {
		for _, match := range missingSecret.FindAllStringSubmatch(f.Reason, -1) {
			secret := f.Row.Namespace + "/" + match[1]
			if !slices.Contains(needing[secret], f.Row.Ref()) {
				needing[secret] = append(needing[secret], f.Row.Ref())
			}
			kubeconfig[secret] = kubeconfig[secret] || strings.Contains(strings.ToLower(f.Reason), "kubeconfig")
		}
	}
	for _, secret := range slices.Sorted(maps.Keys(needing)) {
		wayOut := "or have it made with invented content by --fake-secrets"
		if i := slices.IndexFunc(needing[secret], func(ref Ref) bool { return ref.Kind == ResourceSetInputProvider }); i >= 0 {
			wayOut = "or take what needs it as ready with --assume " + needing[secret][i].String() + ", since it reads from an address outside of the cluster"
		}
		if kubeconfig[secret] {
			wayOut = "or take what needs it as ready with --assume " + needing[secret][0].String() + ", since no other cluster can be invented"
		}
		all = append(all, fmt.Sprintf("Secret %s is not there: %s; give it with --apply FILE, %s", secret, whoNeed(needing[secret]), wayOut))
	}
	all = append(all, unreadProviders(failures)...)
	all = append(all, unknownInputs(failures)...)
	all = append(all, unreachedClusters(failures)...)
	all = append(all, unmatchedVersions(failures)...)
	all = append(all, missingReferences(failures)...)
	all = append(all, removedVersions(failures)...)
	all = append(all, missingConfigs(failures)...)
	all = append(all, missingNamespaces(failures)...)
	return slices.Concat(all, unreplaced(failures), unsetVariables(failures), unknownFields(failures), silentWebhooks(failures))
}

// namedObjects is the number of objects that a sentence names.
const namedObjects = 3

func nameRefs(refs []Ref) string {
	var texts []string
	for _, ref := range refs[:min(len(refs), namedObjects)] {
		texts = append(texts, ref.String())
	}
	text := strings.Join(texts, ", ")
	if more := len(refs) - namedObjects; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func whoNeed(refs []Ref) string {
	if len(refs) == 1 {
		return nameRefs(refs) + " needs it"
	}
	return nameRefs(refs) + " need it"
}

func whoWait(refs []Ref) string {
	if len(refs) == 1 {
		return nameRefs(refs) + " waits"
	}
	return nameRefs(refs) + " wait"
}
