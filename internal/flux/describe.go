package flux

import (
	"cmp"
	"slices"
	"strings"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	automationv1 "github.com/fluxcd/image-automation-controller/api/v1"
	reflectorv1 "github.com/fluxcd/image-reflector-controller/api/v1"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	notificationv1 "github.com/fluxcd/notification-controller/api/v1"
	notificationv1b3 "github.com/fluxcd/notification-controller/api/v1beta3"
	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// blockedReasons are the reasons of a condition Ready that is False because of
// another object. Some are constants of no API package: they are copied from
// helm-controller v1.6 (reconcileRelease) and source-controller v1.9
// (reconcileSource of HelmChart).
var blockedReasons = map[string]bool{
	meta.DependencyNotReadyReason: true,
	meta.ArtifactFailedReason:     true,
	"SourceNotReady":              true,
	"NoSourceArtifact":            true,
	"SourceUnavailable":           true,
}

// pathMissing is the prefix of the message of a Kustomization whose path is not in its source
// (kustomize-controller v1.9, reconcile). The condition has the same reason as for a source that is
// not ready, but waiting does not help.
const pathMissing = "kustomization path not found"

func isPathMissing(ready *metav1.Condition) bool {
	return ready.Reason == meta.ArtifactFailedReason && strings.HasPrefix(ready.Message, pathMissing)
}

// statusless are the messages that `flux get` invents for kinds without a
// status.
var statusless = map[Kind]string{
	Alert:    "Alert is Ready",
	Provider: "Provider is Ready",
	// Of HelmRepository only those of type oci.
	HelmRepository: "Helm repository is Ready",
}

// describe reads an object of one of Flux's kinds into a row. The second result
// is false for objects of other kinds.
func describe(obj client.Object) (Row, bool) {
	row := Row{Namespace: obj.GetNamespace(), Name: obj.GetName(), generation: obj.GetGeneration(), owner: ownerOf(obj.GetLabels())}
	var conditions []metav1.Condition
	var observed int64
	static := false
	switch o := obj.(type) {
	case *sourcev1.GitRepository:
		row.Kind, row.Suspended, row.Revision = GitRepository, o.Spec.Suspend, revision(o.Status.Artifact)
		conditions, observed = o.Status.Conditions, o.Status.ObservedGeneration
	case *sourcev1.OCIRepository:
		row.Kind, row.Suspended, row.Revision = OCIRepository, o.Spec.Suspend, revision(o.Status.Artifact)
		conditions, observed = o.Status.Conditions, o.Status.ObservedGeneration
	case *sourcev1.Bucket:
		row.Kind, row.Suspended, row.Revision = Bucket, o.Spec.Suspend, revision(o.Status.Artifact)
		conditions, observed = o.Status.Conditions, o.Status.ObservedGeneration
	case *sourcev1.HelmRepository:
		row.Kind, row.Suspended, row.Revision = HelmRepository, o.Spec.Suspend, revision(o.Status.Artifact)
		conditions, observed = o.Status.Conditions, o.Status.ObservedGeneration
		static = o.Spec.Type == sourcev1.HelmRepositoryTypeOCI
	case *sourcev1.HelmChart:
		row.Kind, row.Suspended, row.Revision = HelmChart, o.Spec.Suspend, revision(o.Status.Artifact)
		conditions, observed = o.Status.Conditions, o.Status.ObservedGeneration
		row.setSource(o.Spec.SourceRef.Kind, "", o.Spec.SourceRef.Name)
	case *sourcev1.ExternalArtifact:
		row.Kind, row.Revision, conditions = ExternalArtifact, revision(o.Status.Artifact), o.Status.Conditions
		if ref := o.Spec.SourceRef; ref != nil {
			row.Source = Ref{Kind(ref.Kind), ref.Namespace, ref.Name}.String()
		}
	case *kustomizev1.Kustomization:
		describeKustomization(&row, o)
		conditions, observed = o.Status.Conditions, o.Status.ObservedGeneration
	case *helmv2.HelmRelease:
		describeHelmRelease(&row, o)
		conditions, observed = o.Status.Conditions, o.Status.ObservedGeneration
	case *reflectorv1.ImageRepository:
		row.Kind, row.Suspended = ImageRepository, o.Spec.Suspend
		conditions, observed = o.Status.Conditions, o.Status.ObservedGeneration
		if scan := o.Status.LastScanResult; scan != nil {
			row.Revision = timestamp(&scan.ScanTime)
		}
	case *reflectorv1.ImagePolicy:
		row.Kind, row.Suspended = ImagePolicy, o.Spec.Suspend
		row.Needs = []Ref{{ImageRepository, cmp.Or(o.Spec.ImageRepositoryRef.Namespace, o.Namespace), o.Spec.ImageRepositoryRef.Name}}
		conditions, observed = o.Status.Conditions, o.Status.ObservedGeneration
		if latest := o.Status.LatestRef; latest != nil {
			row.Source, row.Revision = latest.Name, latest.Tag
		}
	case *automationv1.ImageUpdateAutomation:
		row.Kind, row.Suspended, row.Revision = ImageUpdateAutomation, o.Spec.Suspend, timestamp(o.Status.LastAutomationRunTime)
		conditions, observed = o.Status.Conditions, o.Status.ObservedGeneration
	case *notificationv1.Receiver:
		row.Kind, row.Suspended = Receiver, o.Spec.Suspend
		conditions, observed = o.Status.Conditions, o.Status.ObservedGeneration
	case *notificationv1b3.Provider:
		row.Kind, row.Suspended, static = Provider, o.Spec.Suspend, true
	case *notificationv1b3.Alert:
		row.Kind, row.Suspended, static = Alert, o.Spec.Suspend, true
	case *unstructured.Unstructured:
		if !describeOperatorObject(&row, o, &conditions, &observed) {
			return Row{}, false
		}
	default:
		return Row{}, false
	}
	row.observed = observed
	row.setStatus(conditions, static)
	switch o := obj.(type) {
	case *kustomizev1.Kustomization:
		row.awaitHealth(o)
	case *helmv2.HelmRelease:
		row.waits = waitsForObjects(o, row.Message)
	}
	return row, true
}

// An object of flux-operator with this annotation is suspended. It has no spec.suspend.
const reconcileAnnotation, disabled = "fluxcd.controlplane.io/reconcile", "disabled"

// instanceLabels begins the labels that flux-operator writes on the objects of a FluxInstance
// (flux-operator v0.58, SetOwnerLabels).
const instanceLabels = "fluxcd.controlplane.io/"

// releaseLabels begins the labels that helm-controller writes on the objects of a HelmRelease.
const releaseLabels = "helm.toolkit.fluxcd.io/"

// ownerOf returns the object of flux-operator or the HelmRelease that applied an object, if one did.
func ownerOf(labels map[string]string) Ref {
	if set := AppliedBy(labels); set.Kind == ResourceSet {
		return set
	}
	if name := labels[instanceLabels+"name"]; name != "" {
		return Ref{FluxInstance, labels[instanceLabels+"namespace"], name}
	}
	if name := labels[releaseLabels+"name"]; name != "" {
		return Ref{HelmRelease, labels[releaseLabels+"namespace"], name}
	}
	return Ref{}
}

// describeOperatorObject reads an object of flux-operator. It returns false for objects of
// other kinds.
func describeOperatorObject(row *Row, o *unstructured.Unstructured, conditions *[]metav1.Condition, observed *int64) bool {
	row.Kind = Kind(o.GetKind())
	if o.GroupVersionKind().Group != operatorVersion.Group || !slices.Contains(OperatorKinds(), row.Kind) {
		return false
	}
	row.Suspended = o.GetAnnotations()[reconcileAnnotation] == disabled
	var typed struct {
		Spec struct {
			Wait      *bool `json:"wait"`
			DependsOn []struct {
				Kind      string `json:"kind"`
				Name      string `json:"name"`
				Namespace string `json:"namespace"`
			} `json:"dependsOn"`
		} `json:"spec"`
		Status struct {
			Conditions           []metav1.Condition `json:"conditions"`
			ObservedGeneration   int64              `json:"observedGeneration"`
			LastAppliedRevision  string             `json:"lastAppliedRevision"`
			LastExportedRevision string             `json:"lastExportedRevision"`
		} `json:"status"`
	}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &typed) != nil {
		return true // without conditions: it has not been reconciled
	}
	row.Revision = cmp.Or(typed.Status.LastAppliedRevision, typed.Status.LastExportedRevision)
	*conditions, *observed = typed.Status.Conditions, typed.Status.ObservedGeneration
	row.waits = row.Kind == FluxInstance
	if typed.Spec.Wait != nil {
		row.waits = *typed.Spec.Wait
	}
	for _, dep := range typed.Spec.DependsOn {
		ref := Ref{Kind(dep.Kind), dep.Namespace, dep.Name}
		// It may be any object; those of other kinds are not among the rows.
		if _, known := infoOf(ref.Kind); known {
			row.Needs = append(row.Needs, ref)
		}
	}
	return true
}

func describeKustomization(row *Row, o *kustomizev1.Kustomization) {
	row.Kind, row.Suspended, row.Revision = Kustomization, o.Spec.Suspend, o.Status.LastAppliedRevision
	row.attempted = o.Status.LastAttemptedRevision
	row.setSource(o.Spec.SourceRef.Kind, o.Spec.SourceRef.Namespace, o.Spec.SourceRef.Name)
	for _, dep := range o.Spec.DependsOn {
		row.Needs = append(row.Needs, Ref{Kustomization, cmp.Or(dep.Namespace, o.Namespace), dep.Name})
	}
}

// healthChecks is the prefix of the condition's message while a Kustomization waits for the objects
// that it has applied (kustomize-controller v1.9, checkHealth). It waits until its timeout, also
// for an object that has failed.
const healthChecks = "Running health checks"

// awaitHealth makes a Kustomization that runs health checks wait for the objects of Flux among
// the checked ones, and names the others that spec.healthChecks has.
func (r *Row) awaitHealth(o *kustomizev1.Kustomization) {
	reconciling := apimeta.FindStatusCondition(o.Status.Conditions, meta.ReconcilingCondition)
	if r.State != Working || reconciling == nil || reconciling.Status != metav1.ConditionTrue || !strings.HasPrefix(reconciling.Message, healthChecks) {
		return
	}
	r.waits, r.checked = true, otherChecks(o)
	checked := checkedObjects(o)
	if len(checked) == 0 {
		r.Message = reconciling.Message + namedChecks(o)
		return
	}
	r.State, r.Message, r.checks = Blocked, reconciling.Message, true
	r.Needs = append(r.Needs, checked...)
}

// namedChecks names the objects in spec.healthChecks.
func namedChecks(o *kustomizev1.Kustomization) string {
	if o.Spec.Wait || len(o.Spec.HealthChecks) == 0 {
		return ""
	}
	var refs []Ref
	for _, check := range o.Spec.HealthChecks {
		refs = append(refs, Ref{Kind(check.Kind), check.Namespace, check.Name})
	}
	return " of " + nameRefs(refs)
}

// checkedObjects returns the objects of Flux whose health a Kustomization checks, without itself.
func checkedObjects(o *kustomizev1.Kustomization) []Ref {
	var refs []Ref
	for _, check := range checks(o) {
		ref := Ref{Kind(check.GVK.Kind), check.Namespace, check.Name}
		if check.ofFlux() && ref != (Ref{Kustomization, o.Namespace, o.Name}) {
			refs = append(refs, ref)
		}
	}
	return refs
}

// waitsForObjects reports whether a HelmRelease, whose condition has the message, waits for the health of
// the objects in its chart (helm-controller v1.6). It waits until its timeout, also for an object of
// Flux that has failed.
func waitsForObjects(o *helmv2.HelmRelease, message string) bool {
	return strings.HasPrefix(message, "Running 'install' action") && !o.GetInstall().DisableWait ||
		strings.HasPrefix(message, "Running 'upgrade' action") && !o.GetUpgrade().DisableWait
}

func describeHelmRelease(row *Row, o *helmv2.HelmRelease) {
	row.Kind, row.Suspended, row.Revision = HelmRelease, o.Spec.Suspend, o.Status.LastAttemptedRevision
	if len(o.Status.History) > 0 {
		row.Revision = o.Status.History[0].ChartVersion
	}
	switch {
	case o.Spec.ChartRef != nil:
		row.setSource(o.Spec.ChartRef.Kind, o.Spec.ChartRef.Namespace, o.Spec.ChartRef.Name)
	case o.Spec.Chart != nil:
		ref := o.Spec.Chart.Spec.SourceRef
		row.setSource(ref.Kind, ref.Namespace, ref.Name)
		// helm-controller makes a HelmChart of the template, beside the source,
		// and waits for that: the source is the chart's concern.
		row.Needs = []Ref{{HelmChart, cmp.Or(ref.Namespace, o.Namespace), o.GetHelmChartName()}}
	}
	for _, dep := range o.Spec.DependsOn {
		row.Needs = append(row.Needs, Ref{HelmRelease, cmp.Or(dep.Namespace, o.Namespace), dep.Name})
	}
}

func (r *Row) setSource(kind, namespace, name string) {
	ref := Ref{Kind(kind), cmp.Or(namespace, r.Namespace), name}
	r.Source, r.Needs = ref.String(), append(r.Needs, ref)
}

// setStatus fills in Ready, Message and State.
func (r *Row) setStatus(conditions []metav1.Condition, static bool) {
	observed := r.observed
	r.Ready, r.Message = string(metav1.ConditionFalse), "waiting to be reconciled"
	ready := apimeta.FindStatusCondition(conditions, meta.ReadyCondition)
	switch {
	case static:
		r.Ready, r.Message = string(metav1.ConditionTrue), statusless[r.Kind]
	case ready != nil:
		r.Ready, r.Message = string(ready.Status), ready.Message
		if isPathMissing(ready) {
			// Flux leaves the revision that was tried before in the status.
			r.attempted = ""
		}
		r.dependent = ready.Status == metav1.ConditionFalse && ready.Reason == meta.DependencyNotReadyReason
		// A controller that fails sets no status.observedGeneration; the
		// condition says which generation it is about.
		observed = cmp.Or(ready.ObservedGeneration, observed)
	case r.Kind == ExternalArtifact && r.Revision != "":
		// Controllers may omit conditions on these, and consumers do not read them.
		r.Ready, r.Message = string(metav1.ConditionTrue), ""
	}
	r.State = stateOf(*r, conditions, ready, static || r.Kind == ExternalArtifact || observed >= r.generation)
}

func stateOf(r Row, conditions []metav1.Condition, ready *metav1.Condition, current bool) State {
	switch {
	case r.Suspended:
		return Suspended
	case !current:
		return Working
	case apimeta.IsStatusConditionTrue(conditions, meta.StalledCondition):
		return Failed
	case r.Ready == string(metav1.ConditionTrue):
		if apimeta.IsStatusConditionTrue(conditions, meta.ReconcilingCondition) {
			return Working
		}
		return Ready
	case ready == nil || ready.Status != metav1.ConditionFalse:
		return Working
	case blockedReasons[ready.Reason] && !isPathMissing(ready):
		return Blocked
	case ready.Reason == meta.ProgressingReason || ready.Reason == meta.HealthCheckCanceledReason:
		return Working
	}
	return Failed
}

func revision(artifact *meta.Artifact) string {
	if artifact == nil {
		return ""
	}
	return artifact.Revision
}

func timestamp(t *metav1.Time) string {
	if t == nil {
		return ""
	}
	return t.Format(time.RFC3339)
}
