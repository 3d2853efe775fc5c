package lockdown_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/images"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	namespace = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: flux-system, labels: {a: b}}\n"
	image     = "registry.example.com/kustomize-controller"
)

var (
	digest = "sha256:" + strings.Repeat("a", 64)
	pins   = []lockdown.Pin{{Name: image, Pin: images.Pin{Repository: image, Tag: "v1.9.5", Digest: digest}}}
)

func pin(repository, tag string) []lockdown.Pin {
	return []lockdown.Pin{{Name: image, Pin: images.Pin{Repository: repository, Tag: tag, Digest: digest}}}
}

// built returns a container and the Namespace from the build of Flux's folder.
func built(t *testing.T, dir string) (container string, ns *unstructured.Unstructured) {
	t.Helper()
	objects, err := flux.Build(dir, dir+"/"+folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		switch o.GetKind() {
		case "Deployment":
			list, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			container = list[0].(map[string]any)["image"].(string)
		case "Namespace":
			ns = o
		}
	}
	return container, ns
}

// managerPinned is the manager's image with a digest; an image without one would be refused
// together with pinned images.
var managerPinned = "tenure.dev/tenure-server:v0.1.0@" + digest

func TestManagerNeedsADigest(t *testing.T) {
	t.Parallel()
	dir := small(t, map[string]string{folder + "gotk-components.yaml": components + namespace})
	_, err := lockdown.Make(load(t, dir, "clusters/one"), lockdown.Options{Tenants: true, Pins: pins})
	if err == nil || !strings.Contains(err.Error(), "the manager's image ghcr.io/tenure-dev/tenure-server:unreleased has no digest") {
		t.Errorf("got error %v", err)
	}
}

// TestPins adds, keeps and removes pins, with and without changes of the other options.
func TestPins(t *testing.T) {
	t.Parallel()
	dir := small(t, map[string]string{folder + "gotk-components.yaml": components + namespace})
	before := read(t, dir)
	apply(t, dir, "clusters/one", lockdown.Options{Tenants: true, ManagerImage: managerPinned})
	unpinned := read(t, dir)
	apply(t, dir, "clusters/one", lockdown.Options{Tenants: true, Pins: pins, ManagerImage: managerPinned})
	pinned := read(t, dir)
	container, ns := built(t, dir)
	if want := image + ":v1.9.5@" + digest; container != want {
		t.Errorf("%s runs, want %s", container, want)
	}
	if got := ns.GetAnnotations()["tenure.dev/images"]; ns.GetLabels()["tenure.dev/images"] == "" || strings.TrimSpace(got) != image+"@"+digest+"\ntenure.dev/tenure-server@"+digest || ns.GetLabels()["a"] != "b" {
		t.Errorf("the namespace is labelled %v and lists %q", ns.GetLabels(), got)
	}
	for _, pins := range [][]lockdown.Pin{pins, nil} {
		if again := apply(t, dir, "clusters/one", lockdown.Options{Tenants: true, Pins: pins, ManagerImage: managerPinned}); len(again.Changes) > 0 || len(again.Notes) > 0 {
			t.Errorf("again with pins %v it notes %q and changes\n%s", pins, again.Notes, again.Diff())
		}
	}
	apply(t, dir, "clusters/one", lockdown.Options{Tenants: true, Pins: []lockdown.Pin{}})
	if diff := cmp.Diff(unpinned, read(t, dir)); diff != "" {
		t.Errorf("not all pins were taken out (-before +after):\n%s", diff)
	}
	dir = fleetOf(t, pinned)
	back(t, dir, "clusters/one")
	if diff := cmp.Diff(before, read(t, dir)); diff != "" {
		t.Errorf("not all was taken out (-before +after):\n%s", diff)
	}
}

// TestPinsRefused checks the effect of the fleet's own image edits on pins.
func TestPinsRefused(t *testing.T) {
	t.Parallel()
	edit := func(entry string) string {
		return system + "images:\n  - {name: registry.example.com/kustomize-controller, " + entry + "}\n"
	}
	const mirror = "mirror.example.com/kustomize-controller"
	for _, tt := range []struct {
		reason, kustomization string
		image                 lockdown.Image
		pins                  []lockdown.Pin
		runs, want            string
	}{
		{"plain", system, lockdown.Image{Name: image, Reference: image + ":v1.9.5"}, pins, image + ":v1.9.5@" + digest, ""},
		{"from a registry of one's own", system, lockdown.Image{Name: image, Reference: image + ":v1.9.5"}, pin(mirror, "v1.9.5"), mirror + ":v1.9.5@" + digest, ""},
		{"the fleet names that registry already", edit("newName: " + mirror), lockdown.Image{Name: image, Reference: mirror + ":v1.9.5"}, pin(mirror, "v1.9.5"), mirror + ":v1.9.5@" + digest, ""},
		{"the fleet sets the tag, and so takes the digest off", edit("newTag: v1.9.4"), lockdown.Image{Name: image, Reference: image + ":v1.9.4"}, pin(image, "v1.9.4"), "", "is pinned, but another entry of images or a patch of the fleet changes it"},
		{"another image was checked", system, lockdown.Image{Name: image, Reference: image + ":v1.9.5"}, []lockdown.Pin{{Name: "x", Pin: pins[0].Pin}}, "", "is not pinned, so its Pods are refused"},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			dir := small(t, map[string]string{folder + "gotk-components.yaml": components + namespace, folder + "kustomization.yaml": tt.kustomization})
			f := load(t, dir, "clusters/one")
			images, err := lockdown.Images(f)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]lockdown.Image{tt.image}, images); diff != "" {
				t.Errorf("the images differ (-want +got):\n%s", diff)
			}
			plan, err := lockdown.Make(f, lockdown.Options{Tenants: true, Pins: tt.pins, ManagerImage: managerPinned})
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got error %v, want %q", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := plan.Write(dir); err != nil {
				t.Fatal(err)
			}
			if runs, _ := built(t, dir); runs != tt.runs {
				t.Errorf("%s runs, want %s", runs, tt.runs)
			}
		})
	}
}

// TestPinsDrift checks that after an update of Flux the verified images still run, and that
// the states report the difference from the manifests.
func TestPinsDrift(t *testing.T) {
	t.Parallel()
	dir := small(t, map[string]string{folder + "gotk-components.yaml": components + namespace})
	if states, err := lockdown.ImageStates(load(t, dir, "clusters/one")); err != nil || len(states) > 0 {
		t.Errorf("without pins there are %v, %v", states, err)
	}
	apply(t, dir, "clusters/one", lockdown.Options{Tenants: true, Pins: pins, ManagerImage: managerPinned})
	write(t, dir, folder+"gotk-components.yaml", strings.ReplaceAll(components, "v1.9.5", "v1.9.6")+namespace)
	const want = "is not the version that is pinned: run `tenure profile multi-tenant --verify-images`"
	states, err := lockdown.ImageStates(load(t, dir, "clusters/one"))
	if err != nil || len(states) != 1 || states[0].Image != image+":v1.9.6" || states[0].Pinned != image+":v1.9.5@"+digest || !strings.HasPrefix(states[0].Message, want) {
		t.Errorf("the states are %+v, %v, want one with %q", states, err, want)
	}
	plan := apply(t, dir, "clusters/one", lockdown.Options{Tenants: true})
	if len(plan.Changes) > 0 || !strings.Contains(strings.Join(plan.Notes, "\n"), want) {
		t.Errorf("it notes %q and changes\n%s", plan.Notes, plan.Diff())
	}
	apply(t, dir, "clusters/one", lockdown.Options{Tenants: true, Pins: pin(image, "v1.9.6"), ManagerImage: managerPinned})
	if states, err := lockdown.ImageStates(load(t, dir, "clusters/one")); err != nil || len(states) != 1 || states[0].Message != "" {
		t.Errorf("after it was run again: %+v, %v", states, err)
	}
}

// TestPinsWithoutManifests checks the error for a fleet without Flux's manifests.
func TestPinsWithoutManifests(t *testing.T) {
	t.Parallel()
	dir := small(t, map[string]string{folder + "gotk-components.yaml": "# placeholder\n"})
	if _, err := lockdown.Images(load(t, dir, "clusters/one")); err == nil || !strings.Contains(err.Error(), lockdown.ErrNoManifests.Error()) {
		t.Errorf("got error %v, want %v", err, lockdown.ErrNoManifests)
	}
}

func TestExportPinned(t *testing.T) {
	t.Parallel()
	images, err := lockdown.ComponentImages([]byte(components + namespace))
	if err != nil || len(images) != 1 || images[0].Reference != image+":v1.9.5" {
		t.Fatalf("the images are %v, %v", images, err)
	}
	manifests, err := lockdown.Export([]byte(components+namespace), lockdown.Options{Tenants: true, Pins: pins, ManagerImage: managerPinned})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"image: " + image + ":v1.9.5@" + digest, "tenure.dev/images: pinned"} {
		if !strings.Contains(string(manifests), want) {
			t.Errorf("%q is not in what is exported", want)
		}
	}
}
