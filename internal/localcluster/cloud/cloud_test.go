package cloud

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// start runs a cloud on the objects until the test ends.
func start(t *testing.T, objects ...runtime.Object) *fake.Clientset {
	t.Helper()
	client := fake.NewClientset(objects...)
	run(t, client)
	return client
}

// run runs a cloud with the client until the test ends.
func run(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, Config{Client: client}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// poll waits for a condition, with a reason and a deadline.
func poll(t *testing.T, reason string, ok func() bool) {
	t.Helper()
	testwait.For(t, reason, time.Minute, func() (bool, string) { return ok(), "it did not happen" })
}

func service(name string, change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	change(s)
	return s
}

func TestLoadBalancers(t *testing.T) {
	t.Parallel()
	class := "example.com/other"
	client := start(t,
		service("kept", func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}
		}),
		service("classy", func(s *corev1.Service) { s.Spec.LoadBalancerClass = &class }),
		service("internal", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }),
		service("new", func(*corev1.Service) {}))
	address := func(name string) string {
		s, err := client.CoreV1().Services("ns").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return (&cloud{pool: testNet}).address(s)
	}
	poll(t, "a new load balancer gets an address", func() bool { return address("new") != "" })
	got := map[string]string{}
	for _, name := range []string{"kept", "classy", "internal", "new"} {
		got[name] = address(name)
	}
	want := map[string]string{"kept": "203.0.113.1", "classy": "", "internal": "", "new": "203.0.113.2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("one address each, kept over a restart, none for others: -want +got\n%s", diff)
	}
}

// TestFailuresAreTriedAgain lets the first write fail, as with an API server that
// restarts.
func TestFailuresAreTriedAgain(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(service("new", func(*corev1.Service) {}))
	var writes atomic.Int32
	client.PrependReactor("patch", "services", func(k8stesting.Action) (bool, runtime.Object, error) {
		return writes.Add(1) == 1, nil, errors.New("connection refused")
	})
	run(t, client)
	poll(t, "the load balancer gets its address in the end", func() bool {
		s, err := client.CoreV1().Services("ns").Get(t.Context(), "new", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return (&cloud{pool: testNet}).address(s) != ""
	})
	if n := writes.Load(); n < 2 {
		t.Errorf("%d writes, want one more than the refused one", n)
	}
}

func TestAddressesRunOut(t *testing.T) {
	t.Parallel()
	c := &cloud{pool: testNet, addresses: map[string]string{}}
	seen := map[string]bool{}
	for i := range 254 {
		ip, err := c.allocate(strconv.Itoa(i), "", "10.0.0.1")
		if err != nil || seen[ip] {
			t.Fatalf("got %q, %v after %d addresses", ip, err, i)
		}
		seen[ip] = true
	}
	if ip, err := c.allocate("one too many"); err == nil {
		t.Errorf("got %q: there is no address left", ip)
	}
	c.release("7")
	if _, err := c.allocate("one too many"); err != nil {
		t.Errorf("an address was given back: %v", err)
	}
}

func claim(name, class string, annotations map[string]string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "u", Annotations: annotations}}
	if class != "" {
		c.Spec.StorageClassName = &class
	}
	return c
}

func TestClaims(t *testing.T) {
	t.Parallel()
	client := start(t,
		claim("mine", DefaultClass, map[string]string{annProvisioner: Provisioner}),
		claim("classless", "", nil),
		&corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "released"},
			Spec:       corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete},
			Status:     corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased},
		},
		&corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "retained"},
			Spec:       corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain},
			Status:     corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased},
		})
	poll(t, "the claim has its volume, what may go is gone, what must stay is there", func() bool {
		volumes, err := client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, v := range volumes.Items {
			names = append(names, v.Name)
		}
		return cmp.Equal(names, []string{"pvc-u", "retained"})
	})
	volume, err := client.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-u", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if ref := volume.Spec.ClaimRef; ref == nil || ref.Name != "mine" || ref.UID != "u" || volume.Spec.StorageClassName != DefaultClass {
		t.Errorf("the volume must be for exactly this claim: %+v", volume.Spec)
	}
}

func TestWantsVolume(t *testing.T) {
	t.Parallel()
	wait, immediate := storagev1.VolumeBindingWaitForFirstConsumer, storagev1.VolumeBindingImmediate
	asked := map[string]string{annProvisioner: "x"}
	tests := map[string]struct {
		reason      string
		provisioner string
		mode        storagev1.VolumeBindingMode
		annotations map[string]string
		bound       string
		want        bool
	}{
		"asked for":           {"the volume controller wants one", "x", immediate, asked, "", true},
		"not asked for":       {"a volume that exists may still match", "x", immediate, nil, "", false},
		"once in tree":        {"nobody asks for these", "kubernetes.io/aws-ebs", immediate, nil, "", true},
		"static":              {"volumes are made by hand", noProvisioner, immediate, asked, "", false},
		"no consumer":         {"the scheduler decides first", "x", wait, asked, "", false},
		"with a consumer":     {"the scheduler has decided", "x", wait, map[string]string{annProvisioner: "x", annSelectedNode: "n"}, "", true},
		"volume was chosen":   {"it has one", "x", immediate, asked, "pv", false},
		"static, no consumer": {"neither", noProvisioner, wait, nil, "", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := claim("c", "k", tc.annotations)
			c.Spec.VolumeName = tc.bound
			if got := wantsVolume(c, &storagev1.StorageClass{Provisioner: tc.provisioner, VolumeBindingMode: &tc.mode}); got != tc.want {
				t.Errorf("%s: got %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}

func TestDefaultClass(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		objects []runtime.Object
		want    []string
	}{
		{"a cluster without a class gets one", nil, []string{DefaultClass}},
		{"a cluster with one keeps it", []runtime.Object{&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "own"}}}, []string{"own"}},
	} {
		c := &cloud{client: fake.NewClientset(tc.objects...)}
		if err := c.ensureClass(t.Context()); err != nil {
			t.Fatal(err)
		}
		classes, err := c.client.StorageV1().StorageClasses().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, class := range classes.Items {
			names = append(names, class.Name)
		}
		if diff := cmp.Diff(tc.want, names); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
	}
}

// TestPlacePods checks that a Pod that wants another node gets the only one, and that a Pod that waits
// for something else keeps waiting.
func TestPlacePods(t *testing.T) {
	t.Parallel()
	pending := func(name, reason, message string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: message},
		}}}
	}
	gated := pending("gated", corev1.PodReasonSchedulingGated, "Scheduling is blocked due to non-empty scheduling gates")
	volume := pending("volume", corev1.PodReasonUnschedulable, "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "local"}}, gated, volume,
		pending("selector", corev1.PodReasonUnschedulable, "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."),
	)
	bound := make(chan string, 3)
	client.PrependReactor("create", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		create, ok := a.(k8stesting.CreateAction)
		if !ok || a.GetSubresource() != "binding" {
			return false, nil, nil
		}
		binding, _ := create.GetObject().(*corev1.Binding)
		bound <- binding.Name + " to " + binding.Target.Name
		return true, binding, nil
	})
	run(t, client)
	poll(t, "the Pod with a selector gets the node", func() bool { return len(bound) > 0 })
	if got := <-bound; got != "selector to local" {
		t.Errorf("bound %s", got)
	}
	for _, c := range slices.Concat(gated.Status.Conditions, volume.Status.Conditions) {
		if otherNode(c) {
			t.Errorf("a Pod that waits for something else wants another node: %s", c.Message)
		}
	}
}
