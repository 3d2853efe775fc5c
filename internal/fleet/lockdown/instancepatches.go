package lockdown

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	"sigs.k8s.io/yaml"
)

// patchMarker begins the patches that the profile writes, which it replaces and removes.
const patchMarker = "# " + marker

// egressPolicy is Flux's network policy that lets every Pod of its namespace connect to anything, and
// scrapingPolicy the one that lets every Pod of the cluster reach the metrics of its controllers.
const (
	egressPolicy   = "allow-egress"
	scrapingPolicy = "allow-scraping"
)

// instancePatch is an entry of spec.kustomize.patches of a FluxInstance.
type instancePatch struct {
	Target struct {
		Kind string
		Name string
	}
	Patch string

	// text is the entry as the profile writes it, without indentation.
	text string
}

// setsStorage reports whether the patch sets the flag of source-controller.
func (p instancePatch) setsStorage() bool { return strings.Contains(p.Patch, storageFlag+"=") }

// setsMetrics reports whether the patch sets the address of a controller's metrics.
func (p instancePatch) setsMetrics() bool { return strings.Contains(p.Patch, metricsFlag+"=") }

// limitsKustomize reports whether the patch names the hosts to which kustomize-controller may connect.
func (p instancePatch) limitsKustomize() bool {
	return strings.Contains(p.Patch, noProxyVariable) && strings.Contains(p.Patch, NoProxyThere)
}

// setsProxy reports whether the patch gives a proxy to controllers, whose network may have no other way
// out, or adds the artifact proxy.
func (p instancePatch) setsProxy() bool {
	return strings.Contains(p.Patch, httpsVariable) || strings.Contains(p.Patch, "name: "+artifactProxyName)
}

// limitsGit reports whether the patch sets the protocols that git may use.
func (p instancePatch) limitsGit() bool { return strings.Contains(p.Patch, gitVariable) }

// limitsEgress reports whether the patch changes the policy that lets every Pod connect to anything.
func (p instancePatch) limitsEgress() bool { return p.changes(egressPolicy) }

// limitsScraping reports whether the patch changes the policy that lets every Pod reach the metrics.
func (p instancePatch) limitsScraping() bool { return p.changes(scrapingPolicy) }

// changes reports whether the patch changes a policy. A strategic merge patch may have the name in itself.
func (p instancePatch) changes(policy string) bool {
	var merged struct{ Metadata struct{ Name string } }
	_ = yaml.Unmarshal([]byte(p.Patch), &merged) // a list of operations has no name
	return p.Target.Name == policy || p.Target.Name == "" && merged.Metadata.Name == policy
}

// own reports whether the profile wrote the patch.
func (p instancePatch) own() bool { return strings.HasPrefix(p.Patch, patchMarker) }

// instanceFile is what the patches of a FluxInstance depend on: the ranges that notifications may not
// reach, and the hosts that kustomize-controller may.
type instanceFile struct {
	Blocked ranges
	Egress  egress
}

// instancePatches returns the patches of the lockdown. It leaves out the flags of source-controller and
// kustomize-controller, the proxies, the protocols of git, and the network policies, if another patch of the FluxInstance sets them.
func instancePatches(blocked ranges, hosts egress, now []instancePatch) ([]instancePatch, error) {
	rendered, err := renderFile("instance.yaml", instanceFile{blocked, hosts})
	if err != nil {
		return nil, err
	}
	var wanted []instancePatch
	if err := yaml.Unmarshal([]byte(rendered), &wanted); err != nil {
		return nil, fmt.Errorf("cannot write the patches of the FluxInstance: %w", err)
	}
	for i, text := range strings.Split(strings.TrimPrefix(rendered, "- "), "\n- ") {
		wanted[i].text = strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n  ", "\n") + "\n"
	}
	others := slices.DeleteFunc(slices.Clone(now), instancePatch.own)
	return slices.DeleteFunc(wanted, func(p instancePatch) bool {
		part := instancePatch.limitsEgress
		for _, other := range []func(instancePatch) bool{instancePatch.setsStorage, instancePatch.setsMetrics, instancePatch.setsProxy, instancePatch.limitsGit, instancePatch.limitsScraping} {
			if other(p) {
				part = other
			}
		}
		return slices.ContainsFunc(others, part)
	}), nil
}

// editPatches replaces the patches of the profile in a document with a FluxInstance, whose spec is at
// the path. Other patches stay. It returns [yamledit.ErrUneditable] for a list in flow style.
func editPatches(stream *yamledit.Stream, doc int, spec []any, now, wanted []instancePatch) error {
	kustomize := append(slices.Clone(spec), "kustomize")
	list := append(slices.Clone(kustomize), "patches")
	own := slices.DeleteFunc(slices.Clone(now), func(p instancePatch) bool { return !p.own() })
	same := func(a, b instancePatch) bool { return a.Target == b.Target && a.Patch == b.Patch }
	if slices.EqualFunc(own, wanted, same) {
		return nil
	}
	for _, p := range wanted {
		if err := addPatch(stream, doc, spec, p.text); err != nil {
			return err
		}
	}
	if len(wanted) == 0 && len(own) == len(now) {
		if fields := yamledit.At(stream.Docs[doc], kustomize...); len(fields.Content) > 2 {
			return stream.RemoveKey(doc, "patches", kustomize...)
		}
		return stream.RemoveKey(doc, "kustomize", spec...)
	}
	for i := len(now) - 1; i >= 0; i-- {
		if now[i].own() {
			if err := stream.RemoveItem(doc, i, list...); err != nil {
				return err
			}
		}
	}
	return nil
}

// addPatch appends a patch, and creates the list if there is none.
func addPatch(stream *yamledit.Stream, doc int, spec []any, text string) error {
	under := func(key, text string) string {
		return key + ":\n" + strings.Join(yamledit.Indented(text, 2), "\n") + "\n"
	}
	kustomize := append(slices.Clone(spec), "kustomize")
	list := append(slices.Clone(kustomize), "patches")
	patches := under("patches", "- "+strings.TrimLeft(strings.Join(yamledit.Indented(text, 2), "\n"), " "))
	switch content := stream.Docs[doc]; {
	case yamledit.At(content, list...) != nil:
		return stream.AppendItem(doc, text, list...)
	case yamledit.At(content, kustomize...) != nil:
		return stream.Add(doc, "patches", patches, kustomize...)
	}
	return stream.Add(doc, "kustomize", under("kustomize", patches), spec...)
}

// patchesAt returns the patches in a document.
func patchesAt(stream *yamledit.Stream, doc int, list []any) ([]instancePatch, error) {
	node := yamledit.At(stream.Docs[doc], list...)
	if node == nil {
		return nil, nil
	}
	var found []instancePatch
	if err := node.Decode(&found); err != nil {
		return nil, errors.Join(yamledit.ErrUneditable, err)
	}
	return found, nil
}

// hostsOf returns the hosts besides Flux's and the API server to which the patches of the profile let
// kustomize-controller connect now.
func hostsOf(patches []instancePatch) []string {
	for _, p := range patches {
		if hosts := hostsIn(p.Patch); p.own() && hosts != nil {
			return hosts
		}
	}
	return nil
}

// imageOf returns the image of the artifact proxy in the patches of the profile, or "".
func imageOf(patches []instancePatch) string {
	for _, p := range patches {
		var operations []struct {
			Value struct{ Name, Image string }
		}
		// A strategic merge patch is no list.
		if !p.own() || yaml.Unmarshal([]byte(p.Patch), &operations) != nil {
			continue
		}
		for _, o := range operations {
			if o.Value.Name == artifactProxyName {
				return o.Value.Image
			}
		}
	}
	return ""
}

// rangesIn returns the ranges that the patches of the profile exclude now.
func rangesIn(patches []instancePatch) []string {
	var all []string
	var collect func(any)
	collect = func(value any) {
		for key, field := range asMap(value) {
			if excluded := asList(field); key == "except" {
				for _, cidr := range excluded {
					all = append(all, fmt.Sprint(cidr))
				}
				continue
			}
			collect(field)
		}
		for _, item := range asList(value) {
			collect(item)
		}
	}
	for _, p := range patches {
		var operations any
		// A patch that does not parse has no ranges; the profile writes it again.
		if p.own() && yaml.Unmarshal([]byte(p.Patch), &operations) == nil {
			collect(operations)
		}
	}
	return all
}
