package lockdown

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/release"
	"github.com/tenure-dev/tenure/internal/tenancy"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Result is the result of one check.
type Result struct {
	// Name is the name of the check.
	Name string
	// OK reports whether the check passed.
	OK bool
	// Message describes the result.
	Message string
	// Fix says how to correct a failed check; "" if the message says so. Many checks may have the same.
	Fix string
	// Objects are the objects that failed the check, as [ObjectName] names them, if the check is about
	// objects. Files are the places in the fleet that define them or that are wrong themselves, as FILE
	// or FILE:LINE: see [Locate].
	Objects, Files []string
}

// Cluster is the cluster to check.
type Cluster struct {
	// Client reads the cluster. The checks write nothing.
	Client client.Reader
	// Discovery reads the kinds that the API server serves.
	Discovery discovery.DiscoveryInterface
	// Namespace is Flux's.
	Namespace string
	// Warn is set if the rules should only warn: bindings that the profile switched to
	// warn are then correct.
	Warn bool
	// TenantNamespaces are the tenants of namespaces, also of those without a tenant's label. If it is
	// nil, only the labels count.
	TenantNamespaces map[string]string
	// Identities act for tenants from outside of their namespaces, if TenantNamespaces is not nil. If it is nil,
	// only the owners in the Tenants count.
	Identities []Identity
	// Dependencies are the objects of the platform that wait for an object of a tenant or copy one, as
	// text, if TenantNamespaces is not nil.
	Dependencies []string

	// operated reports whether flux-operator writes the Deployments of Flux. [Cluster.Check] sets it.
	operated bool
}

// Prerequisites checks the requirements of the lockdown. It returns an error if the cluster does
// not answer.
func (c Cluster) Prerequisites(ctx context.Context) ([]Result, error) {
	info, err := c.Discovery.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("cannot read the version of the cluster: %w", err)
	}
	policies, err := c.servedPolicies()
	if err != nil {
		return nil, err
	}
	results := []Result{
		kubernetesVersion(info.GitVersion, slices.Contains(policies, "MutatingAdmissionPolicy")),
		result("ValidatingAdmissionPolicy", slices.Contains(policies, "ValidatingAdmissionPolicy"), "served", "not served at admissionregistration.k8s.io/v1").advise("enable it in the API server"),
	}
	deployments, err := c.list(ctx, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, client.InNamespace(c.Namespace))
	if err != nil {
		return nil, err
	}
	if len(FlagStates(deployments)) == 0 {
		return append(results, good("Flux", "not installed in "+c.Namespace)), nil
	}
	old := TooOld(deployments)
	return append(results, result("Flux", len(old) == 0, "knows all flags", strings.Join(old, "; ")).advise("update Flux to 2.7.5 or newer")), nil
}

// kubernetesVersion checks the version of the API server, which may serve MutatingAdmissionPolicies.
func kubernetesVersion(served string, mutating bool) Result {
	const name = "Kubernetes"
	v, err := version.ParseGeneric(served)
	if err != nil {
		return failed(name, fmt.Sprintf("%s is no version: Tenure needs %s or newer", served, release.OldestKubernetes))
	}
	tested := version.MustParseGeneric(release.Kubernetes)
	switch {
	case v.LessThan(version.MustParseGeneric(release.OldestKubernetes)):
		return failed(name, fmt.Sprintf("%s refuses Tenure's kinds or rules: update it to %s or newer", served, release.OldestKubernetes))
	case v.Major() > tested.Major() || v.Minor() > tested.Minor():
		return good(name, fmt.Sprintf("%s; this version of tenure was tested with 1.%d and older", served, tested.Minor()))
	case !mutating:
		return good(name, served+"; default classes and metadata of tenants, labels of shards, and volumes in the proxy need 1.36")
	}
	return good(name, served)
}

// servedPolicies returns the kinds that the API server serves at admissionregistration.k8s.io/v1.
func (c Cluster) servedPolicies() ([]string, error) {
	resources, err := c.Discovery.ServerResourcesForGroupVersion("admissionregistration.k8s.io/v1")
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the kinds that the cluster serves: %w", err)
	}
	var kinds []string
	for _, r := range resources.APIResources {
		kinds = append(kinds, r.Kind)
	}
	return kinds, nil
}

// Check checks the lockdown: flags, rights, rules and the TenancyProfile. It returns an error
// if the cluster cannot be read.
func (c Cluster) Check(ctx context.Context) ([]Result, error) {
	deployments, err := c.list(ctx, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, client.InNamespace(c.Namespace))
	if err != nil {
		return nil, err
	}
	c.operated = operated(deployments)
	hasFlux := len(FlagStates(deployments)) > 0
	aboutFlux := func(check func(context.Context) ([]Result, error)) func(context.Context) ([]Result, error) {
		return func(ctx context.Context) ([]Result, error) {
			found, err := check(ctx)
			if hasFlux {
				return found, err
			}
			// Without Flux, a row that holds proves nothing. A row that fails may name a binding that an earlier Flux left.
			return slices.DeleteFunc(found, func(r Result) bool { return r.OK }), err
		}
	}
	var results []Result
	for _, check := range []func(context.Context) ([]Result, error){c.Prerequisites, c.flags, c.operator, aboutFlux(c.rights), aboutFlux(c.tenantRights), aboutFlux(c.network), c.installed, c.defaults, c.posture, c.images, c.manager, c.hosts} {
		found, err := check(ctx)
		if err != nil {
			return results, err
		}
		results = append(results, found...)
	}
	if hasFlux {
		return results, nil
	}
	for i := range results {
		if strings.HasPrefix(results[i].Fix, runProfile) {
			results[i].Fix = installFlux
		}
	}
	return results, nil
}

// runProfile is the advice for a fleet, and lockDown for a cluster with a part of the lockdown that is missing.
// installFlux replaces lockDown if Flux is not in the namespace.
const (
	runProfile  = "run `tenure profile multi-tenant` on the fleet"
	lockDown    = runProfile + withoutFleet
	installFlux = "name Flux's namespace with -n, or install Flux and Tenure: docs/how-to/install.md"

	withoutFleet = "; without a fleet: docs/how-to/install.md"
)

// rulesAdvice returns the advice for an object of Tenure's that is missing or changed. Options are the
// flags of the profile, and values the values of the chart, that it needs; both may be empty. A fleet
// that flux-operator runs has the objects from the chart.
func (c Cluster) rulesAdvice(options, values string) string {
	with := func(advice, more string) string {
		if more == "" {
			return advice
		}
		return advice + " with " + more
	}
	if c.operated {
		return with("install Tenure's chart", values) + ", see docs/how-to/install.md"
	}
	return with(runProfile, options) + withoutFleet
}

func (c Cluster) flags(ctx context.Context) ([]Result, error) {
	deployments, err := c.list(ctx, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, client.InNamespace(c.Namespace))
	if err != nil {
		return nil, err
	}
	var results []Result
	for _, s := range FlagStates(deployments) {
		advice := lockDown
		if c.operated {
			if forNarrowRights(s.Flag) {
				continue
			}
			advice = instanceAdvice(s.Flag)
		}
		results = append(results, result(s.Deployment+" "+s.Name, s.OK(), "in force", s.String()).advise(advice).about("Deployment "+c.Namespace+"/"+s.Deployment))
	}
	if len(results) == 0 {
		return []Result{failed("flags", "no controllers of Flux in "+c.Namespace).advise(installFlux)}, nil
	}
	return results, nil
}

func (c Cluster) rights(ctx context.Context) ([]Result, error) {
	if c.operated {
		return []Result{good("rights of Flux", "as flux-operator binds them, which no field of the FluxInstance narrows: a compromised controller is a cluster-admin")}, nil
	}
	bindings, err := c.list(ctx, schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"})
	if err != nil {
		return nil, err
	}
	wrong := wide(bindings, c.Namespace)
	for _, b := range bindings {
		if strings.HasPrefix(b.GetName(), "crd-controller") {
			wrong = append(wrong, "ClusterRoleBinding "+b.GetName()+" lets every controller of Flux list all Secrets")
		}
	}
	return []Result{result("rights of Flux", len(wrong) == 0, "cut down", strings.Join(wrong, "; ")).advise(lockDown).about(wrong...)}, nil
}

func (c Cluster) posture(ctx context.Context) ([]Result, error) {
	profiles, err := c.list(ctx, v1alpha1.GroupVersion.WithKind("TenancyProfile"))
	if meta.IsNoMatchError(err) {
		profiles, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(profiles, func(p *unstructured.Unstructured) bool { return p.GetName() == v1alpha1.ProfileName })
	if i < 0 {
		return []Result{failed("TenancyProfile", "there is none named "+v1alpha1.ProfileName+": the rules refuse tenants' Flux objects without it").advise(c.rulesAdvice("", ""))}, nil
	}
	deployments, err := c.list(ctx, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, client.InNamespace(c.Namespace))
	if err != nil {
		return nil, err
	}
	message := v1alpha1.ProfileName
	if wait := rolloutDelay(profiles[i], deployments); wait > 0 {
		message += fmt.Sprintf("; within the bounds, one namespace can delay the Kustomizations of others by %s", wait)
	}
	if reason := notInForce(profiles[i], time.Now()); reason != "" {
		return []Result{failed("TenancyProfile", "not in force: "+reason).about("TenancyProfile " + v1alpha1.ProfileName)}, nil
	}
	return []Result{good("TenancyProfile", message)}, nil
}

// settling is the maximum time that a profile needs to come into force in all namespaces.
const settling = time.Minute

// notInForce returns the manager's reason why a profile is not in force, or "". Another
// check reports whether the manager runs.
func notInForce(posture *unstructured.Unstructured, now time.Time) string {
	var p v1alpha1.TenancyProfile
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(posture.Object, &p); err != nil {
		return err.Error()
	}
	c := meta.FindStatusCondition(p.Status.Conditions, "Ready")
	if c == nil || c.Status == metav1.ConditionTrue || c.Status == metav1.ConditionUnknown && now.Sub(c.LastTransitionTime.Time) < settling {
		return ""
	}
	return c.Message
}

// rolloutDelay returns the maximum time that the namespaces of one tenant can delay others
// under the limits of a profile, given the workers of the cluster's kustomize-controller. It
// returns 0 if the delay is unknown.
func rolloutDelay(posture *unstructured.Unstructured, deployments []*unstructured.Unstructured) time.Duration {
	var p v1alpha1.TenancyProfile
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(posture.Object, &p); err != nil {
		return 0
	}
	workers := tenancy.Workers
	for _, d := range deployments {
		if d.GetName() != "kustomize-controller" {
			continue
		}
		if said := valuesOf(arguments(d), "--concurrent"); len(said) > 0 {
			n, err := strconv.Atoi(said[len(said)-1])
			if err != nil {
				return 0
			}
			workers = n
		}
	}
	return tenancy.MaxQueueDelay(p.Spec.Tenants.Bounds, workers)
}

// manager checks that the manager runs. Without it the rules are still in force, but new
// namespaces do not get their objects.
func (c Cluster) manager(ctx context.Context) ([]Result, error) {
	var d appsv1.Deployment
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: managerName}, &d)
	switch {
	case apierrors.IsNotFound(err):
		return []Result{failed("manager", "there is no Deployment "+managerName).advise(c.rulesAdvice("", ""))}, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read the Deployment %s: %w", managerName, err)
	}
	return []Result{result("manager", d.Status.AvailableReplicas > 0, "runs", "no Pod of it is available").advise("see why with `kubectl -n " + c.Namespace + " describe pods -l app=" + managerName + "`; if its image cannot be pulled, " + c.rulesAdvice("--manager-image", "another image")).about("Deployment " + c.Namespace + "/" + managerName)}, nil
}

// hosts reports the Tenants that may have the same hosts as others, as the manager found. It cannot
// compare all of them: such a Tenant is named, and not wrong.
func (c Cluster) hosts(ctx context.Context) ([]Result, error) {
	tenants, err := c.list(ctx, v1alpha1.GroupVersion.WithKind("Tenant"))
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var results []Result
	for _, u := range tenants {
		var t v1alpha1.Tenant
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &t); err != nil {
			return nil, fmt.Errorf("cannot read Tenant %s: %w", u.GetName(), err)
		}
		if separate := meta.FindStatusCondition(t.Status.Conditions, hostsSeparate); separate != nil && separate.Status != metav1.ConditionTrue {
			results = append(results, Result{Name: "hosts of tenant " + t.Name, OK: separate.Status == metav1.ConditionUnknown, Message: separate.Message}.about("Tenant "+t.Name))
		}
	}
	return results, nil
}

// hostsSeparate is the manager's condition that no other tenant may have the Tenant's hosts.
const hostsSeparate = "HostsSeparate"

// Warns reports whether the rules of a fleet should only warn. It returns an error if it cannot read
// the fleet.
func Warns(f *layout.Fleet) (bool, error) {
	t, err := open(f)
	if err != nil {
		return false, err
	}
	defer t.close()
	return t.rememberedWarn(), nil
}

// ParseMode returns the value of [Options.Warn] for a mode of the rules: enforce, warn, or the empty
// text for the mode of the fleet. It returns an error for any other text.
func ParseMode(mode string) (*bool, error) {
	switch mode {
	case "":
		return nil, nil //nolint:nilnil // nil is the mode of the fleet
	case "enforce", "warn":
		return new(mode == "warn"), nil
	}
	return nil, fmt.Errorf("--mode is enforce or warn, not %q", mode)
}

// warns reports whether the rules of an installation without a fleet warn.
func (o Options) warns() bool { return o.Warn != nil && *o.Warn }

// rememberedWarn reports whether the component has the rules in warn mode.
func (t *tree) rememberedWarn() bool {
	objects, err := flux.ReadObjects([]byte(t.before[t.component("sync.yaml")]))
	if err != nil {
		return false // The lockdown writes a file that does not parse again.
	}
	return slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
		components, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "components")
		return slices.Contains(components, path.Base(warnDir))
	})
}

// Compare returns the differences between the cluster and the fleet's folder, and between the
// folder and the files that the profile would write. An error of [Make] is one of the results.
// Compare returns an error if it cannot read or build the fleet, or cannot list the Deployments
// of the cluster.
func (c Cluster) Compare(ctx context.Context, f *layout.Fleet, o Options) ([]Result, error) {
	// The mode of the rules is no part of a FluxInstance.
	if f.Instance != nil {
		o.Warn = nil
	}
	plan, err := Make(f, o)
	if err != nil {
		return []Result{failed("fleet", err.Error())}, nil //nolint:nilerr // it is what was found
	}
	fine := "has the profile"
	if o.warns() {
		fine += ", whose rules only warn"
	}
	differ := fmt.Sprintf("%d files differ", len(plan.Changes))
	if len(plan.Changes) == 1 {
		differ = "1 file differs"
	}
	profile := result("fleet", len(plan.Changes) == 0, fine, differ+" from the profile").advise(runProfile)
	for _, change := range plan.Changes {
		profile.Files = append(profile.Files, change.Path)
	}
	results := []Result{profile}
	if f.Instance != nil {
		// flux-operator writes the Deployments from the FluxInstance: their flags are compared above.
		return results, nil
	}
	pinned, err := ImageStates(f)
	if err != nil {
		return results, err
	}
	for _, p := range pinned {
		results = append(results, result("fleet "+p.Image, p.Message == "", "pinned", p.Message))
	}
	t, err := open(f)
	if err != nil {
		return results, err
	}
	defer t.close()
	s, err := t.survey()
	if err != nil {
		return results, err
	}
	deployments, err := c.list(ctx, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, client.InNamespace(c.Namespace))
	if err != nil {
		return results, err
	}
	for _, want := range s.system() {
		if want.GetKind() != "Deployment" {
			continue
		}
		i := slices.IndexFunc(deployments, func(d *unstructured.Unstructured) bool { return d.GetName() == want.GetName() })
		same := i >= 0 && slices.Equal(arguments(deployments[i]), arguments(want)) &&
			slices.Equal(containers(deployments[i:i+1]), containers([]*unstructured.Unstructured{want}))
		results = append(results, result("fleet "+want.GetName(), same, "as in the fleet", "its arguments or images differ from the fleet's").advise("push the fleet, and see whether "+c.Namespace+"/"+f.Sync.Kustomization+" is ready").about("Deployment "+c.Namespace+"/"+want.GetName()))
	}
	return results, nil
}

func (c Cluster) list(ctx context.Context, kind schema.GroupVersionKind, opts ...client.ListOption) ([]*unstructured.Unstructured, error) {
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := c.Client.List(ctx, &list, opts...); err != nil {
		if apierrors.IsForbidden(err) {
			err = errors.Join(err, errors.New("check needs to read the whole cluster"))
		}
		return nil, fmt.Errorf("cannot list %ss: %w", kind.Kind, err)
	}
	var all []*unstructured.Unstructured
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all, nil
}

// result returns the result of a check: with one message if it passed, and with another if it failed.
func result(name string, ok bool, passes, fails string) Result {
	if ok {
		return good(name, passes)
	}
	return failed(name, fails)
}

// good returns the result of a check that passed.
func good(name, message string) Result { return Result{Name: name, OK: true, Message: message} }

// failed returns the result of a check that failed.
func failed(name, message string) Result { return Result{Name: name, Message: message} }

// advise returns the result with a fix, if the check failed.
func (r Result) advise(fix string) Result {
	if !r.OK {
		r.Fix = fix
	}
	return r
}

// about returns the result with the objects that failed the check. Each text begins with the name of an
// object, as [ObjectName] returns it.
func (r Result) about(texts ...string) Result {
	if r.OK {
		return r
	}
	for _, text := range texts {
		if words := strings.Fields(text); len(words) > 1 {
			r.Objects = append(r.Objects, words[0]+" "+strings.TrimSuffix(words[1], ":"))
		}
	}
	return r
}
