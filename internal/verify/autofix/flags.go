package autofix

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// setFlags adds flags to controllers with a patch of the Deployment in the kustomization file, which Flux
// documents for changes of its own manifests. If a patch sets the flag to another value, setFlags changes
// the value. It adds all flags or none.
func (t *tree) setFlags(flags []catalog.Flag) error {
	before, err := t.bench.build(t)
	if err != nil {
		return err
	}
	return t.attempt(func() {
		for _, f := range flags {
			if started(before, f) {
				continue
			}
			t.expects = append(t.expects, func(after built) bool { return started(after, f) })
			t.setFlag(f)
		}
	})
}

// started reports whether a controller's Deployment has a flag in all builds. For the flag of
// the default account, any value suffices.
func started(b built, f catalog.Flag) bool {
	all := b.find(func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Deployment" && o.GetName() == f.Controller
	})
	return len(all) > 0 && !slices.ContainsFunc(all, func(o *unstructured.Unstructured) bool { return !hasFlag(o, f.Flag) })
}

// hasFlag compares the last value of a flag, which the controllers use.
func hasFlag(deployment *unstructured.Unstructured, flag string) bool {
	name, wanted, _ := strings.Cut(flag, "=")
	containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	if len(containers) == 0 {
		return false
	}
	container, _ := containers[0].(map[string]any)
	args, _, _ := unstructured.NestedStringSlice(container, "args")
	for _, arg := range slices.Backward(args) {
		got, value, ok := strings.Cut(arg, "=")
		switch {
		case got != name:
		case wanted == "true":
			return !ok || value == wanted
		default:
			return value != ""
		}
	}
	return false
}

func (t *tree) setFlag(f catalog.Flag) {
	file := t.systemFile()
	if _, ok := t.now[file]; !ok && !t.addSystemFile(file) {
		return
	}
	before := t.now[file]
	t.edit(file, func(s *yamledit.Stream) error {
		if err := t.changeFlag(s, f); err != nil || s.Text != before {
			return err
		}
		return addPatch(s, deploymentPatch(f))
	})
	if before == t.now[file] {
		return
	}
	if name, _, _ := strings.Cut(f.Flag, "="); name == "--default-service-account" {
		t.nameAccounts(f.Controller)
	}
}

// addSystemFile adds a kustomization file for Flux's manifests, if the fleet has them. The file
// lists all manifests of the folder, since Flux applies all of them without the file.
func (t *tree) addSystemFile(file string) bool {
	entries, err := os.ReadDir(filepath.Join(t.fleet.Dir, filepath.FromSlash(t.fleet.System)))
	if err != nil || t.exists(file) {
		return false
	}
	resources := ""
	for _, entry := range entries {
		switch ext := path.Ext(entry.Name()); {
		case entry.IsDir():
			return false
		case entry.Type().IsRegular() && (ext == ".yaml" || ext == ".yml"):
			resources += "  - " + yamledit.Scalar(entry.Name()) + "\n"
		}
	}
	if !strings.Contains(resources, "gotk-components") {
		return false
	}
	t.now[file] = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n" + resources
	return true
}

// changeFlag changes the value in patches that set the flag.
func (t *tree) changeFlag(s *yamledit.Stream, f catalog.Flag) error {
	if len(s.Docs) == 0 || s.Docs[0] == nil {
		return yamledit.ErrUneditable
	}
	name, _, _ := strings.Cut(f.Flag, "=")
	written := regexp.MustCompile(regexp.QuoteMeta(name) + `(?:=[^\s"',\]]*)?(?:\b|$|[^-\w])`)
	value := regexp.MustCompile(regexp.QuoteMeta(name) + `(?:=[^\s"',\]]*)?`)
	patches := yamledit.At(s.Docs[0], "patches")
	if patches == nil {
		return nil
	}
	for i, entry := range patches.Content {
		text := yamledit.Str(entry, "patch")
		if !targets(entry, text, f.Controller) || !written.MatchString(text) || strings.Contains(text, f.Flag) {
			continue
		}
		if err := s.ReplaceIn(0, value, f.Flag, "patches", i, "patch"); err != nil {
			return err
		}
	}
	return nil
}

// targets reports whether an entry of patches changes a controller's Deployment.
func targets(entry *yaml.Node, text, controller string) bool {
	if target := yamledit.At(entry, "target"); target != nil {
		kind, name := yamledit.Str(target, "kind"), yamledit.Str(target, "name")
		re, err := regexp.Compile("^(?:" + name + ")$")
		return (kind == "" || kind == "Deployment") && (name == "" || err == nil && re.MatchString(controller))
	}
	var patch struct {
		Kind     string `yaml:"kind"`
		Metadata struct {
			Name string `yaml:"name"`
		} `yaml:"metadata"`
	}
	return yaml.Unmarshal([]byte(text), &patch) == nil && patch.Kind == "Deployment" && patch.Metadata.Name == controller
}

func deploymentPatch(f catalog.Flag) string {
	return patchEntry("Deployment", f.Controller, "/spec/template/spec/containers/0/args/-", f.Flag)
}

func patchEntry(kind, name, where, value string) string {
	return fmt.Sprintf(`target:
  kind: %s
  name: %s
patch: |
  - op: add
    path: %s
    value: %s
`, kind, name, where, value)
}

// addPatch adds an entry to the patches of a kustomization file.
func addPatch(s *yamledit.Stream, entry string) error {
	if yamledit.At(s.Docs[0], "patches") != nil {
		return s.AppendItem(0, entry, "patches")
	}
	lines := yamledit.Indented(entry, 4)
	lines[0] = "  - " + strings.TrimLeft(lines[0], " ")
	return s.Add(0, "patches", "patches:\n"+strings.Join(lines, "\n")+"\n")
}

// nameAccounts sets the controller's account in the platform's own objects: with the default
// account, which has no rights, Flux could no longer apply them. For the root, which `flux
// bootstrap` writes, it adds a patch, as Flux documents it.
func (t *tree) nameAccounts(controller string) {
	kind := map[string]string{"kustomize-controller": "Kustomization", "helm-controller": "HelmRelease"}[controller]
	sync := t.fleet.Sync
	t.expects = append(t.expects, func(after built) bool { return len(after.find(nameless(kind, sync.Namespace))) == 0 })
	for _, o := range t.objects(kind) {
		if !strings.Contains(yamledit.Str(o.node, "apiVersion"), ".toolkit.fluxcd.io/") || o.namespace != sync.Namespace ||
			yamledit.Str(o.node, "spec", "serviceAccountName") != "" || yamledit.At(o.node, "spec", "kubeConfig") != nil {
			continue
		}
		if path.Base(o.file) != "gotk-sync.yaml" {
			t.edit(o.file, func(s *yamledit.Stream) error {
				return s.Add(o.doc, "serviceAccountName", "serviceAccountName: "+controller+"\n", "spec")
			})
			continue
		}
		t.edit(t.systemFile(), func(s *yamledit.Stream) error {
			if patches := yamledit.At(s.Docs[0], "patches"); patches != nil {
				for _, entry := range patches.Content {
					if strings.Contains(yamledit.Str(entry, "patch"), "serviceAccountName") && (yamledit.Str(entry, "target", "name") == o.name() || yamledit.Str(entry, "target", "kind") == "Kustomization") {
						return nil
					}
				}
			}
			return addPatch(s, patchEntry("Kustomization", o.name(), "/spec/serviceAccountName", controller))
		})
	}
}

// nameless matches Flux objects of a kind in a namespace for which Flux would impersonate the default
// account.
func nameless(kind, namespace string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool {
		account, _, _ := unstructured.NestedString(o.Object, "spec", "serviceAccountName")
		_, remote, _ := unstructured.NestedMap(o.Object, "spec", "kubeConfig")
		return o.GetKind() == kind && strings.Contains(o.GetAPIVersion(), ".toolkit.fluxcd.io/") && o.GetNamespace() == namespace && account == "" && !remote
	}
}
