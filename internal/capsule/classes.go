package capsule

import (
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// systemPrefix is the prefix of the names of the PriorityClasses of Kubernetes.
const systemPrefix = "system-"

// AllowedClasses returns the sorted names of the classes that a list of a Tenant allows. A nil list and a
// list without entries allow all classes. An invalid selector or expression allows no class: [Translate]
// refuses the Tenant.
func AllowedClasses(list *v1beta2.SelectorAllowedList, classes []metav1.PartialObjectMetadata) []string {
	allowed := allows(list)
	var names []string
	for i := range classes {
		if c := &classes[i]; allowed(c) {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return names
}

// AllowedPriorityClasses is [AllowedClasses] for PriorityClasses. It allows Kubernetes' own PriorityClasses
// only by name, like the default of the TenancyProfile.
func AllowedPriorityClasses(list *v1beta2.SelectorAllowedList, classes []metav1.PartialObjectMetadata) []string {
	return slices.DeleteFunc(AllowedClasses(list, classes), func(name string) bool {
		return strings.HasPrefix(name, systemPrefix) && (list == nil || !slices.Contains(list.Allowed, name))
	})
}

func allows(list *v1beta2.SelectorAllowedList) func(*metav1.PartialObjectMetadata) bool {
	if list == nil {
		return func(*metav1.PartialObjectMetadata) bool { return true }
	}
	selects := len(list.MatchLabels) > 0 || len(list.MatchExpressions) > 0
	if !selects && len(list.Allowed) == 0 && list.AllowedRegex == "" {
		return func(*metav1.PartialObjectMetadata) bool { return true }
	}
	selector := labels.Nothing()
	if selects {
		if s, err := metav1.LabelSelectorAsSelector(&list.LabelSelector); err == nil {
			selector = s
		}
	}
	var expression *regexp.Regexp
	if list.AllowedRegex != "" {
		expression, _ = regexp.Compile(list.AllowedRegex) // Translate reports the error
	}
	return func(class *metav1.PartialObjectMetadata) bool {
		return slices.Contains(list.Allowed, class.Name) || expression != nil && expression.MatchString(class.Name) || selector.Matches(labels.Set(class.Labels))
	}
}
