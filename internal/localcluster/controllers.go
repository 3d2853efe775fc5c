package localcluster

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// controllersPatience limits the wait for the objects that kube-controller-manager
// creates, on a slow and busy machine.
const controllersPatience = 3 * time.Minute

// aggregatedRoles are the built-in ClusterRoles whose rules kube-controller-manager
// aggregates. Until then they have no rules.
var aggregatedRoles = []string{"view", "edit", "admin"}

// awaitControllers waits for the objects that every cluster has and that users need
// at once: the rules of roles such as view, and the default ServiceAccount, which
// Pods run as.
func (c *Cluster) awaitControllers(ctx context.Context) error {
	missing := ""
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, controllersPatience, true, func(ctx context.Context) (bool, error) {
		missing = missingOf(ctx, c.client)
		return missing == "", nil
	})
	if err != nil {
		return fmt.Errorf("cannot wait for Kubernetes' controllers (%s is missing): %w; see %s", missing, err, c.logTo.Name())
	}
	return nil
}

// missingOf returns the name of an object that kube-controller-manager has not
// created yet, or "".
func missingOf(ctx context.Context, client kubernetes.Interface) string {
	for _, name := range aggregatedRoles {
		role, err := client.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
		if err != nil || len(role.Rules) == 0 {
			return "what ClusterRole " + name + " gives"
		}
	}
	const account = "default"
	if _, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, account, metav1.GetOptions{}); err != nil {
		return "ServiceAccount " + metav1.NamespaceDefault + "/" + account
	}
	return ""
}
