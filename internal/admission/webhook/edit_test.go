package webhook_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission/webhook"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestEdit decides about changes of the labels and annotations of an owner's namespace.
func TestEdit(t *testing.T) {
	t.Parallel()
	profile := &v1alpha1.TenancyProfile{Spec: v1alpha1.TenancyProfileSpec{
		PlatformNamespaces: []string{"flux-system"},
		NamespaceMetadata:  v1alpha1.NamespaceMetadata{Labels: []v1alpha1.ValuePattern{"listed/*", "secretive", "kustomize.toolkit.fluxcd.io/*"}, Annotations: []v1alpha1.ValuePattern{"note"}},
	}}
	const owner, team = "tenure.dev/made-by", "team"
	for _, tc := range []struct {
		reason string
		tenant func(*v1alpha1.Tenant)
		user   string
		made   string
		// labels and annotations are the changes; an empty value takes one off.
		labels, annotations map[string]string
		want                string
		// wantLabels are those of the answer that differ from the namespace's before.
		wantLabels map[string]string
	}{
		{reason: "a label that the profile lists", labels: map[string]string{"listed/x": "y"}, wantLabels: map[string]string{"listed/x": "y"}},
		{reason: "an annotation that it lists", annotations: map[string]string{"note": "y"}},
		{reason: "one that nobody lists", labels: map[string]string{"control-plane": "x"}, want: "must not have the label control-plane, which is not among those that owners choose"},
		{reason: "taking off one that nobody lists", labels: map[string]string{"given": ""}, want: "must not have the label given, which is not among those"},
		{reason: "an annotation that nobody lists", annotations: map[string]string{"x": "y"}, want: "must not have the annotation x, which is not among those"},
		{reason: "a forbidden one", labels: map[string]string{"secretive": "x"}, want: "must not have the label secretive: those that match secret* are forbidden"},
		{reason: "a required one to a value that is right", labels: map[string]string{"env": "dev-2"}, wantLabels: map[string]string{"env": "dev-2"}},
		{reason: "a required one to another", labels: map[string]string{"env": "prod"}, want: `must not have the label env with the value "prod": it has to match dev-*`},
		{reason: "taking off a required one", labels: map[string]string{"env": ""}, want: "needs the label env"},
		{reason: "one of the Tenant's gets its value back", labels: map[string]string{team: "ops"}},
		{reason: "and so does one that is taken off", labels: map[string]string{team: ""}},
		{reason: "its own values, as the manager writes them", labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}},
		{reason: "another tenant", labels: map[string]string{"tenure.dev/tenant": "other"}, want: "must keep the label tenure.dev/tenant"},
		{reason: "who made it", labels: map[string]string{owner: "platform"}, want: "must keep the label " + owner},
		{reason: "a protected one", labels: map[string]string{"resource.kubernetes.io/admin-access": "x"}, want: "which the platform decides on"},
		{reason: "that the platform applied it", labels: map[string]string{"kustomize.toolkit.fluxcd.io/namespace": "flux-system"}, want: "that the platform applied it"},
		{reason: "a stranger", user: "mallory", labels: map[string]string{"listed/x": "y"}, want: "you are not one of the owners of its tenant"},
		{reason: "a namespace of the platform's making", made: "platform", labels: map[string]string{"listed/x": "y"}, want: "was not made by an owner"},
		{reason: "a cordoned tenant", tenant: func(t *v1alpha1.Tenant) { t.Spec.Cordoned = true }, labels: map[string]string{"listed/x": "y"}, want: "the tenant is cordoned"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			if tc.user == "" {
				tc.user = "alice"
			}
			before := wanted("my-web", "tenure.dev/tenant", "dev-team", owner, "owner", team, "dev", "given", "x", "pod-security.kubernetes.io/enforce", "baseline")
			if tc.made != "" {
				before.Labels[owner] = tc.made
			}
			asked := before.DeepCopy()
			change(asked.Labels, tc.labels)
			asked.Annotations = maps.Clone(tc.annotations)
			got, err := webhook.Edit(webhook.Situation{Tenant: tenant(tc.tenant), Profile: profile, Owner: []string{"User\n\n" + tc.user}}, before, asked)
			if err == nil && tc.want != "" || err != nil && (tc.want == "" || !strings.Contains(err.Error(), tc.want)) {
				t.Fatalf("got %v\nwant %s", err, tc.want)
			}
			if err != nil {
				return
			}
			want := maps.Clone(before.Labels)
			change(want, tc.wantLabels)
			if diff := cmp.Diff(want, got.Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
	if got, err := webhook.Edit(webhook.Situation{Tenant: tenant(nil), Profile: profile, Owner: []string{"User\n\nalice"}}, wanted("my-web"), &corev1.Namespace{}); err == nil {
		t.Errorf("taking off everything is admitted: %v", got)
	}
}

func change(to, changes map[string]string) {
	for key, value := range changes {
		if value == "" {
			delete(to, key)
			continue
		}
		to[key] = value
	}
}

// TestEditReferences changes the owner references of an owner's namespace: those of a namespace
// of a Capsule Tenant stay, and the policies decide about the others.
func TestEditReferences(t *testing.T) {
	t.Parallel()
	reference := func(kind, group, uid string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: group + "/v1beta2", Kind: kind, Name: "x", UID: types.UID(uid)}
	}
	translated := tenant(func(t *v1alpha1.Tenant) { t.Spec.Namespaces.Labels["capsule.clastix.io/tenant"] = t.Name })
	of, another, job := reference("Tenant", "capsule.clastix.io", "1"), reference("Tenant", "capsule.clastix.io", "2"), reference("Job", "batch", "3")
	for name, tc := range map[string]struct {
		labelled            bool
		before, asked, want []metav1.OwnerReference
	}{
		"another Tenant":  {true, []metav1.OwnerReference{of}, []metav1.OwnerReference{another}, []metav1.OwnerReference{of}},
		"without a label": {false, []metav1.OwnerReference{of}, []metav1.OwnerReference{another}, []metav1.OwnerReference{of}},
		"one more":        {true, []metav1.OwnerReference{of}, []metav1.OwnerReference{of, job}, []metav1.OwnerReference{of}},
		"none":            {true, []metav1.OwnerReference{job, of}, nil, []metav1.OwnerReference{job, of}},
		"neither":         {false, []metav1.OwnerReference{of}, nil, nil},
		"not of Capsule":  {true, []metav1.OwnerReference{job}, nil, nil},
		"without before":  {true, nil, []metav1.OwnerReference{of}, []metav1.OwnerReference{of}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := wanted("my-web", "tenure.dev/tenant", "dev-team", "capsule.clastix.io/tenant", "dev-team", "tenure.dev/made-by", "owner")
			asked := before.DeepCopy()
			before.OwnerReferences, asked.OwnerReferences = tc.before, tc.asked
			if !tc.labelled {
				delete(asked.Labels, "capsule.clastix.io/tenant")
			}
			got, err := webhook.Edit(webhook.Situation{Tenant: translated, Profile: &v1alpha1.TenancyProfile{}, Owner: []string{"User\n\nalice"}}, before, asked)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.OwnerReferences); diff != "" {
				t.Errorf("owner references (-want +got):\n%s", diff)
			}
		})
	}
}
