package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// repeated is a request that is sent again and again, as a dry run.
type repeated struct {
	reason string
	send   func(context.Context) error

	// mu protects the other fields.
	mu sync.Mutex
	// sent counts the answers, and admitted those without an error.
	sent, admitted int
	// last is the last answer.
	last error
	// refusedSince is the time of the first refusal after an admission, or zero; longest is the
	// longest time until the next admission.
	refusedSince time.Time
	longest      time.Duration
}

// repeat sends the requests in turn until the context ends.
func repeat(ctx context.Context, requests []*repeated) {
	for {
		for _, r := range requests {
			began := time.Now()
			err := r.send(ctx)
			if ctx.Err() != nil {
				return
			}
			r.count(began, err)
		}
	}
}

// count counts an answer to a request that was sent at a time.
func (r *repeated) count(sent time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent++
	r.last = err
	if err != nil {
		if r.refusedSince.IsZero() {
			r.refusedSince = sent
		}
		return
	}
	r.admitted++
	if !r.refusedSince.IsZero() {
		r.longest = max(r.longest, time.Since(r.refusedSince))
		r.refusedSince = time.Time{}
	}
}

// state returns the counts and the last answer.
func (r *repeated) state() (sent, admitted int, last error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent, r.admitted, r.last
}

// generation returns the policies and bindings of this version with changes, as those of
// another version: each message ends with the text. With other, each policy also has another
// validation, one more variable and one more match condition, and each binding has other actions.
func generation(t *testing.T, text string, other bool) []*unstructured.Unstructured {
	t.Helper()
	objects, err := flux.ReadObjects(config.Policies())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		spec := o.Object["spec"].(map[string]any)
		if o.GetKind() == "ValidatingAdmissionPolicyBinding" {
			if other {
				spec["validationActions"] = []any{"Deny", "Audit"}
			}
			continue
		}
		for _, v := range spec["validations"].([]any) {
			v := v.(map[string]any)
			if text != "" {
				v["messageExpression"] = fmt.Sprintf("(%s) + ' %s'", v["messageExpression"], text)
			}
			if other {
				v["expression"] = fmt.Sprintf("(%s) && variables.generation", v["expression"])
			}
		}
		if other {
			variables, _ := spec["variables"].([]any)
			spec["variables"] = append(variables, map[string]any{"name": "generation", "expression": "true"})
			conditions, _ := spec["matchConditions"].([]any)
			spec["matchConditions"] = append(conditions, map[string]any{"name": "generation", "expression": "true"})
		}
	}
	return objects
}

// applyAll applies objects by server-side apply, one after the other, as Flux, Helm and
// `tenure install` do.
func applyAll(t *testing.T, admin client.Client, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		content, err := json.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		if err := admin.Patch(t.Context(), o.DeepCopy(), client.RawPatch(types.ApplyPatchType, content), client.ForceOwnership, client.FieldOwner("upgrade")); err != nil {
			t.Fatal(err)
		}
	}
}

// While another version of all rules is applied, no request of a tenant that a rule refuses
// is ever admitted. The longest time without an admission of an allowed request is logged: the
// test does not fail by the clock.
func TestUpgradeUnderAttack(t *testing.T) {
	admin, _, restConfig := cluster(t)
	restConfig = rest.CopyConfig(restConfig)
	restConfig.QPS = -1
	create := func(c client.Client, manifest string) func(context.Context) error {
		u := parse(t, manifest)
		return func(ctx context.Context) error { return c.Create(ctx, u.DeepCopy(), client.DryRunAll) }
	}
	tenant := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:serviceaccount:apps:dev-team", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:apps", "system:authenticated"}})
	governed := hostile(t, restConfig)
	const (
		pod     = "{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: NAMESPACE}, spec: {serviceAccountName: ACCOUNT, containers: [{name: x, image: x}]}}"
		service = "{apiVersion: v1, kind: Service, metadata: {name: x, namespace: NAMESPACE}, spec: {externalIPs: [192.0.2.1], ports: [{port: 80}]}}"
		token   = "{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: x, namespace: NAMESPACE, annotations: {kubernetes.io/service-account.name: ACCOUNT}}}"
		content = "{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NAMESPACE}}"
	)
	inApps, inOwn := strings.NewReplacer("NAMESPACE", "apps", "ACCOUNT", "dev-team"), strings.NewReplacer("NAMESPACE", "hostile-own", "ACCOUNT", "hostile")
	// Kubernetes refuses a Pod as an account that does not exist, before the rules do.
	account := parse(t, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: hostile, namespace: hostile-own}}")
	if err := admin.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.Delete(context.WithoutCancel(t.Context()), account); err != nil {
			t.Error(err)
		}
	})
	quota := parse(t, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: platform, namespace: hostile}}")
	attacks := []*repeated{
		{reason: "a Kustomization without an account", send: create(tenant, kustomization(""))},
		{reason: "a source elsewhere, with parameters", send: create(governed, in("hostile-own", source("GitRepository", "url: https://elsewhere.example.net/x")))},
		{reason: "a Pod as Flux's account", send: create(tenant, inApps.Replace(pod))},
		{reason: "a Pod as Flux's account, with parameters", send: create(governed, inOwn.Replace(pod))},
		{reason: "an external address", send: create(tenant, inApps.Replace(service))},
		{reason: "an external address, with parameters", send: create(governed, inOwn.Replace(service))},
		{reason: "a token of Flux's account", send: create(governed, inOwn.Replace(token))},
		{reason: "the platform's quota is deleted", send: func(ctx context.Context) error {
			return governed.Delete(ctx, quota.DeepCopy(), client.DryRunAll)
		}},
		{reason: "parameters of its own", send: create(tenant, "{apiVersion: tenure.dev/v1alpha1, kind: TenantParameters, metadata: {name: tenure, namespace: apps}, spec: {tenant: dev-team}}")},
	}
	honest := []*repeated{
		{reason: "a ConfigMap", send: create(tenant, inApps.Replace(content))},
		{reason: "a ConfigMap, with parameters", send: create(governed, inOwn.Replace(content))},
		{reason: "a Kustomization", send: create(tenant, kustomization("serviceAccountName: dev-team"))},
	}
	all := slices.Concat(attacks, honest)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer func() { stop(); running.Wait() }()
	for _, requests := range [][]*repeated{attacks[:4], attacks[4:], honest} {
		running.Go(func() { repeat(ctx, requests) })
	}
	// answers waits until the answers to all requests are as wanted.
	answers := func(reason string, denied func(string) bool) {
		t.Helper()
		for _, r := range all {
			before, _, _ := r.state()
			testwait.For(t, reason+": "+r.reason, patience, func() (bool, string) {
				sent, _, err := r.state()
				as := err == nil
				if slices.Contains(attacks, r) {
					as = err != nil && strings.Contains(err.Error(), "denied request") && denied(err.Error())
				}
				return as && sent > before+1, fmt.Sprint(sent-before, " answers, the last is ", err)
			})
		}
	}
	const otherTexts, otherSpecs = "[other texts]", "[other specs]"
	for _, round := range []struct {
		reason, text string
		other        bool
		denied       func(string) bool
	}{
		{"rules with other texts are in force", otherTexts, false, func(message string) bool { return strings.HasSuffix(message, otherTexts) }},
		{"rules with other specs are in force", otherSpecs, true, func(message string) bool { return strings.HasSuffix(message, otherSpecs) }},
		{"the rules of this version are in force again", "", false, func(message string) bool { return !strings.Contains(message, "[other ") }},
	} {
		applyAll(t, admin, generation(t, round.text, round.other))
		answers(round.reason, round.denied)
	}
	for _, r := range attacks {
		sent, admitted, _ := r.state()
		if admitted > 0 {
			t.Errorf("%s: %d of %d requests were admitted while the rules changed", r.reason, admitted, sent)
		}
		t.Logf("%s: %d requests, %d admitted", r.reason, sent, admitted)
	}
	for _, r := range honest {
		r.mu.Lock()
		t.Logf("%s: %d of %d requests were admitted; the longest time without an admission is %v", r.reason, r.admitted, r.sent, r.longest)
		r.mu.Unlock()
	}

	// The positive control: an attack gets through as soon as a binding is missing.
	objects := generation(t, "", false)
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "ValidatingAdmissionPolicyBinding" && o.GetName() == admission.Objects+"-flux"
	})
	if err := admin.Delete(t.Context(), objects[i].DeepCopy()); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "an attack to get through without a binding", patience, func() (bool, string) {
		_, admitted, err := attacks[2].state()
		return admitted > 0, fmt.Sprint(err)
	})
	applyAll(t, admin, objects[i:i+1])
	answers("all rules are in force again", func(string) bool { return true })
}

// A release that adds a version of the kinds of parameters, and stores it, leaves the rules in force:
// the API server converts the parameters into the version that the policies name. A release takes
// the version back in the same way. docs/design/api-versions.md builds on both.
func TestFurtherVersion(t *testing.T) {
	admin, tenant, restConfig := cluster(t)
	governed := hostile(t, restConfig)
	const elsewhere = "https://elsewhere.example.net/x"
	create := func(c client.Client, manifest string) func(context.Context) error {
		u := parse(t, manifest)
		return func(ctx context.Context) error { return c.Create(ctx, u.DeepCopy(), client.DryRunAll) }
	}
	attack := &repeated{reason: "a source elsewhere, with parameters", send: create(governed, in("hostile-own", source("GitRepository", "url: "+elsewhere)))}
	plain := &repeated{reason: "a Kustomization without an account", send: create(tenant, kustomization(""))}
	honest := &repeated{reason: "a Kustomization", send: create(tenant, kustomization("serviceAccountName: dev-team"))}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer func() { stop(); running.Wait() }()
	running.Go(func() { repeat(ctx, []*repeated{attack, plain, honest}) })

	define := func(change func(versions []any) []any) {
		t.Helper()
		for _, kind := range []string{"tenancyprofiles", "tenantparameters"} {
			changeVersions(t, admin, kind+".tenure.dev", change)
		}
	}
	store := func(version any, is bool) { version.(map[string]any)["storage"] = is }
	// write changes nothing but an annotation, so that the API server stores the object anew.
	write := func(version, text string) {
		t.Helper()
		for _, object := range []string{"{kind: TenancyProfile, metadata: {name: default}}", "{kind: TenantParameters, metadata: {name: tenure, namespace: hostile-own}}"} {
			o := parse(t, "{apiVersion: tenure.dev/"+version+", "+object[1:])
			patch := fmt.Sprintf(`{"metadata": {"annotations": {"example.com/stored-as": %q}}}`, text)
			testwait.For(t, o.GetKind()+" to be served as "+version, patience, func() (bool, string) {
				err := admin.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch)))
				return err == nil, fmt.Sprint(err)
			})
		}
	}
	define(func(versions []any) []any {
		further := runtime.DeepCopyJSONValue(versions[0]).(map[string]any)
		further["name"] = "v1beta1"
		store(versions[0], false)
		return append(versions, further)
	})
	write("v1beta1", "v1beta1")
	for _, r := range []*repeated{attack, plain, honest} {
		before, _, _ := r.state()
		testwait.For(t, "answers with a further version: "+r.reason, patience, func() (bool, string) {
			sent, _, err := r.state()
			return sent > before+20 && (err == nil) == (r == honest), fmt.Sprint(sent-before, " answers, the last is ", err)
		})
	}

	// The rules read what a client writes in the new version.
	parameters := parse(t, "{apiVersion: tenure.dev/v1beta1, kind: TenantParameters, metadata: {name: tenure, namespace: hostile-own}}")
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(parameters), parameters); err != nil {
		t.Fatal(err)
	}
	spec := parameters.DeepCopy().Object["spec"]
	if err := unstructured.SetNestedStringSlice(parameters.Object, []string{"https://elsewhere.example.net/*"}, "spec", "tenants", "sources", "git"); err != nil {
		t.Fatal(err)
	}
	stop()
	running.Wait()
	for _, r := range []*repeated{attack, plain} {
		if sent, admitted, _ := r.state(); admitted > 0 {
			t.Errorf("%s: %d of %d requests were admitted while the version was added", r.reason, admitted, sent)
		}
	}
	if err := admin.Update(t.Context(), parameters); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the rules to read what was written as v1beta1", patience, func() (bool, string) {
		err := attack.send(t.Context())
		return err == nil, fmt.Sprint(err)
	})
	parameters.Object["spec"] = spec
	if err := admin.Update(t.Context(), parameters); err != nil {
		t.Fatal(err)
	}

	// Back: store the old version, write each object, and only then remove the new one.
	define(func(versions []any) []any {
		store(versions[0], true)
		store(versions[1], false)
		return versions
	})
	write("v1alpha1", "v1alpha1")
	for _, kind := range []string{"tenancyprofiles", "tenantparameters"} {
		crd := parse(t, "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: "+kind+".tenure.dev}}")
		stored := client.RawPatch(types.MergePatchType, []byte(`{"status": {"storedVersions": ["v1alpha1"]}}`))
		if err := admin.Status().Patch(t.Context(), crd, stored); err != nil {
			t.Fatal(err)
		}
	}
	define(func(versions []any) []any { return versions[:1] })
	testwait.For(t, "the rules to refuse the source again", patience, func() (bool, string) {
		err := attack.send(t.Context())
		return err != nil && strings.Contains(err.Error(), "tenure-sources"), fmt.Sprint(err)
	})
}

// changeVersions changes the versions of a kind.
func changeVersions(t *testing.T, admin client.Client, definition string, change func(versions []any) []any) {
	t.Helper()
	crd := parse(t, "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: "+definition+"}}")
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(crd), crd); err != nil {
		t.Fatal(err)
	}
	spec := crd.Object["spec"].(map[string]any)
	spec["versions"] = change(spec["versions"].([]any))
	if err := admin.Update(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
}
