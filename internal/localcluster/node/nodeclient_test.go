package node

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"
)

// unanswered is an API server whose answers all come too late.
type unanswered struct{ typedcorev1.NodeInterface }

func (unanswered) Get(context.Context, string, metav1.GetOptions) (*corev1.Node, error) {
	return nil, context.DeadlineExceeded
}

func (unanswered) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*corev1.Node, error) {
	return nil, context.Canceled
}

// TestNodeClientReturnsErrors checks that nodeClient hides context errors from
// client-go's retry, which mistakes them for the end of its own context and returns
// no error. virtual-kubelet would continue with a nil node.
func TestNodeClientReturnsErrors(t *testing.T) {
	t.Parallel()
	for reason, ask := range map[string]func(typedcorev1.NodeInterface) error{
		"a read that ran out of time": func(c typedcorev1.NodeInterface) error {
			_, err := c.Get(t.Context(), "node", metav1.GetOptions{})
			return err
		},
		"a patch that was given up": func(c typedcorev1.NodeInterface) error {
			_, err := c.Patch(t.Context(), "node", types.StrategicMergePatchType, nil, metav1.PatchOptions{})
			return err
		},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			retried := func(c typedcorev1.NodeInterface) error {
				return retry.RetryOnConflict(retry.DefaultRetry, func() error { return ask(c) })
			}
			if err := retried(nodeClient{unanswered{}}); err == nil {
				t.Errorf("%s is no error", reason)
			}
			if err := retried(unanswered{}); err != nil {
				t.Errorf("%s is an error without nodeClient too, which is needed no more: %v", reason, err)
			}
		})
	}
}
