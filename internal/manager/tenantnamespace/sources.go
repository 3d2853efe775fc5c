package tenantnamespace

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// crdKind is the kind of CRDs, which are read without their Go types: these would be another
// dependency.
var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

var countedKinds = func() map[string]bool {
	set := map[string]bool{}
	for _, name := range tenancy.CountedKinds() {
		set[name] = true
	}
	return set
}()

// ProfileReader reads the TenancyProfile. It keeps the last version that it read: every
// reconciliation needs the profile, and to read its content takes a hundred times as long as to
// copy it. It may be used from many goroutines.
type ProfileReader struct {
	// Client reads from a cache.
	Client client.Reader
	// Rules are the names of the rules that exemptions may have. Home is the namespace of
	// Tenure.
	Rules []string
	Home  string

	last atomic.Pointer[v1alpha1.TenancyProfile]
}

// Profile implements [Profiles].
func (p *ProfileReader) Profile(ctx context.Context) (*v1alpha1.TenancyProfile, error) {
	content := profileObject()
	err := p.Client.Get(ctx, client.ObjectKey{Name: v1alpha1.ProfileName}, content)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the TenancyProfile: %w", err)
	}
	if last := p.last.Load(); last != nil && last.UID == content.GetUID() && last.ResourceVersion == content.GetResourceVersion() {
		return last.DeepCopy(), nil
	}
	profile, err := tenancy.ReadProfile(content, p.Rules, p.Home)
	if err != nil {
		return nil, err
	}
	p.last.Store(profile.DeepCopy())
	return profile, nil
}

// profileObject is an unstructured TenancyProfile: an object that does not match the Go types
// must not prevent the manager's start.
func profileObject() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("TenancyProfile"))
	return u
}

// ServedKinds reads from the CRDs which of Flux's kinds the cluster serves. Kubernetes would
// never count any other kind.
type ServedKinds struct {
	// Client reads from a cache.
	Client client.Reader
}

// Served implements [Kinds].
func (s ServedKinds) Served(ctx context.Context) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(definitions().GroupVersionKind())
	// Only names are read, once per reconciliation.
	if err := s.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot read which kinds there are: %w", err)
	}
	served := map[string]bool{}
	for i := range list.Items {
		served[list.Items[i].Name] = true
	}
	var kinds []string
	for _, kind := range tenancy.CountedKinds() {
		if served[kind] {
			kinds = append(kinds, kind)
		}
	}
	return kinds, nil
}

// definitions is the kind of CRDs, of which the names are enough.
func definitions() *metav1.PartialObjectMetadata {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(crdKind)
	return crd
}
