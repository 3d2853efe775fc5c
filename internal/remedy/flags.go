package remedy

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/tenure-dev/tenure/internal/attack"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// system is the kustomization file that `flux bootstrap` writes.
const system = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - gotk-components.yaml
  - gotk-sync.yaml
`

// setFlag gives a controller a flag, in the form that Flux documents for changes
// of its own manifests: a patch of the Deployment in the kustomization file. Where
// such a patch has the flag with another value, the value is changed.
func (t *tree) setFlag(f attack.Flag) {
	file := t.systemFile()
	if _, ok := t.now[file]; !ok {
		if t.exists(file) {
			return
		}
		t.now[file] = system
	}
	before := t.now[file]
	done := t.edit(file, func(s *stream) error {
		if found, err := t.changeFlag(s, f); found || err != nil {
			return err
		}
		return addPatch(s, deploymentPatch(f))
	})
	if !done || before == t.now[file] {
		return
	}
	if name, _, _ := strings.Cut(f.Flag, "="); name == "--default-service-account" {
		t.nameAccounts(f.Controller)
	}
}

// changeFlag looks for patches that set the flag. It says whether there is one.
func (t *tree) changeFlag(s *stream, f attack.Flag) (bool, error) {
	if len(s.docs) == 0 || s.docs[0] == nil {
		return false, errStyle
	}
	name, wanted, _ := strings.Cut(f.Flag, "=")
	written := regexp.MustCompile(regexp.QuoteMeta(name) + `(?:=[^\s"',\]]*)?(?:\b|$|[^-\w])`)
	value := regexp.MustCompile(regexp.QuoteMeta(name) + `(?:=[^\s"',\]]*)?`)
	patches := at(s.docs[0], "patches")
	if patches == nil {
		return false, nil
	}
	found := false
	for i, entry := range patches.Content {
		text := str(entry, "patch")
		if !targets(entry, text, f.Controller) || !written.MatchString(text) {
			continue
		}
		found = true
		// Which account is the fleet's own business, as long as there is one.
		if now := strings.TrimPrefix(value.FindString(text), name); wanted != "true" && len(now) > len("=") {
			continue
		}
		if err := s.replaceIn(0, value, f.Flag, "patches", i, "patch"); err != nil {
			return true, err
		}
	}
	return found, nil
}

// targets says whether an entry of patches is for a controller's Deployment.
func targets(entry *yaml.Node, text, controller string) bool {
	if target := at(entry, "target"); target != nil {
		kind, name := str(target, "kind"), str(target, "name")
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

func deploymentPatch(f attack.Flag) string {
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
func addPatch(s *stream, entry string) error {
	if at(s.docs[0], "patches") != nil {
		return s.appendItem(0, entry, "patches")
	}
	lines := indented(entry, 4)
	lines[0] = "  - " + strings.TrimLeft(lines[0], " ")
	return s.add(0, "patches", "patches:\n"+strings.Join(lines, "\n")+"\n")
}

// nameAccounts makes the platform's own objects name the controller's account:
// with a default account, which has no rights, they could do nothing any more.
// For the root, which `flux bootstrap` writes, it is a patch, as Flux documents
// it.
func (t *tree) nameAccounts(controller string) {
	kind := map[string]string{"kustomize-controller": "Kustomization", "helm-controller": "HelmRelease"}[controller]
	sync := t.fleet.Sync
	for _, o := range t.objects(kind) {
		if !strings.Contains(str(o.node, "apiVersion"), ".toolkit.fluxcd.io/") || o.namespace != sync.Namespace ||
			str(o.node, "spec", "serviceAccountName") != "" || at(o.node, "spec", "kubeConfig") != nil {
			continue
		}
		if path.Base(o.file) != "gotk-sync.yaml" {
			t.edit(o.file, func(s *stream) error {
				return s.add(o.doc, "serviceAccountName", "serviceAccountName: "+controller+"\n", "spec")
			})
			continue
		}
		t.edit(t.systemFile(), func(s *stream) error {
			if patches := at(s.docs[0], "patches"); patches != nil {
				for _, entry := range patches.Content {
					if strings.Contains(str(entry, "patch"), "serviceAccountName") && (str(entry, "target", "name") == o.name() || str(entry, "target", "kind") == "Kustomization") {
						return nil
					}
				}
			}
			return addPatch(s, patchEntry("Kustomization", o.name(), "/spec/serviceAccountName", controller))
		})
	}
}
