package lockdown

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/flux"
	signedimages "github.com/tenure-dev/tenure/internal/images"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Image is an image that Flux's manifests name.
type Image struct {
	// Name is its repository as gotk-components.yaml has it.
	Name string
	// Reference is the image without pins, with tag or digest, after the fleet's own
	// kustomization.
	Reference string
}

// Pin is an image that may run in Flux's namespace, by its digest.
type Pin struct {
	// Name is the name as in [Image]; the pin has the repository to pull the image from.
	Name string
	signedimages.Pin
}

// Listed returns the image in the format of the rule tenure-images.
func (p Pin) Listed() string { return p.Repository + "@" + p.Digest }

// ErrNoManifests reports that the fleet has no images to pin.
var ErrNoManifests = errors.New("the fleet does not hold Flux's manifests: commit gotk-components.yaml first, as `flux bootstrap` does")

// Images returns the images of all workloads in Flux's manifests without pins, by name. It
// returns [ErrNoManifests] if the fleet has no manifests of Flux, and another error if the
// fleet cannot be read or built.
func Images(f *layout.Fleet) ([]Image, error) {
	if f.Instance != nil {
		return nil, fmt.Errorf("--verify-images %w: %s", errInstance, instanceImages)
	}
	if _, missing := f.Overlay[path.Join(f.System, componentsFile)]; missing {
		return nil, fmt.Errorf("cannot pin images: %w", ErrNoManifests)
	}
	t, err := open(f)
	if err != nil {
		return nil, err
	}
	defer t.close()
	plain, err := t.surveyBefore()
	if err != nil {
		return nil, err
	}
	return t.images(plain)
}

// ComponentImages returns the images in Flux's manifests. It returns an error if the manifests
// are not valid, or name an image that is not valid.
func ComponentImages(components []byte) ([]Image, error) {
	objects, err := flux.ReadObjects(components)
	if err != nil {
		return nil, fmt.Errorf("cannot read Flux's manifests: %w", err)
	}
	return imagesOf(objects, objects)
}

// componentsFile is the file with Flux's manifests that a bootstrap writes.
const componentsFile = "gotk-components.yaml"

// surveyBefore builds the fleet without the component.
func (t *tree) surveyBefore() (*survey, error) {
	if err := t.disconnect(); err != nil {
		return nil, err
	}
	t.dropComponent()
	return t.survey()
}

func (t *tree) images(plain *survey) ([]Image, error) {
	content, there := t.now[t.system(componentsFile)]
	if !there {
		content = string(t.fleet.Overlay[t.system(componentsFile)])
	}
	written, err := flux.ReadObjects([]byte(content))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", t.system(componentsFile), err)
	}
	return imagesOf(plain.system(), written)
}

// imagesOf returns the images, with the names from the written manifests and the references
// from the build.
func imagesOf(built, written []*unstructured.Unstructured) ([]Image, error) {
	names := map[string]string{}
	for _, c := range containers(written) {
		names[c.id] = c.image
	}
	found := map[string]Image{}
	for _, c := range containers(built) {
		as, err := signedimages.Split(cmp.Or(names[c.id], c.image))
		if err != nil {
			return nil, fmt.Errorf("cannot pin the image %q of %s: %w", c.image, c.id, err)
		}
		image := Image{Name: as.Repository, Reference: c.image}
		if other, twice := found[image.Name]; twice && other != image {
			return nil, fmt.Errorf("cannot pin %s: %s and %s both run: keep one of them", image.Name, other.Reference, image.Reference)
		}
		found[image.Name] = image
	}
	all := make([]Image, 0, len(found))
	for _, image := range found {
		all = append(all, image)
	}
	slices.SortFunc(all, func(a, b Image) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// container is one of a workload.
type container struct{ id, image string }

// containers returns the containers of all workloads among the objects.
func containers(objects []*unstructured.Unstructured) []container {
	var all []container
	for _, o := range objects {
		spec := []string{"spec", "template", "spec"}
		switch o.GetKind() {
		case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job":
		case "CronJob":
			spec = []string{"spec", "jobTemplate", "spec", "template", "spec"}
		case "Pod":
			spec = []string{"spec"}
		default:
			continue
		}
		for _, field := range []string{"initContainers", "containers"} {
			list, _, _ := unstructured.NestedSlice(o.Object, append(slices.Clone(spec), field)...)
			for _, c := range list {
				m, _ := c.(map[string]any)
				name, _ := m["name"].(string)
				image, _ := m["image"].(string)
				all = append(all, container{id: o.GetKind() + "/" + o.GetName() + "/" + name, image: image})
			}
		}
	}
	return all
}

// rememberedPins returns the pins in the component.
func (t *tree) rememberedPins() []Pin {
	var component struct {
		Images []struct {
			Name    string `json:"name"`
			NewName string `json:"newName"`
			NewTag  string `json:"newTag"`
			Digest  string `json:"digest"`
		} `json:"images"`
	}
	// If the component does not parse, there are no earlier pins; the lockdown writes it again.
	_ = yaml.Unmarshal([]byte(t.before[t.component("kustomization.yaml")]), &component)
	var pins []Pin
	for _, i := range component.Images {
		pins = append(pins, Pin{Name: i.Name, Pin: signedimages.Pin{Repository: cmp.Or(i.NewName, i.Name), Tag: i.NewTag, Digest: i.Digest}})
	}
	return pins
}

// ImageState is the state of an image in Flux's manifests.
type ImageState struct {
	// Image is as Flux's manifests name it, after the fleet's own edits.
	Image string
	// Pinned is the image that runs in its place; empty if it is not pinned.
	Pinned string
	// Message describes the error; empty if there is none.
	Message string
}

const verifyImages = "run `tenure profile multi-tenant --verify-images` on the fleet"

// imageStates compares the images in Flux's manifests with the pins, and both with the objects
// that are built with the pins.
func imageStates(images []Image, pins []Pin, built []*unstructured.Unstructured) []ImageState {
	runs := map[string]bool{}
	for _, c := range containers(built) {
		runs[c.image] = true
	}
	var states []ImageState
	for _, image := range images {
		state := ImageState{Image: image.Reference}
		at := slices.IndexFunc(pins, func(p Pin) bool { return p.Name == image.Name })
		if at < 0 {
			state.Message = "is not pinned, so its Pods are refused: " + verifyImages
			states = append(states, state)
			continue
		}
		state.Pinned = pins[at].String()
		// Its name was read before.
		now, _ := signedimages.Split(image.Reference)
		switch {
		case now.Tag != pins[at].Tag || now.Digest != "" && now.Digest != pins[at].Digest:
			state.Message = "is not the version that is pinned: " + verifyImages
		case !runs[state.Pinned]:
			state.Message = "is pinned, but another entry of images or a patch of the fleet changes it: remove that"
		}
		states = append(states, state)
	}
	return states
}

// ImageStates returns the states of the images of a fleet. It returns none if no image is
// pinned. It returns an error if the fleet cannot be read or built.
func ImageStates(f *layout.Fleet) ([]ImageState, error) {
	t, err := open(f)
	if err != nil {
		return nil, err
	}
	defer t.close()
	pins := t.rememberedPins()
	if len(pins) == 0 {
		return nil, nil
	}
	locked, err := t.survey()
	if err != nil {
		return nil, err
	}
	plain, err := t.surveyBefore()
	if err != nil {
		return nil, err
	}
	images, err := t.images(plain)
	if err != nil {
		return nil, err
	}
	return imageStates(images, pins, locked.system()), nil
}

// checkPins returns an error for new pins that have no effect, and messages for earlier pins that
// have none.
func (t *tree) checkPins(pins []Pin, plain, locked *survey, fresh bool) ([]string, error) {
	if len(pins) == 0 {
		return nil, nil
	}
	images, err := t.images(plain)
	if err != nil {
		return nil, err
	}
	var wrong []string
	for _, s := range imageStates(images, pins, locked.system()) {
		if s.Message != "" {
			wrong = append(wrong, s.Image+" "+s.Message)
		}
	}
	if fresh && len(wrong) > 0 {
		return nil, fmt.Errorf("cannot pin the images:\n  %s", strings.Join(wrong, "\n  "))
	}
	labelled := slices.ContainsFunc(locked.system(), func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Namespace" && o.GetName() == t.fleet.Sync.Namespace
	})
	if !labelled {
		wrong = append(wrong, fmt.Sprintf("the namespace %s is not among Flux's manifests, so the rule cannot refuse other images there: add it to them", t.fleet.Sync.Namespace))
	}
	return wrong, nil
}
