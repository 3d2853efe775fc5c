package capsule

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// rulesOf returns the status with the rules of some workloads, each with its action.
func rulesOf(t *testing.T, rules ...string) *v1beta2.RuleStatusStatus {
	t.Helper()
	status := &v1beta2.RuleStatusStatus{}
	for _, r := range rules {
		status.Rules = append(status.Rules, unknown(t, r))
	}
	return status
}

func TestSetResources(t *testing.T) {
	t.Parallel()
	const all = "{enforce: {workloads: {resources: {requests: {cpu: {policy: Default, value: 100m}}, limits: {cpu: {policy: Remove}, memory: {policy: MatchRequest}}}}}}"
	ratio := func(targets, value string) string {
		return "{enforce: {workloads: {targets: [" + targets + "], resources: {limits: {cpu: {policy: Ratio, value: '" + value + "'}, memory: {policy: Ratio, value: '" + value + "'}}}}}}"
	}
	for name, tc := range map[string]struct {
		rules        []string
		before, want string
	}{
		"defaults": {
			[]string{all}, "{containers: [{name: a}], initContainers: [{name: i, resources: {requests: {cpu: 50m}}}]}",
			"{containers: [{name: a, resources: {requests: {cpu: 100m}}}], initContainers: [{name: i, resources: {requests: {cpu: 50m}}}]}",
		},
		"limits": {
			[]string{all}, "{containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 2Gi}}}]}",
			"{containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {memory: 1Gi}}}]}",
		},
		"no resources of the Pod": {[]string{ratio("pod/initcontainers", "2")}, "{containers: [{name: a, resources: {requests: {cpu: 1}}}]}", ""},
		"resources of the Pod":    {[]string{all}, "{resources: {requests: {memory: 1Gi}}, containers: []}", "{resources: {requests: {memory: 1Gi, cpu: 100m}, limits: {memory: 1Gi}}, containers: []}"},
		"ratio":                   {[]string{ratio("pod/containers", "1.5")}, "{containers: [{name: a, resources: {requests: {cpu: 333m, memory: 1Gi}}}]}", "{containers: [{name: a, resources: {requests: {cpu: 333m, memory: 1Gi}, limits: {cpu: 499m, memory: 1536Mi}}}]}"},
		"ratio and a limit":       {[]string{ratio("pod/containers", "1.5")}, "{containers: [{name: a, resources: {requests: {memory: 1Gi}, limits: {memory: 4Gi}}}]}", ""},
		"the last rule":           {[]string{all, "{enforce: {action: allow, workloads: {resources: {requests: {cpu: {policy: Preserve}}, limits: {cpu: {policy: Preserve}}}}}}"}, "{containers: [{name: a, resources: {limits: {cpu: 2}}}]}", ""},
		"others' rule":            {[]string{"{audience: [{kind: User, name: bob}], " + all[1:]}, "{containers: [{name: a}]}", ""},
		"storage of a Pod": {
			[]string{"{enforce: {workloads: {resources: {limits: {ephemeral-storage: {policy: Default, value: 1Gi}}}}}}"}, "{resources: {limits: {cpu: 1}}, containers: [{name: a}]}",
			"{resources: {limits: {cpu: 1}}, containers: [{name: a, resources: {limits: {ephemeral-storage: 1Gi}}}]}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := func(spec string) *unstructured.Unstructured {
				return object(t, "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: "+spec+"}")
			}
			got := pod(tc.before)
			changed := SetResources(rulesOf(t, tc.rules...), Request{User: "alice", Object: got})
			want := tc.want
			if want == "" {
				want = tc.before
			}
			if changed != (tc.want != "") {
				t.Errorf("changed is %t", changed)
			}
			// A policy that removes the last limit leaves an empty map.
			for _, o := range got.Object["spec"].(map[string]any)["containers"].([]any) {
				if limits, found, _ := unstructured.NestedMap(o.(map[string]any), "resources", "limits"); found && len(limits) == 0 {
					unstructured.RemoveNestedField(o.(map[string]any), "resources", "limits")
				}
			}
			if diff := cmp.Diff(pod(want).Object, got.Object); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAuditResources(t *testing.T) {
	t.Parallel()
	const ratio = "{enforce: {action: audit, workloads: {targets: [pod/containers], resources: {limits: {memory: {policy: Ratio, value: '1.5'}}}}}}"
	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, resources: {requests: {memory: 1Gi}, limits: {memory: 2Gi}}}]}}"
	violated := []string{`workload resource limit "memory" at spec.containers[0].resources.limits["memory"] violates policy Ratio: limit 2Gi must not exceed 1536Mi (request 1Gi x ratio 1500m)`}
	for name, tc := range map[string]struct {
		rules []string
		want  []string
	}{
		"beyond":   {[]string{ratio}, violated},
		"denied":   {[]string{strings.ReplaceAll(ratio, "audit", "deny")}, nil},
		"ended":    {[]string{ratio, "{enforce: {workloads: {resources: {limits: {memory: {policy: Preserve}}}}}}"}, nil},
		"not yet":  {[]string{"{enforce: {workloads: {resources: {limits: {memory: {policy: Preserve}}}}}}", ratio}, violated},
		"requests": {[]string{"{enforce: {action: audit, workloads: {resources: {requests: {memory: {policy: Remove}}}}}}"}, []string{`workload resource request "memory" at spec.containers[0].resources.requests["memory"] violates policy Remove: request must be undefined for policy Remove`}},
		"equal":    {[]string{"{enforce: {action: audit, workloads: {resources: {limits: {memory: {policy: MatchRequest}, cpu: {policy: MatchRequest}}}}}}"}, []string{`workload resource limit "memory" at spec.containers[0].resources.limits["memory"] violates policy MatchRequest: limit and request must both be undefined or equal for policy MatchRequest`}},
		"a pod":    {[]string{strings.ReplaceAll(ratio, "pod/containers", "pod")}, []string{`workload resource limit "memory" at spec.resources.limits["memory"] violates policy Ratio: Ratio requires a request greater than zero`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, Audit(rulesOf(t, tc.rules...), Request{User: "alice", Object: object(t, pod)})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
