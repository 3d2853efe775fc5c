package config_test

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/config"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestHardened checks the Pods of Tenure's programs: they run without root and capabilities, write no
// files of the image, and have bounds.
func TestHardened(t *testing.T) {
	t.Parallel()
	for name, manifests := range map[string][]byte{"tenure-manager": config.Manager(), "tenure-proxy": config.Proxy(), "tenure-check": config.Check()} {
		pod := podOf(t, manifests)
		if len(pod.Containers) != 1 || len(pod.InitContainers) > 0 {
			t.Fatalf("%s has the containers %v", name, pod.Containers)
		}
		c := pod.Containers[0]
		if s := pod.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s runs as root, or without a seccomp profile: %+v", name, s)
		}
		s := c.SecurityContext
		if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
			s.Capabilities == nil || len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" || len(s.Capabilities.Add) > 0 {
			t.Errorf("%s may write files, or has capabilities: %+v", name, s)
		}
		if pod.HostNetwork || pod.HostPID || pod.HostIPC {
			t.Errorf("%s has namespaces of the node", name)
		}
		r := c.Resources
		if r.Requests.Cpu().IsZero() || r.Requests.Memory().IsZero() || r.Limits.Memory().Cmp(*r.Requests.Memory()) <= 0 {
			t.Errorf("%s has the resources %+v", name, r)
		}
	}
}

// podOf returns the Pod of the only Deployment or CronJob of manifests.
func podOf(t *testing.T, manifests []byte) corev1.PodSpec {
	t.Helper()
	var found []corev1.PodSpec
	for document := range strings.SplitSeq(string(manifests), "\n---\n") {
		var kind metav1.TypeMeta
		var deployment appsv1.Deployment
		var job batchv1.CronJob
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.Kind {
		case "Deployment":
			if err := yaml.Unmarshal([]byte(document), &deployment); err != nil {
				t.Fatal(err)
			}
			found = append(found, deployment.Spec.Template.Spec)
		case "CronJob":
			if err := yaml.Unmarshal([]byte(document), &job); err != nil {
				t.Fatal(err)
			}
			found = append(found, job.Spec.JobTemplate.Spec.Template.Spec)
		}
	}
	if len(found) != 1 {
		t.Fatalf("there are %d Pods", len(found))
	}
	return found[0]
}
