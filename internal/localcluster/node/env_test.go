package node

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestExpand(t *testing.T) {
	t.Parallel()
	vars := map[string]string{"A": "1", "B": "$(A)", "E": ""}
	for in, want := range map[string]string{
		"":               "",
		"x$(A)y":         "x1y",
		"$(B)":           "$(A)", // values are not expanded again
		"$(E)":           "",
		"$(UNKNOWN)":     "$(UNKNOWN)",
		"$$(A)":          "$(A)",
		"$$$(A)":         "$1",
		"$(A":            "$(A",
		"$A $":           "$A $",
		"$(A$(A))":       "$(A$(A))", // the name ends at the first closing bracket
		"a.$(A).svc.$()": "a.1.svc.$()",
	} {
		if got := expand(in, vars); got != want {
			t.Errorf("expand(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	f.Add("$(A)$$(A)$(")
	f.Fuzz(func(t *testing.T, s string) {
		if !strings.Contains(s, "$") && expand(s, nil) != s {
			t.Fatalf("%q has no reference and must stay", s)
		}
		escaped := strings.ReplaceAll(s, "$", "$$")
		if got := expand(escaped, map[string]string{"A": "x"}); got != s {
			t.Fatalf("escaped %q became %q", s, got)
		}
	})
}

func TestResolveEnv(t *testing.T) {
	t.Parallel()
	yes := true
	client := fake.NewClientset(
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cm"}, Data: map[string]string{"k": "cv"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Data: map[string][]byte{"k": []byte("sv")}})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Labels: map[string]string{"app": "x"}}}
	pod.Status.PodIP = "198.18.0.1"
	from := func(s corev1.EnvVarSource) *corev1.EnvVarSource { return &s }
	key := corev1.LocalObjectReference{Name: "s"}
	tests := map[string]struct {
		reason string
		c      corev1.Container
		want   map[string]string
		err    string
	}{
		"values": {
			reason: "later variables see earlier ones",
			c:      corev1.Container{Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "$(A)$(C)"}, {Name: "C", Value: "2"}}},
			want:   map[string]string{"A": "1", "B": "1$(C)", "C": "2"},
		},
		"fields": {
			reason: "the downward API",
			c: corev1.Container{Env: []corev1.EnvVar{
				{Name: "NS", ValueFrom: from(corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}})},
				{Name: "APP", ValueFrom: from(corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['app']"}})},
				{Name: "IP", ValueFrom: from(corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}})},
			}},
			want: map[string]string{"NS": "ns", "APP": "x", "IP": "198.18.0.1"},
		},
		"resources": {
			reason: "in units of the divisor, rounded up; the node's when there is no limit",
			c: corev1.Container{
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1500m")}},
				Env: []corev1.EnvVar{
					{Name: "GOMAXPROCS", ValueFrom: from(corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}})},
					{Name: "GOMEMLIMIT", ValueFrom: from(corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory", Divisor: resource.MustParse("1Ti")}})},
				},
			},
			want: map[string]string{"GOMAXPROCS": "2", "GOMEMLIMIT": "64"},
		},
		"keys": {
			reason: "config maps and secrets, by key and whole",
			c: corev1.Container{
				EnvFrom: []corev1.EnvFromSource{{Prefix: "P_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}}},
				Env:     []corev1.EnvVar{{Name: "S", ValueFrom: from(corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: key, Key: "k"}})}},
			},
			want: map[string]string{"P_k": "cv", "S": "sv"},
		},
		"optional": {
			reason: "an optional key that is missing sets nothing",
			c:      corev1.Container{Env: []corev1.EnvVar{{Name: "S", ValueFrom: from(corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: key, Key: "none", Optional: &yes}})}}},
			want:   map[string]string{},
		},
		"missing": {
			reason: "a key that is needed must be there",
			c:      corev1.Container{Env: []corev1.EnvVar{{Name: "S", ValueFrom: from(corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: key, Key: "none"}})}}},
			err:    `Secret s has no key "none"`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := resolveEnv(t.Context(), client.CoreV1(), pod, &tc.c, capacity())
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("%s: got error %v, want %q", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestProcessEnvLeavesOutWhatIsNotListed(t *testing.T) {
	t.Parallel()
	hostile := map[string]string{"RUNTIME_NAMESPACE": "ns", "GOGC": "50"}
	for _, name := range []string{"PATH", "LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "GIT_SSH_COMMAND", "HTTPS_PROXY", "https_proxy",
		"NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "HOME", "KUBECONFIG", "GODEBUG", "SSH_AUTH_SOCK", "XDG_CONFIG_HOME", "GNUPGHOME",
		"TMPDIR", "STORAGE_PATH", "AWS_CONFIG_FILE", "GOOGLE_APPLICATION_CREDENTIALS"} {
		hostile[name] = "evil"
	}
	env, dropped := processEnv(fluxProgram(t, "source-controller"), hostile,
		[]string{"HTTPS_PROXY=http://127.0.0.1:1", "GOGC=100"}, map[string]string{"HOME": "/state"})
	want := []string{"GOGC=100", "HOME=/state", "HTTPS_PROXY=http://127.0.0.1:1", "RUNTIME_NAMESPACE=ns"}
	if diff := cmp.Diff(want, env); diff != "" {
		t.Errorf("the node's variables win, and nothing else passes: -want +got\n%s", diff)
	}
	if len(dropped) != len(hostile)-2 {
		t.Errorf("got %d names reported as left out, want %d", len(dropped), len(hostile)-2)
	}
}
