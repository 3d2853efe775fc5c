package admission_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	digestA = "sha256:" + strings.Repeat("a", 64)
	digestB = "sha256:" + strings.Repeat("b", 64)
	digestF = "sha256:" + strings.Repeat("f", 64)
)

const controller = "registry.example.com:5000/fluxcd/source-controller"

// pinned makes a namespace whose images are pinned, with two of them.
func pinned(t *testing.T, admin client.Client, name string) *unstructured.Unstructured {
	t.Helper()
	u := parse(t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {tenure.dev/images: pinned}, annotations: {tenure.dev/images: %q}}}",
		name, controller+"@"+digestA+"\n  registry.example.com/tools/shell@"+digestB+"  \n"))
	if err := admin.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), u) })
	account := parse(t, fmt.Sprintf("{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: %s}}", name))
	if err := admin.Create(t.Context(), account); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	return u
}

func pod(namespace, spec string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {generateName: x-, namespace: %s}, spec: {%s}}", namespace, spec)
}

func runs(image string) string { return fmt.Sprintf("containers: [{name: x, image: %q}]", image) }

// TestImages checks that Pods of the platform have listed images, whoever creates them.
func TestImages(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	pinned(t, admin, "pinned-images")
	good := controller + ":v1.9.4@" + digestA
	const refused = "tenure-images"
	becomes(t, "the rule to be in force", admin, pod("pinned-images", runs(controller+":v1.9.4")), refused)
	kubernetes := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:replicaset-controller", Groups: []string{"system:masters"}})
	fire := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "jane", Groups: []string{"firefighters", "system:masters"}})
	for _, tc := range []struct {
		reason, namespace, spec string
		as                      client.Client
		want                    string
	}{
		{"an image of the annotation", "pinned-images", runs(good), admin, ""},
		{"without its tag", "pinned-images", runs(controller + "@" + digestA), admin, ""},
		{"the other line of the annotation", "pinned-images", runs("registry.example.com/tools/shell:1@" + digestB), admin, ""},
		{"an image of the profile", "pinned-images", runs("registry.example.com/tools/flagger:1.41@" + digestF), admin, ""},
		{"without a digest", "pinned-images", runs(controller + ":v1.9.4"), admin, "must not have the image " + controller + ":v1.9.4: images are pinned in pinned-images (allowed: registry.example.com/tools/flagger@" + digestF},
		{"another digest", "pinned-images", runs(controller + ":v1.9.4@" + digestB), admin, refused},
		{"another repository", "pinned-images", runs("registry.example.com/other/source-controller:v1.9.4@" + digestA), admin, refused},
		{"another host", "pinned-images", runs("registry.example.net:5000/fluxcd/source-controller@" + digestA), admin, refused},
		{"another port, which is no tag", "pinned-images", runs("registry.example.com:5001/fluxcd/source-controller@" + digestA), admin, refused},
		{"as the account that makes Pods of Deployments", "pinned-images", runs("evil.example.net/x"), kubernetes, refused},
		{"a second container", "pinned-images", fmt.Sprintf("containers: [{name: x, image: %q}, {name: other, image: evil.example.net/x}]", good), admin, "must not have the image evil.example.net/x:"},
		{"before the others", "pinned-images", fmt.Sprintf("initContainers: [{name: other, image: evil.example.net/x}], containers: [{name: x, image: %q}]", good), admin, refused},
		{"mounted", "pinned-images", fmt.Sprintf("containers: [{name: x, image: %q}], volumes: [{name: v, image: {reference: evil.example.net/x}}]", good), admin, refused},
		{"who breaks the glass", "pinned-images", runs("tools.example.net/debug"), fire, ""},
		{"a namespace without the label", "tools", runs("evil.example.net/x"), admin, ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			check(t, tc.as.Create(t.Context(), parse(t, pod(tc.namespace, tc.spec)), client.DryRunAll), tc.want)
		})
	}
}

// TestImagesChange checks that existing Pods may keep their images, and may change to listed images only.
func TestImagesChange(t *testing.T) {
	t.Parallel()
	admin, _, _ := cluster(t)
	ctx := t.Context()
	namespace := pinned(t, admin, "pinned-changes")
	// From before the rule.
	namespace.SetLabels(nil)
	if err := admin.Update(ctx, namespace); err != nil {
		t.Fatal(err)
	}
	old := parse(t, pod("pinned-changes", runs("registry.example.com/old:1")))
	becomes(t, "the rule to be gone", admin, pod("pinned-changes", runs("registry.example.com/old:1")), "")
	if err := admin.Create(ctx, old); err != nil {
		t.Fatal(err)
	}
	namespace.SetLabels(map[string]string{"tenure.dev/images": ""})
	if err := admin.Update(ctx, namespace); err != nil {
		t.Fatal(err)
	}
	becomes(t, "the rule to be in force", admin, pod("pinned-changes", runs("registry.example.com/old:1")), "tenure-images")
	patch := func(subresource, patch string) error {
		if subresource != "" {
			return admin.SubResource(subresource).Patch(ctx, old.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(patch)),
				client.DryRunAll)
		}
		return admin.Patch(ctx, old.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(patch)), client.DryRunAll)
	}
	image := func(image string) string {
		return fmt.Sprintf(`{"spec":{"containers":[{"name":"x","image":%q}]}}`, image)
	}
	debug := func(image string) string {
		return fmt.Sprintf(`{"spec":{"ephemeralContainers":[{"name":"d","image":%q}]}}`, image)
	}
	for _, tc := range []struct {
		reason string
		err    error
		want   string
	}{
		{"a label", patch("", `{"metadata":{"labels":{"a":"b"}}}`), ""},
		{"something else of the spec", patch("", `{"spec":{"activeDeadlineSeconds":60}}`), ""},
		{"to a listed image", patch("", image(controller+"@"+digestA)), ""},
		{"to another image", patch("", image("evil.example.net/x")), "must not have the image evil.example.net/x"},
		{"debugged with a listed image", patch("ephemeralcontainers", debug("registry.example.com/tools/shell@"+digestB)), ""},
		{"debugged with another", patch("ephemeralcontainers", debug("evil.example.net/x")), "must not have the image evil.example.net/x"},
		{"deleted", admin.Delete(ctx, old.DeepCopy(), client.DryRunAll), ""},
	} {
		t.Run(tc.reason, func(t *testing.T) { check(t, tc.err, tc.want) })
	}
}

// Each part of the rule is needed, and none of them keeps a platform from being
// repaired: nothing is refused while nothing is listed, or the profile is missing.
func TestImagesAblation(t *testing.T) {
	admin, _, _ := cluster(t)
	ctx := t.Context()
	namespace := pinned(t, admin, "pinned-ablation")
	bad := pod("pinned-ablation", runs("evil.example.net/x"))
	becomes(t, "the rule to be in force", admin, bad, "tenure-images")
	act := func(action string) {
		t.Helper()
		b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "tenure-images"}}
		if err := admin.Patch(ctx, b, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"validationActions":["`+action+`"]}}`))); err != nil {
			t.Fatal(err)
		}
	}
	act("Audit")
	becomes(t, "the image to be accepted without the rule", admin, bad, "")
	act("Deny")
	becomes(t, "the image to be refused again", admin, bad, "tenure-images")

	p, restore := profile(t, admin)
	unstructured.RemoveNestedField(p.Object, "spec", "platformImages")
	if err := admin.Update(ctx, p); err != nil {
		t.Fatal(err)
	}
	becomes(t, "the namespace's list to remain", admin, bad, "(allowed: "+controller)
	namespace.SetAnnotations(nil)
	if err := admin.Update(ctx, namespace); err != nil {
		t.Fatal(err)
	}
	becomes(t, "nothing to be refused while nothing is listed", admin, bad, "")
	restore()
	becomes(t, "the profile's list to be in force", admin, bad, "(allowed: registry.example.com/tools/flagger")
	p, restore = profile(t, admin)
	if err := admin.Delete(ctx, p); err != nil {
		t.Fatal(err)
	}
	becomes(t, "nothing to be refused without a profile", admin, bad, "")
	restore()
	becomes(t, "the rule to be back", admin, bad, "tenure-images")
	var pods corev1.PodList
	if err := admin.List(ctx, &pods, client.InNamespace("pinned-ablation")); err != nil || len(pods.Items) > 0 {
		t.Errorf("there are %d Pods, want none: %v", len(pods.Items), err)
	}
}
