package capsule

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/capsule/v1beta1"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"sigs.k8s.io/yaml"
)

// said formats each resource as group/resources verbs selector subjects.
func said(t *testing.T, resources []v1alpha1.ClusterResource) []string {
	t.Helper()
	var all []string
	for _, r := range resources {
		selector, err := json.Marshal(r.Selector)
		if err != nil {
			t.Fatal(err)
		}
		var who []string
		for _, s := range r.Subjects {
			who = append(who, strings.Join([]string{s.Kind, s.Namespace, s.Name}, ":"))
		}
		all = append(all, strings.Join(r.APIGroups, ",")+"/"+strings.Join(r.Resources, ",")+" "+strings.Join(r.Verbs, ",")+" "+string(selector)+" "+strings.Join(who, " "))
	}
	return all
}

func TestOwnersProxySettings(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, spec string
		want         []string
	}{
		{"nodes are those that the tenant's Pods run on", `{owners: [{kind: User, name: a, proxySettings: [{kind: Nodes, operations: [List]}]}], nodeSelector: {pool: x}}`,
			[]string{`/nodes get,list,watch {"matchLabels":{"pool":"x"}} User::a`}},
		{"owners with the same settings are one entry", `{owners: [{kind: User, name: a, proxySettings: [{kind: PersistentVolumes, operations: [List]}]}, {name: "system:serviceaccount:n:b", proxySettings: [{kind: PersistentVolumes, operations: [List, Delete]}]}, {kind: User, name: c}]}`,
			[]string{`/persistentvolumes get,list,watch {} User::a ServiceAccount:n:b`}},
		{"without List nothing is seen", `{owners: [{kind: User, name: a, proxySettings: [{kind: Nodes, operations: [Update, Delete]}]}]}`, nil},
		{"classes are those that are allowed, and none if nothing is", `{owners: [{kind: User, name: a, proxySettings: [{kind: StorageClasses, operations: [List]}, {kind: IngressClasses, operations: [List]}, {kind: PriorityClasses, operations: [List]}, {kind: RuntimeClasses, operations: [List]}]}],
  storageClasses: {allowed: [fast, slow]}, ingressOptions: {allowedClasses: {matchLabels: {x: z}}}, priorityClasses: {allowedRegex: ".*"}}`,
			[]string{`storage.k8s.io/storageclasses get,list,watch {"matchExpressions":[{"key":"name","operator":"In","values":["fast","slow"]}]} User::a`,
				`networking.k8s.io/ingressclasses get,list,watch {"matchLabels":{"x":"z"}} User::a`}},
		{"what is no label's value selects nothing", `{owners: [{kind: User, name: a, proxySettings: [{kind: StorageClasses, operations: [List]}]}], storageClasses: {allowed: ["a b"]}}`, nil},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			got := Translate(Input{Tenant: parse(t, "{spec: "+tc.spec+"}")}).Spec.ClusterResources
			if diff := cmp.Diff(tc.want, said(t, got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestProxySettingObjects(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, setting, global string
		want                    []string
		notes                   string
	}{
		{reason: "kinds and resources of each subject", setting: `{subjects: [{kind: User, name: a, proxySettings: [{kind: Nodes, operations: [List]}], clusterResources: [{apiGroups: [g], resources: [r], operations: [Get], selector: {matchLabels: {x: z}}}]}]}`,
			want: []string{`/nodes get,list,watch {} User::a`, `g/r get {"matchLabels":{"x":"z"}} User::a`}},
		{reason: "a tenant does not name everybody", setting: `{subjects: [{kind: Group, name: "system:authenticated", proxySettings: [{kind: Nodes, operations: [List]}]}]}`, notes: "spec.subjects[0]"},
		{reason: "the platform does", global: `{rules: [{subjects: [{kind: Group, name: "system:authenticated"}], clusterResources: [{apiGroups: [g], resources: [r], selector: {}}]}]}`,
			want: []string{`g/r get,list,watch {} Group::system:authenticated`}},
		{reason: "nobody is shown what is given to nobody", global: `{rules: [{subjects: [{kind: ServiceAccount, name: x}], clusterResources: [{apiGroups: [g], resources: [r], selector: {}}]}]}`, notes: "spec.rules[0].subjects[0]"},
		{reason: "kinds are named", global: `{rules: [{subjects: [{kind: User, name: a}], clusterResources: [{apiGroups: [g], resources: ["*"], selector: {}}]}]}`, notes: "spec.rules[0].clusterResources[0]"},
		{reason: "parts of objects are not shown", global: `{rules: [{subjects: [{kind: User, name: a}], clusterResources: [{apiGroups: [""], resources: [nodes/proxy], selector: {}}]}]}`, notes: "spec.rules[0].clusterResources[0].resources"},
		{reason: "RBAC is not shown", global: `{rules: [{subjects: [{kind: User, name: a}], clusterResources: [{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], selector: {}}]}]}`, notes: "spec.rules[0].clusterResources[0].apiGroups"},
		{reason: "no selector is not everything", global: `{rules: [{subjects: [{kind: User, name: a}], clusterResources: [{apiGroups: [g], resources: [r]}]}]}`, notes: "spec.rules[0].clusterResources[0].selector"},
		{reason: "a selector that is none selects nothing", global: `{rules: [{subjects: [{kind: User, name: a}], clusterResources: [{apiGroups: [g], resources: [r], selector: {matchExpressions: [{key: a, operator: In}]}}]}]}`, notes: "spec.rules[0].clusterResources[0].selector"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			var setting v1beta1.ProxySettingSpec
			var global v1beta1.GlobalProxySettingsSpec
			if err := yaml.UnmarshalStrict([]byte(tc.setting), &setting); err != nil {
				t.Fatal(err)
			}
			if err := yaml.UnmarshalStrict([]byte(tc.global), &global); err != nil {
				t.Fatal(err)
			}
			a, b := ProxySetting(setting), GlobalProxySettings(global)
			if diff := cmp.Diff(tc.want, said(t, slices.Concat(a.Resources, b.Resources))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			var notes []string
			for _, n := range slices.Concat(a.Notes, b.Notes) {
				notes = append(notes, n.Field)
			}
			if got := strings.Join(notes, " "); got != tc.notes {
				t.Errorf("notes: got %q, want %q", got, tc.notes)
			}
		})
	}
}
