package capsule

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestVolumes checks that a volume has the label of the tenant that claims it, and keeps it
// without a claim.
func TestVolumes(t *testing.T) {
	t.Parallel()
	c, config := cluster(t)
	const volume = `---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: NAME, labels: {LABELS}}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: Retain, hostPath: {path: /tmp/NAME}CLAIM}}
`
	named := func(name, labels, claimed string) string {
		if claimed != "" {
			claimed = ", claimRef: {namespace: " + claimed + ", name: data}"
		}
		return strings.NewReplacer("NAME", name, "LABELS", labels, "CLAIM", claimed).Replace(volume)
	}
	apply(t, config, `{apiVersion: v1, kind: Namespace, metadata: {name: volumes-a, labels: {capsule.clastix.io/tenant: volumes}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: volumes-late}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: volumes-platform}}
`+named("volumes-plain", "", "volumes-a")+named("volumes-stale", "capsule.clastix.io/tenant: other", "volumes-a")+
		named("volumes-late", "", "volumes-late")+named("volumes-platform", "", "volumes-platform")+named("volumes-kept", "capsule.clastix.io/tenant: other", ""))
	has := func(name, tenant string) {
		t.Helper()
		v := &corev1.PersistentVolume{}
		testwait.For(t, "the label of "+name, patience, func() (bool, string) {
			err := c.Get(t.Context(), client.ObjectKey{Name: name}, v)
			return err == nil && v.Labels[v1alpha1.LabelCapsuleTenant] == tenant, fmt.Sprint(err, v.Labels)
		})
	}
	has("volumes-plain", "volumes")
	has("volumes-stale", "volumes")
	apply(t, config, "{apiVersion: v1, kind: Namespace, metadata: {name: volumes-late, labels: {capsule.clastix.io/tenant: volumes}}}")
	has("volumes-late", "volumes")
	has("volumes-platform", "")
	has("volumes-kept", "other")
}
