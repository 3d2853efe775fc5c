package lockdown

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/images"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// images checks that the Pods and Deployments in Flux's namespace use listed images. It
// returns no result if images need not be pinned.
func (c Cluster) images(ctx context.Context) ([]Result, error) {
	namespaces, err := c.list(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(namespaces, func(n *unstructured.Unstructured) bool { return n.GetName() == c.Namespace })
	if at < 0 {
		return nil, nil
	}
	if _, labelled := namespaces[at].GetLabels()[v1alpha1.LabelImages]; !labelled {
		return nil, nil
	}
	listed := strings.Fields(namespaces[at].GetAnnotations()[v1alpha1.AnnotationImages])
	profiles, err := c.list(ctx, v1alpha1.GroupVersion.WithKind("TenancyProfile"))
	if err != nil && !meta.IsNoMatchError(err) {
		return nil, err
	}
	for _, p := range profiles {
		more, _, _ := unstructured.NestedStringSlice(p.Object, "spec", "platformImages")
		listed = append(listed, more...)
	}
	if len(listed) == 0 {
		return []Result{failed("images", "none are listed, so that every image may run").advise(verifyImages)}, nil
	}
	pods, err := c.list(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, client.InNamespace(c.Namespace))
	if err != nil {
		return nil, err
	}
	deployments, err := c.list(ctx, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, client.InNamespace(c.Namespace))
	if err != nil {
		return nil, err
	}
	var wrong []string
	for _, found := range containers(append(pods, deployments...)) {
		pin, err := images.Split(found.image)
		if err != nil || !slices.Contains(listed, Pin{Pin: pin}.Listed()) {
			wrong = append(wrong, fmt.Sprintf("%s has %s", found.id, found.image))
		}
	}
	slices.Sort(wrong)
	return []Result{result("images", len(wrong) == 0, "pinned", "not listed: "+strings.Join(wrong, "; ")).advise(verifyImages)}, nil
}
