package artifacts

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reconciler reconciles ArtifactGenerators.
type reconciler struct {
	client.Client
	storage *storage
	// noCrossNamespaceRefs denies sources in other namespaces.
	noCrossNamespaceRefs bool
	// retryInterval is the interval at which a generator looks for its sources again.
	retryInterval time.Duration
	now           func() time.Time
}

// Reconcile creates the ExternalArtifacts of a generator and writes its status. It returns an
// error of the API server; the controller then retries.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	generator := &unstructured.Unstructured{}
	generator.SetGroupVersionKind(generatorKind)
	if err := r.Get(ctx, request.NamespacedName, generator); err != nil {
		if apierrors.IsNotFound(err) {
			// The garbage collector deletes the ExternalArtifacts.
			return ctrl.Result{}, r.storage.keep(request.Namespace, request.Name, nil)
		}
		return ctrl.Result{}, err
	}
	if generator.GetDeletionTimestamp() != nil || strings.EqualFold(generator.GetAnnotations()[disabledAnnotation], "disabled") {
		return ctrl.Result{}, nil
	}
	before := statusOf(generator)
	after, err := r.reconcile(ctx, generator, before)
	if statusErr := r.writeStatus(ctx, generator, after, err); statusErr != nil {
		return ctrl.Result{}, errors.Join(err, statusErr)
	}
	failed := (*failure)(nil)
	switch {
	case errors.As(err, &failed) && failed.stalled():
		return ctrl.Result{}, nil
	case errors.As(err, &failed) && failed.reason == reasonFetch:
		return ctrl.Result{RequeueAfter: r.retryInterval}, nil
	}
	return ctrl.Result{}, err
}

// status is the status of an ArtifactGenerator.
type status struct {
	Conditions             []metav1.Condition `json:"conditions,omitempty"`
	Inventory              []entry            `json:"inventory,omitempty"`
	ObservedSourcesDigest  string             `json:"observedSourcesDigest,omitempty"`
	LastHandledReconcileAt string             `json:"lastHandledReconcileAt,omitempty"`
}

// entry is an ExternalArtifact in the inventory of a generator.
type entry struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Digest    string `json:"digest"`
	Filename  string `json:"filename"`
}

func statusOf(generator *unstructured.Unstructured) status {
	var object struct {
		Status status `json:"status"`
	}
	// Only source-watcher and its stand-in write the status. A status that is malformed is
	// replaced.
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(generator.Object, &object)
	return object.Status
}

// reconcile returns the new status without its conditions.
func (r *reconciler) reconcile(ctx context.Context, generator *unstructured.Unstructured, before status) (status, error) {
	after := before
	spec, err := specOf(generator)
	if err != nil {
		return after, err
	}
	if err := spec.validate(generator.GetNamespace(), r.noCrossNamespaceRefs); err != nil {
		return after, err
	}
	observed, err := r.observe(ctx, generator.GetNamespace(), spec.Sources)
	if err != nil {
		return after, err
	}
	fetched, err := r.storage.fetchAll(ctx, observed)
	if err != nil {
		return after, failf(reasonFetch, "cannot fetch the sources: %w", err)
	}
	built, err := r.buildAll(ctx, generator, spec, observed, fetched)
	if err = errors.Join(err, fetched.close()); err != nil {
		return after, err
	}
	if err := r.deleteOrphans(ctx, generator, before.Inventory, built); err != nil {
		return after, err
	}
	after.Inventory = built
	after.ObservedSourcesDigest, err = digestOf(observed)
	if err != nil {
		return after, err
	}
	return after, r.removeOld(generator, before.Inventory, built)
}

// observe returns the artifacts of the sources by alias.
func (r *reconciler) observe(ctx context.Context, namespace string, references []reference) (map[string]artifact, error) {
	observed := map[string]artifact{}
	for _, reference := range references {
		source := &unstructured.Unstructured{}
		source.SetGroupVersionKind(sourceKind(reference.Kind))
		key := reference.key(namespace)
		if err := r.Get(ctx, key, source); err != nil {
			return nil, failf(reasonFetch, "cannot get source %s/%s: %w", reference.Kind, key, err)
		}
		found := artifactOf(source)
		if found == nil {
			return nil, failf(reasonFetch, "source %s/%s has no artifact yet", reference.Kind, key)
		}
		observed[reference.Alias] = *found
	}
	return observed, nil
}

// digestOf returns a digest of the state of the sources.
func digestOf(observed map[string]artifact) (string, error) {
	content, err := json.Marshal(observed)
	return fmt.Sprintf("sha256:%x", sha256.Sum256(content)), err
}

// buildAll builds the artifacts and writes the ExternalArtifacts.
func (r *reconciler) buildAll(ctx context.Context, generator *unstructured.Unstructured, s spec, observed map[string]artifact, fetched *sources) ([]entry, error) {
	var built []entry
	for _, output := range s.Artifacts {
		result, err := r.storage.build(fetched, generator.GetNamespace(), generator.GetName(), output)
		if err != nil {
			return nil, failf(reasonBuild, "%s build failed: %w", output.Name, err)
		}
		output.revisions(&result, observed)
		if err := r.publish(ctx, generator, s.CommonMetadata, output.Name, result); err != nil {
			return nil, failf(reasonReconciled, "%s reconcile failed: %w", output.Name, err)
		}
		built = append(built, entry{
			Name: output.Name, Namespace: generator.GetNamespace(), Digest: result.Digest,
			Filename: result.Path[strings.LastIndex(result.Path, "/")+1:],
		})
	}
	return built, nil
}

// fieldManager is the field manager of source-watcher.
const fieldManager = "source-watcher"

// publish writes an ExternalArtifact. It leaves the status alone if the artifact is the same.
func (r *reconciler) publish(ctx context.Context, generator *unstructured.Unstructured, common commonMetadata, name string, a artifact) error {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"sourceRef": map[string]any{
		"apiVersion": generatorKind.GroupVersion().String(), "kind": generatorKind.Kind,
		"namespace": generator.GetNamespace(), "name": generator.GetName(),
	}}}}
	object.SetGroupVersionKind(artifactKind)
	object.SetNamespace(generator.GetNamespace())
	object.SetName(name)
	labels := map[string]string{}
	for key, value := range common.Labels {
		labels[key] = value
	}
	labels["app.kubernetes.io/managed-by"] = fieldManager
	labels["source.extensions.fluxcd.io/generator"] = string(generator.GetUID())
	object.SetLabels(labels)
	object.SetAnnotations(common.Annotations)
	object.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(generator, generatorKind)})
	if err := r.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(fieldManager), client.ForceOwnership); err != nil {
		return err
	}
	if known := artifactOf(object); known != nil {
		a.LastUpdateTime = known.LastUpdateTime
		if sameArtifact(*known, a) {
			return nil
		}
	}
	now := metav1.NewTime(r.now())
	a.LastUpdateTime = now.UTC().Format(time.RFC3339)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&a)
	if err != nil {
		return err
	}
	ready := metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: reasonSucceeded, Message: "Artifact is ready",
		ObservedGeneration: object.GetGeneration(), LastTransitionTime: now,
	}
	condition, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&ready)
	if err != nil {
		return err
	}
	object.Object["status"] = map[string]any{"artifact": content, "conditions": []any{condition}}
	return r.Status().Update(ctx, object)
}

func sameArtifact(a, b artifact) bool {
	return a.URL == b.URL && a.Digest == b.Digest && a.Revision == b.Revision && a.origin() == b.origin()
}

// deleteOrphans deletes the ExternalArtifacts of the old inventory that are not in the new one.
func (r *reconciler) deleteOrphans(ctx context.Context, generator *unstructured.Unstructured, before, after []entry) error {
	wanted := map[string]bool{}
	for _, e := range after {
		wanted[e.Name] = true
	}
	for _, e := range before {
		if wanted[e.Name] {
			continue
		}
		orphan := &unstructured.Unstructured{}
		orphan.SetGroupVersionKind(artifactKind)
		err := r.Get(ctx, client.ObjectKey{Namespace: generator.GetNamespace(), Name: e.Name}, orphan)
		if err == nil && metav1.IsControlledBy(orphan, generator) {
			err = r.Delete(ctx, orphan)
		}
		if client.IgnoreNotFound(err) != nil {
			return failf(reasonReconciled, "cannot delete ExternalArtifact %s: %w", e.Name, err)
		}
	}
	return nil
}

// removeOld removes archives. It keeps the current one of each artifact, and the previous one for
// consumers that have just read its address.
func (r *reconciler) removeOld(generator *unstructured.Unstructured, before, after []entry) error {
	files := map[string]bool{}
	for _, entries := range [][]entry{before, after} {
		for _, e := range entries {
			files[folder(generator.GetNamespace(), e.Name, e.Filename)] = true
		}
	}
	return r.storage.keep(generator.GetNamespace(), generator.GetName(), files)
}

// writeStatus writes a generator's status with conditions for the result.
func (r *reconciler) writeStatus(ctx context.Context, generator *unstructured.Unstructured, s status, result error) error {
	ready := metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: reasonSucceeded,
		Message: fmt.Sprintf("reconciliation succeeded, generated %d artifact(s)", len(s.Inventory)),
	}
	failed := (*failure)(nil)
	isFailure := errors.As(result, &failed)
	if result != nil {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, reasonReconciled, result.Error()
		if isFailure {
			ready.Reason = failed.reason
		}
	}
	ready.ObservedGeneration = generator.GetGeneration()
	meta.SetStatusCondition(&s.Conditions, ready)
	meta.RemoveStatusCondition(&s.Conditions, "Stalled")
	if isFailure && failed.stalled() {
		stalled := ready
		stalled.Type, stalled.Status = "Stalled", metav1.ConditionTrue
		meta.SetStatusCondition(&s.Conditions, stalled)
	}
	s.LastHandledReconcileAt = cmp.Or(generator.GetAnnotations()[requestAnnotation], s.LastHandledReconcileAt)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&s)
	if err != nil {
		return err
	}
	base := generator.DeepCopy()
	generator.Object["status"] = content
	return client.IgnoreNotFound(r.Status().Patch(ctx, generator, client.MergeFrom(base)))
}
