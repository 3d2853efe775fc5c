package profile

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// managerName is the name of the manager's Deployment, and of the Kustomization
// that applies it.
const managerName = "tenure-manager"

var (
	// managerImageLine is the image in what config/manager holds.
	managerImageLine = regexp.MustCompile(`(?m)^( +image: )(\S+)$`)
	// imageReference is the repository of an image, with a host, and its tag or
	// digest or both: https://github.com/distribution/reference.
	imageReference = regexp.MustCompile(`^([a-zA-Z0-9.-]+(?::[0-9]{1,5})?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)+)(:[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}|@sha256:[0-9a-f]{64}|:[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}@sha256:[0-9a-f]{64})$`)
)

// writeManager puts the manager into the tree.
func (t *tree) writeManager(c *component, o Options) error {
	const file = managerDir + "/manager.yaml"
	manifests, err := managerManifests(c.Namespace, t.before[file], o.ManagerImage)
	if err != nil {
		return err
	}
	t.now[file] = manifests
	t.now[managerDir+"/kustomization.yaml"], err = c.render("manager.yaml")
	return err
}

// managerManifests is the manager in a namespace, with an image: the one that is
// wanted, or the one that a person chose before.
func managerManifests(namespace, before, wanted string) (string, error) {
	manifests := string(config.Manager())
	ours := managerImageLine.FindStringSubmatch(manifests)[2]
	image := wanted
	if image == "" {
		image = ours
		if chosen := managerImage(before); chosen != "" && repository(chosen) != repository(ours) {
			image = chosen
		}
	}
	if !imageReference.MatchString(image) {
		return "", fmt.Errorf("cannot take %q as the manager's image: write HOST/REPOSITORY:TAG, or with @sha256:… in the tag's place", image)
	}
	manifests = managerImageLine.ReplaceAllString(manifests, "${1}"+image)
	return strings.ReplaceAll(manifests, "namespace: flux-system", "namespace: "+namespace), nil
}

// managerImage is the image of the manager in what the fleet holds; empty when
// there is none. What does not parse is written anew.
func managerImage(manifests string) string {
	objects, err := flux.ReadObjects([]byte(manifests))
	if err != nil {
		return ""
	}
	for _, o := range objects {
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		if o.GetKind() != "Deployment" || o.GetName() != managerName || len(containers) == 0 {
			continue
		}
		container, _ := containers[0].(map[string]any)
		image, _ := container["image"].(string)
		return image
	}
	return ""
}

// repository is an image without its tag and digest, or all of what is no image.
func repository(image string) string {
	if parts := imageReference.FindStringSubmatch(image); parts != nil {
		return parts[1]
	}
	return image
}
