package capsule

import (
	"context"
	"fmt"

	"github.com/tenure-dev/tenure/api/capsule/v1beta1"
	"github.com/tenure-dev/tenure/internal/capsule"
	"github.com/tenure-dev/tenure/internal/manager/backoff"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// proxySettings writes the status of a ProxySetting or GlobalProxySettings, which names the
// fields without effect. The proxy reads the objects itself.
type proxySettings struct {
	client client.Client
	// parts returns a new object, a pointer to its status and a function that returns its notes.
	parts func() (object client.Object, status *v1beta1.ProxySettingStatus, notes func() []capsule.Note)
}

func setupProxySettings(mgr manager.Manager) error {
	for name, parts := range map[string]func() (client.Object, *v1beta1.ProxySettingStatus, func() []capsule.Note){
		"capsule-proxy-setting": func() (client.Object, *v1beta1.ProxySettingStatus, func() []capsule.Note) {
			o := &v1beta1.ProxySetting{}
			return o, &o.Status, func() []capsule.Note { return capsule.ProxySetting(o.Spec).Notes }
		},
		"capsule-global-proxy-settings": func() (client.Object, *v1beta1.ProxySettingStatus, func() []capsule.Note) {
			o := &v1beta1.GlobalProxySettings{}
			return o, &o.Status, func() []capsule.Note { return capsule.GlobalProxySettings(o.Spec).Notes }
		},
	} {
		r := &proxySettings{client: mgr.GetClient(), parts: parts}
		object, _, _ := parts()
		if err := ctrl.NewControllerManagedBy(mgr).Named(name).For(object).WithOptions(controller.Options{RateLimiter: backoff.RateLimiter()}).Complete(r); err != nil {
			return err
		}
	}
	return nil
}

// Reconcile writes the status of one object if it differs. It returns an error if the object
// cannot be read or the status cannot be written.
func (r *proxySettings) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object, status, notes := r.parts()
	if err := r.client.Get(ctx, request.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before, was := object.DeepCopyObject().(client.Object), status.DeepCopy()
	condition := honoured(notes())
	condition.ObservedGeneration, condition.Message = object.GetGeneration(), shorten(condition.Message)
	apimeta.SetStatusCondition(&status.Conditions, condition)
	status.ObservedGeneration = object.GetGeneration()
	if equality.Semantic.DeepEqual(was, status) {
		return ctrl.Result{}, nil
	}
	if err := r.client.Status().Patch(ctx, object, client.MergeFrom(before), client.FieldOwner(FieldManager)); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("cannot write the status of %s: %w", request, err)
	}
	return ctrl.Result{}, nil
}
