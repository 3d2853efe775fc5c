package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
)

// kubectl runs upstream's kubectl against the cluster.
func kubectl(t *testing.T, cluster *localcluster.Cluster, stdin string, args ...string) (string, error) {
	t.Helper()
	bin, err := testcluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hung)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "kubectl"), args...)
	cmd.Env = []string{"KUBECONFIG=" + cluster.Kubeconfig, "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	return string(out), err
}

func mustKubectl(t *testing.T, cluster *localcluster.Cluster, stdin string, args ...string) string {
	t.Helper()
	out, err := kubectl(t, cluster, stdin, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

const workloads = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      initContainers: [{name: init, image: images.example.com/init:1}]
      containers: [{name: web, image: images.example.com/web:1}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      containers: [{name: db, image: images.example.com/db:1, volumeMounts: [{name: data, mountPath: /data}]}]
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      containers: [{name: agent, image: images.example.com/agent:1}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: once, image: images.example.com/once:1}]
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: OnFailure
          containers: [{name: nightly, image: images.example.com/nightly:1}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Service
metadata: {name: front}
spec:
  type: LoadBalancer
  selector: {app: web}
  ports: [{port: 443, targetPort: 8443}]
`

// TestWorkloadsComplete checks that each kind of workload reaches the state that kubectl calls
// complete.
func TestWorkloadsComplete(t *testing.T) {
	t.Parallel()
	cluster := testcluster.Shared(t)
	const ns = "workloads"
	mustKubectl(t, cluster, "", "create", "namespace", ns)
	mustKubectl(t, cluster, workloads, "-n", ns, "apply", "-f", "-")
	for _, wait := range [][]string{
		{"rollout", "status", "deployment/web", atMost},
		{"rollout", "status", "statefulset/db", atMost},
		{"rollout", "status", "daemonset/agent", atMost},
		{"wait", "job/once", "--for=condition=complete", atMost},
		{"wait", "pvc/claim", "--for=jsonpath={.status.phase}=Bound", atMost},
		{"wait", "service/front", "--for=jsonpath={.status.loadBalancer.ingress[0].ip}", atMost},
		{"create", "job", "by-hand", "--from=cronjob/nightly"},
		{"wait", "job/by-hand", "--for=condition=complete", atMost},
	} {
		mustKubectl(t, cluster, "", append([]string{"-n", ns}, wait...)...)
	}
	address := mustKubectl(t, cluster, "", "-n", ns, "get", "service", "front", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}")
	// On Linux an address of the loopback, elsewhere one of TEST-NET-3.
	if want := map[bool]string{true: "127.", false: "203.0.113."}[runtime.GOOS == "linux"]; !strings.HasPrefix(address, want) {
		t.Errorf("the load balancer's address is %q, want one that begins with %s", address, want)
	}
	if out := mustKubectl(t, cluster, "", "-n", ns, "logs", "deployment/web"); !strings.Contains(out, "simulated") {
		t.Errorf("the log of a simulated Pod does not say so: %q", out)
	}
	mustKubectl(t, cluster, "", "-n", ns, "scale", "deployment/web", "--replicas=1")
	mustKubectl(t, cluster, "", "-n", ns, "rollout", "status", "deployment/web", atMost)
	mustKubectl(t, cluster, "", "delete", "namespace", ns, atMost)
}

func TestTrueVersion(t *testing.T) {
	t.Parallel()
	cluster := testcluster.Shared(t)
	out := mustKubectl(t, cluster, "", "version", "-o", "json")
	if strings.Count(out, `"gitVersion": "v1.36.`) != 2 {
		t.Errorf("client and server should both report v1.36:\n%s", out)
	}
	if out := mustKubectl(t, cluster, "", "get", "nodes"); !strings.Contains(out, "Ready") {
		t.Errorf("no node is ready:\n%s", out)
	}
}

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }
