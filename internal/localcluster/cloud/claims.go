package cloud

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// DefaultClass is the name of the storage class that a cluster without any class
	// gets.
	DefaultClass = "standard"
	// Provisioner is the provisioner of the default class. Simulated volumes carry
	// its name in an annotation.
	Provisioner = "local.tenure.dev/simulated"

	// The volume controller and provisioners communicate with these annotations.
	annDefaultClass   = "storageclass.kubernetes.io/is-default-class"
	annProvisionedBy  = "pv.kubernetes.io/provisioned-by"
	annProvisioner    = "volume.kubernetes.io/storage-provisioner"
	annSelectedNode   = "volume.kubernetes.io/selected-node"
	noProvisioner     = "kubernetes.io/no-provisioner"
	inTreePrefix      = "kubernetes.io/"
	simulatedHostPath = "/var/empty/tenure-simulated-volume"
)

// ensureClass creates the default class when the cluster has no class. Binding need
// not wait for a consumer, because a simulated volume is available on every node.
func (c *cloud) ensureClass(ctx context.Context) error {
	classes, err := c.client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("cannot list storage classes: %w", err)
	}
	if len(classes.Items) > 0 {
		return nil
	}
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: DefaultClass, Annotations: map[string]string{annDefaultClass: "true"}},
		Provisioner: Provisioner,
	}
	_, err = c.client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("cannot make the default storage class: %w", err)
	}
	return nil
}

// serveClaim creates the volume that a claim waits for.
func (c *cloud) serveClaim(ctx context.Context, namespace, name string) error {
	claim, err := c.claims.PersistentVolumeClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the claim: %w", err)
	}
	if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName == "" {
		return nil
	}
	class, err := c.classes.Get(*claim.Spec.StorageClassName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the claim's class: %w", err)
	}
	if !wantsVolume(claim, class) {
		return nil
	}
	_, err = c.client.CoreV1().PersistentVolumes().Create(ctx, volumeFor(claim, class), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("cannot make a volume: %w", err)
	}
	return nil
}

// wantsVolume reports whether a provisioner would act now. The volume controller
// requests a volume with an annotation, after it has looked for an existing volume.
// For provisioners that were once part of Kubernetes it sets no annotation.
func wantsVolume(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) bool {
	if claim.DeletionTimestamp != nil || claim.Spec.VolumeName != "" || claim.Status.Phase == corev1.ClaimBound {
		return false
	}
	if class.Provisioner == noProvisioner {
		return false
	}
	if mode := class.VolumeBindingMode; mode != nil && *mode == storagev1.VolumeBindingWaitForFirstConsumer &&
		claim.Annotations[annSelectedNode] == "" {
		return false
	}
	return claim.Annotations[annProvisioner] != "" || strings.HasPrefix(class.Provisioner, inTreePrefix)
}

// volumeFor returns the volume for a claim. Nothing uses its path: simulated Pods
// mount nothing.
func volumeFor(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) *corev1.PersistentVolume {
	policy := corev1.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		policy = *class.ReclaimPolicy
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "pvc-" + string(claim.UID),
			Annotations: map[string]string{annProvisionedBy: Provisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    claim.Spec.VolumeMode,
			StorageClassName:              class.Name,
			VolumeAttributesClassName:     claim.Spec.VolumeAttributesClassName,
			MountOptions:                  class.MountOptions,
			PersistentVolumeReclaimPolicy: policy,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: simulatedHostPath},
			},
		},
	}
}

// reclaim deletes a released volume if its reclaim policy is Delete.
func (c *cloud) reclaim(ctx context.Context, name string) error {
	volume, err := c.volumes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the volume: %w", err)
	}
	if volume.Status.Phase != corev1.VolumeReleased || volume.DeletionTimestamp != nil ||
		volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return nil
	}
	err = c.client.CoreV1().PersistentVolumes().Delete(ctx, name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(volume.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("cannot delete the volume: %w", err)
	}
	return nil
}
