package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	signedimages "github.com/tenure-dev/tenure/internal/images"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestPinnedFleet checks that a fleet with pinned images starts, refuses other images, and
// gets new images by a single commit. source-controller stops before its next Pod starts, so
// the new Pod must not need any object that source-controller would have to fetch.
func TestPinnedFleet(t *testing.T) {
	t.Parallel()
	e := copyExample(t)
	write(t, string(config.FluxComponents()), e.platform, "clusters/staging/flux-system/gotk-components.yaml")
	pin(t, e, "a")
	r, failed := start(t, e.options(t, "clusters/staging", "https://git.example.com/acme/billing#main="+e.billing))
	expectNothing(t, "the pinned fleet becomes ready altogether", failed)
	kube, err := client.New(r.REST, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	cluster := lockdown.Cluster{Client: kube, Discovery: discovery.NewDiscoveryClientForConfigOrDie(r.REST), Namespace: "flux-system"}
	checked := func() lockdown.Result {
		results, err := cluster.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(results, func(result lockdown.Result) bool { return result.Name == "images" })
		if i < 0 {
			t.Fatalf("check says nothing of images: %+v", results)
		}
		return results[i]
	}
	if result := checked(); !result.OK {
		t.Errorf("check finds %s", result.Message)
	}
	testwait.For(t, "another image to be refused", patience, func() (bool, string) {
		out, err := kubectl(t, r.Cluster, "", "-n", "flux-system", "run", "x", "--image=evil.example.net/x", "--dry-run=server")
		return err != nil && strings.Contains(out+err.Error(), "tenure-images"), out
	})

	pin(t, e, "b")
	testwait.For(t, "every controller to run the next images", patience, func() (bool, string) {
		images := strings.Fields(r.field("flux-system", "pods", ".items[*].spec.containers[*].image"))
		old := slices.DeleteFunc(images, func(image string) bool { return strings.HasSuffix(image, digestOf("b")) })
		return len(images) > 3 && len(old) == 0, fmt.Sprint(images)
	})
	expectNothing(t, "the fleet is ready with the next images", r.settle())
	if result := checked(); !result.OK {
		t.Errorf("check finds %s", result.Message)
	}

	// The undo: the digests are gone, and other images may run.
	lock(t, e, lockdown.Options{Tenants: true, Pins: []lockdown.Pin{}})
	testwait.For(t, "every controller to run an image without a digest", patience, func() (bool, string) {
		images := strings.Fields(r.field("flux-system", "pods", ".items[*].spec.containers[*].image"))
		pinned := slices.ContainsFunc(images, func(image string) bool { return strings.Contains(image, "-controller") && strings.Contains(image, "@") })
		return len(images) > 3 && !pinned, fmt.Sprint(images)
	})
	testwait.For(t, "another image to be admitted", patience, func() (bool, string) {
		out, err := kubectl(t, r.Cluster, "", "-n", "flux-system", "run", "x", "--image=evil.example.net/x", "--dry-run=server")
		return err == nil, fmt.Sprint(out, err)
	})
	expectNothing(t, "the fleet is ready without pins", r.settle())
}

func digestOf(letter string) string { return "sha256:" + strings.Repeat(letter, 64) }

// pin edits the fleet as if all images had this digest, and signatures.
func pin(t *testing.T, e example, letter string) {
	t.Helper()
	f, err := layout.Load(e.platform, "clusters/staging", layout.Options{Components: config.FluxComponents()})
	if err != nil {
		t.Fatal(err)
	}
	images, err := lockdown.Images(f)
	if err != nil {
		t.Fatal(err)
	}
	var pins []lockdown.Pin
	for _, image := range images {
		p, err := signedimages.Split(image.Reference)
		if err != nil {
			t.Fatal(err)
		}
		p.Digest = digestOf(letter)
		pins = append(pins, lockdown.Pin{Name: image.Name, Pin: p})
	}
	lock(t, e, lockdown.Options{Tenants: true, Allow: []string{"helm=https://charts.example.com"}, Pins: pins, ManagerImage: "tenure.dev/tenure-server:v0.1.0@" + digestOf(letter)})
}

// lock edits the fleet's lockdown.
func lock(t *testing.T, e example, options lockdown.Options) {
	t.Helper()
	f, err := layout.Load(e.platform, "clusters/staging", layout.Options{Components: config.FluxComponents()})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := lockdown.Make(f, options)
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Write(e.platform); err != nil {
		t.Fatal(err)
	}
}
