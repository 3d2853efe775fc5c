package flux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FieldManager is the field manager with which `flux install` and `flux bootstrap`
// apply manifests.
const FieldManager = "flux"

const (
	// applyConcurrency is the number of objects that are applied at a time.
	applyConcurrency = 8
	// policyConcurrency is the number of admission policies that are applied at a time. The API
	// server compiles a policy within the request, which may take 34 s; on a busy machine many
	// policies at a time take longer.
	policyConcurrency = 2
	// applyAttempts is the maximum number of attempts to apply an object while the API server
	// answers that it did not complete the request in time.
	applyAttempts = 3
	// retryPause is the interval of polling for short waits: until a CRD is established, or
	// the API server serves a kind.
	retryPause = 100 * time.Millisecond
	// servedTimeout is how long the API server may refuse an object because it does not know
	// the object's kind or namespace yet, which were applied just before. It does not limit a
	// request, since the API server of a busy machine may be slow.
	servedTimeout = 10 * time.Second
	// establishedTimeout is the timeout of the wait for an accepted CRD. With the tens of kinds of
	// Kyverno, the API server of a busy machine needs more than a minute.
	establishedTimeout = 5 * time.Minute
)

// ReadObjects reads the objects of a stream of YAML or JSON documents. Empty documents are
// skipped, lists are taken apart. It returns an error, with the number of the document, for a
// document that is not valid or has no apiVersion, kind or name.
func ReadObjects(manifests []byte) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	var objects []*unstructured.Unstructured
	for n := 1; ; n++ {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(&obj.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read document %d of the manifests: %w", n, err)
		}
		if len(obj.Object) == 0 {
			continue
		}
		if objects, err = appendObjects(objects, obj); err != nil {
			return nil, fmt.Errorf("cannot read document %d of the manifests: %w", n, err)
		}
	}
}

// appendObjects appends an object, or the items of a list, which may be lists themselves. Items without a kind have
// the kind of their list, as in the API server's answers. It returns an error for an object without a name or a kind.
func appendObjects(objects []*unstructured.Unstructured, obj *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	if !obj.IsList() {
		if obj.GetKind() == "" || obj.GetAPIVersion() == "" || obj.GetName() == "" {
			return nil, errors.New("apiVersion, kind or metadata.name is missing")
		}
		return append(objects, obj), nil
	}
	kind := strings.TrimSuffix(obj.GetKind(), "List")
	err := obj.EachListItem(func(item runtime.Object) (err error) {
		u := item.(*unstructured.Unstructured)
		if u.GetKind() == "" && kind != "" && len(u.Object) > 0 {
			u.SetAPIVersion(obj.GetAPIVersion())
			u.SetKind(kind)
		}
		objects, err = appendObjects(objects, u)
		return err
	})
	return objects, err
}

// ApplyManifests applies objects by server-side apply as [FieldManager], taking
// over fields of others. CRDs, Namespaces and ClusterRoles come first; the rest
// follows once the CRDs are established. It does not wait until objects
// are ready, and does not write objects without a difference.
//
// It does what fluxcd/pkg/ssa does for the flux command, without the dry run of every object
// and the waits that cannot be cancelled. It returns the first error of the API server, or an
// error if the CRDs are not established in time.
func ApplyManifests(ctx context.Context, config *rest.Config, objects []*unstructured.Unstructured) error {
	c, err := client.New(clientConfig(config), client.Options{})
	if err != nil {
		return fmt.Errorf("cannot apply manifests: %w", err)
	}
	return applyAll(ctx, c, objects)
}

// applyAll applies CRDs, Namespaces and ClusterRoles before the objects that need them.
func applyAll(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	var definitions, rest []*unstructured.Unstructured
	for _, obj := range objects {
		switch obj.GetKind() {
		case "CustomResourceDefinition", "Namespace", "ClusterRole":
			definitions = append(definitions, obj)
		default:
			rest = append(rest, obj)
		}
	}
	for _, stage := range [][]*unstructured.Unstructured{definitions, rest} {
		if err := applyStage(ctx, c, stage); err != nil {
			return err
		}
	}
	return nil
}

func applyStage(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(applyConcurrency)
	policies := make(chan struct{}, policyConcurrency)
	for _, obj := range objects {
		group.Go(func() error {
			if strings.HasSuffix(obj.GetKind(), "AdmissionPolicy") {
				policies <- struct{}{}
				defer func() { <-policies }()
			}
			if err := applyObject(ctx, c, obj); err != nil {
				return fmt.Errorf("cannot apply %s: %w", describeObject(obj), err)
			}
			if obj.GetKind() == "CustomResourceDefinition" {
				return waitEstablished(ctx, c, obj)
			}
			return nil
		})
	}
	return group.Wait()
}

// applyObject applies an object, and tries again if the request timed out at the API server.
func applyObject(ctx context.Context, c client.Client, obj *unstructured.Unstructured) error {
	err := applyServed(ctx, c, obj)
	for attempt := 1; attempt < applyAttempts && apierrors.IsTimeout(err); attempt++ {
		err = applyServed(ctx, c, obj)
	}
	return err
}

// applyServed retries while the API server does not know the kind or the namespace: its caches
// learn of both a moment after their creation.
func applyServed(ctx context.Context, c client.Client, obj *unstructured.Unstructured) error {
	desired := obj.DeepCopy()
	desired.SetManagedFields(nil)
	desired.SetResourceVersion("")
	unstructured.RemoveNestedField(desired.Object, "status")
	var last error
	err := wait.PollUntilContextTimeout(ctx, retryPause, servedTimeout, true, func(context.Context) (bool, error) {
		last = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired.DeepCopy()), client.FieldOwner(FieldManager), client.ForceOwnership)
		if apimeta.IsNoMatchError(last) || apierrors.IsNotFound(last) {
			return false, nil
		}
		return true, last
	})
	if last != nil && wait.Interrupted(err) {
		return last
	}
	return err
}

// waitEstablished waits until the server serves a CRD's kind.
func waitEstablished(ctx context.Context, c client.Client, crd *unstructured.Unstructured) error {
	status := ""
	err := wait.PollUntilContextTimeout(ctx, retryPause, establishedTimeout, true, func(ctx context.Context) (bool, error) {
		current := &unstructured.Unstructured{}
		current.SetGroupVersionKind(crd.GroupVersionKind())
		if err := c.Get(ctx, client.ObjectKeyFromObject(crd), current); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		conditions, _, _ := unstructured.NestedSlice(current.Object, "status", "conditions")
		status = "no status"
		for _, item := range conditions {
			condition, _ := item.(map[string]any)
			if condition["type"] == "NamesAccepted" && condition["status"] == "False" {
				return false, fmt.Errorf("names not accepted: %v", condition["message"])
			}
			if condition["type"] == "Established" {
				status = fmt.Sprintf("%v: %v", condition["reason"], condition["message"])
				if condition["status"] == "True" {
					return true, nil
				}
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("cannot wait until %s is established (%s): %w", describeObject(crd), status, err)
	}
	return nil
}

// describeObject returns kind and namespace/name, as messages show them.
func describeObject(obj *unstructured.Unstructured) string {
	name := strings.TrimPrefix(obj.GetNamespace()+"/"+obj.GetName(), "/")
	return obj.GetKind() + " " + name
}
