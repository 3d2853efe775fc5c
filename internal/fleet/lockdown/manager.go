package lockdown

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/images"
	"github.com/tenure-dev/tenure/internal/release"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// managerName is the name of the manager's Deployment, and of the Kustomization
// that applies it.
const managerName = "tenure-manager"

// managerFile is the file of the manager in a fleet.
const managerFile = managerDir + "/manager.yaml"

var (
	// managerImageLine matches the line with the image in the manifests of config/manager.
	managerImageLine = regexp.MustCompile(`(?m)^( +image: )(\S+)$`)
	// imageReference is the repository of an image, with a host, and its tag or
	// digest or both: https://github.com/distribution/reference.
	imageReference = regexp.MustCompile(`^([a-zA-Z0-9.-]+(?::[0-9]{1,5})?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)+)(:[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}|@sha256:[0-9a-f]{64}|:[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}@sha256:[0-9a-f]{64})$`)
)

// writeManager adds the manager to the tree.
func (t *tree) writeManager(c *component, o Options, capsule bool) error {
	manifests, err := managerManifests(c.Namespace, t.before[managerFile], o.ManagerImage)
	if err != nil {
		return err
	}
	t.now[managerFile] = manifests
	if c.Proxy, err = t.writeProxy(c, o); err != nil {
		return err
	}
	c.Check = t.writeCheck(c, o.Check)
	if capsule {
		t.now[managerFile] = withCapsule(manifests)
		if c.Proxy {
			t.now[proxyFile] = withCapsule(t.now[proxyFile])
		}
	}
	t.now[managerDir+"/kustomization.yaml"], err = c.render("manager.yaml")
	return err
}

// managerManifests returns the manager's manifests for a namespace, with the image that
// [chooseImage] returns.
func managerManifests(namespace, before, wanted string) (string, error) {
	manifests := string(config.Manager())
	image, err := serverImage(managerImage(before), wanted)
	if err != nil {
		return "", err
	}
	manifests = managerImageLine.ReplaceAllString(manifests, "${1}"+image)
	return moved(manifests, namespace), nil
}

// serverImage returns the image that [chooseImage] chooses, or an error if it is none.
func serverImage(before, wanted string) (string, error) {
	image := chooseImage(before, wanted, release.Current())
	return image, CheckImage(image)
}

// CheckImage returns an error if the text is no image with a host and a tag or digest.
func CheckImage(image string) error {
	if !imageReference.MatchString(image) {
		return fmt.Errorf("cannot take %q as the manager's image: write HOST/REPOSITORY:TAG, or with @sha256:… in the tag's place", image)
	}
	return nil
}

// formerRepository is the repository that fleets name which were locked down before the
// first release. No image was ever there.
const formerRepository = "tenure.dev/tenure-server"

// chooseImage returns the image of the manager: the wanted one; or else the one that the fleet
// names, if a person chose it by repository or digest; or else the image of this build. A
// development build, which has no image, keeps whatever image the fleet names.
func chooseImage(before, wanted string, build release.Build) string {
	ours := build.Image()
	switch at := repository(before); {
	case wanted != "":
		return wanted
	case before == "":
		return ours
	case strings.Contains(before, "@"):
		return before
	case at == formerRepository:
		return ours
	case at != repository(ours) || !build.Released():
		return before
	}
	return ours
}

// Unreleased returns a warning if the image does not exist, because this program is a
// development build and the image is its default; otherwise it returns nothing. An empty
// image is the default.
func Unreleased(image string) string {
	build := release.Current()
	if build.Released() || image != "" && image != build.Image() {
		return ""
	}
	return "there is no released image of this development build, so neither the manager nor kustomize-controller with its artifact proxy can start on a cluster whose nodes pull images: " +
		"name an image with --manager-image, or build and push one with `make image PUSH=REPOSITORY:TAG` in Tenure's repository"
}

// moved returns manifests of [config] for another namespace of Flux, in which the manager
// runs: rules that do not read the profile know the manager by the name of its account.
func moved(manifests, namespace string) string {
	return strings.NewReplacer(
		"namespace: flux-system", "namespace: "+namespace,
		admission.ManagerUser, "system:serviceaccount:"+namespace+":"+managerName,
	).Replace(manifests)
}

// managerImage returns the manager's image in the fleet's manifests; empty if there is none or the
// manifests cannot be parsed.
func managerImage(manifests string) string {
	image, _ := managerContainer(manifests)["image"].(string)
	return image
}

// managerContainer returns the container of the manager, or nil if there is none.
func managerContainer(manifests string) map[string]any {
	objects, err := flux.ReadObjects([]byte(manifests))
	if err != nil {
		return nil
	}
	for _, o := range objects {
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		if o.GetKind() != "Deployment" || o.GetName() != managerName || len(containers) == 0 {
			continue
		}
		container, _ := containers[0].(map[string]any)
		return container
	}
	return nil
}

// pinnedManager returns the manager's image in the format of the rule tenure-images. An image
// without a digest is an error: it would never run where images are pinned.
func pinnedManager(manifests string) (string, error) {
	image := managerImage(manifests)
	pin, err := images.Split(image)
	if err != nil {
		return "", fmt.Errorf("cannot pin the manager's image %q: %w", image, err)
	}
	if pin.Digest == "" {
		return "", fmt.Errorf("cannot pin images: the manager's image %s has no digest, so the API server would refuse its Pods: name it with --manager-image %s@sha256:…", image, image)
	}
	return Pin{Pin: pin}.Listed(), nil
}

// repository returns an image without its tag and digest, or the whole text if it is no image.
func repository(image string) string {
	if parts := imageReference.FindStringSubmatch(image); parts != nil {
		return parts[1]
	}
	return image
}
