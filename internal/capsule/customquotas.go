package capsule

import (
	"strconv"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// quotaAnnotation is the domain of annotations of a Tenant that bound the number of custom
	// resources of a kind, such as quota.resources.capsule.clastix.io/mysqls.example.com_v1: "3".
	quotaAnnotation = "quota.resources.capsule.clastix.io"
	// usedAnnotation is the domain of annotations in which the manager writes the number of existing
	// objects.
	usedAnnotation = "used.resources.capsule.clastix.io"
	// CustomQuota is the name of the quota with these bounds.
	CustomQuota = "capsule-custom"
)

// CustomResource is a kind of custom resource. An annotation bounds the number of its objects in the
// tenant.
type CustomResource struct {
	// Counted is the name of the kind in a ResourceQuota, such as count/mysqls.example.com.
	Counted corev1.ResourceName
	// Used is the key of the annotation with the number of objects.
	Used string
}

// CustomResourceOf returns the kind that the annotation with this key bounds. It returns false if the key
// belongs to another annotation.
func CustomResourceOf(key string) (CustomResource, bool) {
	name, ok := strings.CutPrefix(key, quotaAnnotation+"/")
	kind, version, versioned := strings.Cut(name, "_")
	plural, group, grouped := strings.Cut(kind, ".")
	if !ok || !versioned || !grouped || len(validation.IsDNS1123Label(plural)) > 0 || len(validation.IsDNS1123Subdomain(group)) > 0 || len(validation.IsDNS1035Label(version)) > 0 {
		return CustomResource{}, false
	}
	return CustomResource{Counted: corev1.ResourceName("count/" + kind), Used: usedAnnotation + "/" + name}, true
}

// customQuota translates an annotation that bounds the number of custom resources. A quota counts the
// objects of all versions of a kind, so the lowest bound of a kind applies.
func (t *translation) customQuota(field, key string) {
	kind, ok := CustomResourceOf(key)
	count, err := strconv.ParseUint(t.tenant.Annotations[key], 10, 31)
	if !ok || err != nil {
		t.note(Refused, field, "it has the form %s/PLURAL.GROUP_VERSION with a number of objects", quotaAnnotation)
		return
	}
	bound := *resource.NewQuantity(int64(count), resource.DecimalSI)
	last := len(t.spec.Quotas) - 1
	if last < 0 || t.spec.Quotas[last].Name != CustomQuota {
		if len(t.spec.Quotas) >= maxQuotas {
			t.note(Refused, field, "it needs a quota, and the %d that can be kept are taken", maxQuotas)
			return
		}
		t.spec.Quotas = append(t.spec.Quotas, v1alpha1.TenantQuota{Name: CustomQuota, Scope: "Tenant", Hard: v1alpha1.Quantities{}})
		last++
	}
	if other, twice := t.spec.Quotas[last].Hard[kind.Counted]; twice && other.Cmp(bound) < 0 {
		return
	}
	t.spec.Quotas[last].Hard[kind.Counted] = bound
}
