package node

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// nodeClient replaces context errors of requests, for virtual-kubelet.
// virtual-kubelet writes the status of its node with client-go's
// retry.RetryOnConflict, which returns no error after a context error, so that
// virtual-kubelet uses a nil node. That would end the whole program while the API
// server is down.
type nodeClient struct{ typedcorev1.NodeInterface }

// Get returns the node, or an error that is not a context error.
func (c nodeClient) Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Node, error) {
	node, err := c.NodeInterface.Get(ctx, name, options)
	return node, withoutContext(err)
}

// Patch patches the node, or returns an error that is not a context error.
func (c nodeClient) Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, options metav1.PatchOptions, subresources ...string) (*corev1.Node, error) {
	node, err := c.NodeInterface.Patch(ctx, name, kind, patch, options, subresources...)
	return node, withoutContext(err)
}

// withoutContext returns an error with the same text that errors.Is does not match with a
// context error.
func withoutContext(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the API server did not answer: %v", err) //nolint:errorlint // that it is not wrapped is the point
	}
	return err
}
