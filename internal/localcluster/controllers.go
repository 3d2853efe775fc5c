package localcluster

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// controllersPatience bounds the wait for what kube-controller-manager makes, on a
// slow and busy machine.
const controllersPatience = time.Minute

// aggregatedRoles are the ClusterRoles of Kubernetes' own that have no rules until
// kube-controller-manager has filled them.
var aggregatedRoles = []string{"view", "edit", "admin"}

// awaitControllers waits for what every cluster has that somebody uses: whoever is given
// a role such as view may look at once, and a Pod has an account to run as.
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

// missingOf says what kube-controller-manager has not made yet, or "".
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
