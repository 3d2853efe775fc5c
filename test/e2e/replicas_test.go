package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// managerReplicas is the number of managers in config/manager.
	managerReplicas = 2
	// maxRefusal is the longest time in which owners' requests may be refused while a replica ends,
	// on a machine that is busy with other tests. It is less than the 15 seconds of the leader's
	// lease: the replica that does not lead serves them.
	maxRefusal = 10 * time.Second
)

// managerProcesses waits until all replicas of the manager are ready and one leads, and returns
// their process ids, the leader's first.
func (r run) managerProcesses(replicas int) []int {
	r.t.Helper()
	var leader, others []int
	testwait.For(r.t, "the replicas of the manager to be ready, and one to lead", patience, func() (bool, string) {
		var pods corev1.PodList
		out := r.kubectl("", "-n", "flux-system", "get", "pods", "-l", "app=tenure-manager", "-o", "json")
		if err := json.Unmarshal([]byte(out), &pods); err != nil {
			r.t.Fatal(err)
		}
		leader, others = nil, nil
		for _, pod := range pods.Items {
			if len(pod.Status.ContainerStatuses) != 1 || !pod.Status.ContainerStatuses[0].Ready || pod.DeletionTimestamp != nil {
				continue
			}
			text, _ := strings.CutPrefix(pod.Status.ContainerStatuses[0].ContainerID, "process://")
			pid, err := strconv.Atoi(text)
			if err != nil {
				r.t.Fatal(err)
			}
			// The log of this process, and not of the one before a restart.
			if strings.Contains(r.kubectl("", "-n", "flux-system", "logs", pod.Name), "cquired lease") {
				leader = append(leader, pid)
				continue
			}
			others = append(others, pid)
		}
		return len(leader) == 1 && len(others) == replicas-1, fmt.Sprintf("%d lead, %d do not", len(leader), len(others))
	})
	return append(leader, others...)
}

// testKilledLeader kills the manager that works. Owners go on to create namespaces, since the other
// replica serves the webhooks, and it makes the next Tenant.
func testKilledLeader(r run) {
	r.kubectl("{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: relay}, spec: {owners: [{kind: User, name: alice}], namespaces: {create: [relay-a]}}}", "apply", "-f", "-")
	config := rest.CopyConfig(r.REST)
	config.Impersonate.UserName = "alice"
	alice, err := kubernetes.NewForConfig(config)
	if err != nil {
		r.t.Fatal(err)
	}
	try := func() error {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "relay-b"}}
		_, err := alice.CoreV1().Namespaces().Create(r.t.Context(), ns, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	testwait.For(r.t, "the owner to be one", patience, func() (bool, string) { err := try(); return err == nil, fmt.Sprint(err) })
	pids := r.managerProcesses(managerReplicas)

	ctx, cancel := context.WithCancel(r.t.Context())
	longest := make(chan time.Duration, 1)
	go func() { longest <- longestRefusal(ctx, try) }()
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		r.t.Fatal(err)
	}
	began := time.Now()
	r.kubectl("{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: relayed}, spec: {owners: [{kind: User, name: ann}], namespaces: {create: [relayed-a]}}}", "apply", "-f", "-")
	testwait.For(r.t, "the other replica to make a Tenant", patience, func() (bool, string) {
		now := r.governedTeams("relayed-")
		return now == 1, fmt.Sprintf("%d of 1", now)
	})
	cancel()
	refused := <-longest
	r.t.Logf("the next Tenant was made %.1fs after the kill; owners were refused for %.1fs", time.Since(began).Seconds(), refused.Seconds())
	if refused > maxRefusal {
		r.t.Errorf("owners were refused for %s, want at most %s", refused, maxRefusal)
	}
	if now := r.managerProcesses(managerReplicas); now[0] != pids[1] && now[0] == pids[0] {
		r.t.Errorf("the killed process leads: %v, before %v", now, pids)
	}
}

// longestRefusal repeats a request until the context ends, and returns the longest time between two
// that succeeded with a failure between them.
func longestRefusal(ctx context.Context, try func() error) time.Duration {
	var longest time.Duration
	var since time.Time
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			if !since.IsZero() {
				longest = max(longest, time.Since(since))
			}
			return longest
		case <-ticker.C:
		}
		before := time.Now()
		switch err := try(); {
		case err == nil && !since.IsZero():
			longest, since = max(longest, time.Since(since)), time.Time{}
		case err != nil && since.IsZero():
			since = before
		}
	}
}
