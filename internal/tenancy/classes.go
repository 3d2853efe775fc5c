package tenancy

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// systemClasses is the prefix of the priority classes of Kubernetes, which no selector selects.
const systemClasses = "system-"

// classLimit is a limit that may select classes by their labels.
type classLimit struct {
	// field is the path of the limit below spec of a Tenant, and below spec.tenants of the
	// TenancyProfile.
	field string
	// kind is the kind of the classes.
	kind schema.GroupVersionKind
	// of returns the limit, or nil; names returns the list for the names of its classes.
	of    func(*v1alpha1.Posture) *v1alpha1.AllowedClasses
	names func(*v1alpha1.SelectedClasses) *[]string
}

var classLimits = []classLimit{
	{
		"workloads.priorityClasses", schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"},
		func(p *v1alpha1.Posture) *v1alpha1.AllowedClasses { return p.Workloads.PriorityClasses },
		func(s *v1alpha1.SelectedClasses) *[]string { return &s.PriorityClasses },
	},
	{
		"workloads.runtimeClasses", schema.GroupVersionKind{Group: "node.k8s.io", Version: "v1", Kind: "RuntimeClass"},
		func(p *v1alpha1.Posture) *v1alpha1.AllowedClasses { return p.Workloads.RuntimeClasses },
		func(s *v1alpha1.SelectedClasses) *[]string { return &s.RuntimeClasses },
	},
	{
		"workloads.deviceClasses", schema.GroupVersionKind{Group: "resource.k8s.io", Version: "v1", Kind: "DeviceClass"},
		func(p *v1alpha1.Posture) *v1alpha1.AllowedClasses { return p.Workloads.DeviceClasses },
		func(s *v1alpha1.SelectedClasses) *[]string { return &s.DeviceClasses },
	},
	{
		"network.ingressClasses", schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "IngressClass"},
		func(p *v1alpha1.Posture) *v1alpha1.AllowedClasses { return p.Network.IngressClasses },
		func(s *v1alpha1.SelectedClasses) *[]string { return &s.IngressClasses },
	},
	{
		"network.gatewayClasses", schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "GatewayClass"},
		func(p *v1alpha1.Posture) *v1alpha1.AllowedClasses { return p.Network.GatewayClasses },
		func(s *v1alpha1.SelectedClasses) *[]string { return &s.GatewayClasses },
	},
	{
		"storage.classes", schema.GroupVersionKind{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass"},
		func(p *v1alpha1.Posture) *v1alpha1.AllowedClasses { return p.Storage.Classes },
		func(s *v1alpha1.SelectedClasses) *[]string { return &s.StorageClasses },
	},
}

// ClassKinds returns the kinds of classes that limits may select by their labels. Not every
// cluster serves all of them.
func ClassKinds() []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, l := range classLimits {
		kinds = append(kinds, l.kind)
	}
	return kinds
}

// SelectsClasses reports whether the limits select any class by its labels.
func SelectsClasses(w v1alpha1.Workloads, n v1alpha1.Network, s v1alpha1.Storage) bool {
	limits := v1alpha1.Posture{Workloads: w, Network: n, Storage: s}
	return slices.ContainsFunc(classLimits, func(l classLimit) bool {
		limit := l.of(&limits)
		return limit != nil && limit.Selector != nil
	})
}

// SelectClasses returns the names of the classes that the selectors of the limits select, or nil
// if there is no selector. list returns the classes of a kind, and none of a kind that the
// cluster does not serve.
//
// The problem names an invalid selector, which selects nothing, or a selector that selects more
// than [v1alpha1.MaxSelectedClasses] classes, of which only the first by name are returned. The
// error is an error of list.
func SelectClasses(limits *v1alpha1.Posture, list func(schema.GroupVersionKind) ([]metav1.PartialObjectMetadata, error)) (selected *v1alpha1.SelectedClasses, problem, err error) {
	for _, l := range classLimits {
		limit := l.of(limits)
		if limit == nil || limit.Selector == nil {
			continue
		}
		if selected == nil {
			selected = &v1alpha1.SelectedClasses{}
		}
		selector, invalid := metav1.LabelSelectorAsSelector(limit.Selector)
		if invalid != nil {
			problem = cmp.Or(problem, invalidSelector("spec", l, invalid))
			continue
		}
		classes, err := list(l.kind)
		if err != nil {
			return nil, nil, fmt.Errorf("cannot read the classes for the selector of %s: %w", l.field, err)
		}
		var names []string
		for i := range classes {
			c := &classes[i]
			system := l.kind.Kind == "PriorityClass" && strings.HasPrefix(c.Name, systemClasses)
			if c.DeletionTimestamp.IsZero() && !system && selector.Matches(labels.Set(c.Labels)) {
				names = append(names, c.Name)
			}
		}
		slices.Sort(names)
		if len(names) > v1alpha1.MaxSelectedClasses {
			problem = cmp.Or(problem, fmt.Errorf("the selector of %s selects %d classes, of which only the first %d by name are allowed: narrow the selector", l.field, len(names), v1alpha1.MaxSelectedClasses))
			names = names[:v1alpha1.MaxSelectedClasses]
		}
		*l.names(selected) = names
	}
	return selected, problem, nil
}

// AllowedClasses returns the sorted names of the classes of a kind that the limits allow, as the rules decide. The
// limits are those of a namespace: see [Parameters].
func AllowedClasses(limits *v1alpha1.Posture, kind schema.GroupVersionKind, classes []metav1.PartialObjectMetadata) []string {
	i := slices.IndexFunc(classLimits, func(l classLimit) bool { return l.kind == kind })
	if i < 0 {
		return nil
	}
	limit := classLimits[i].of(limits)
	var names []string
	for i := range classes {
		name := classes[i].Name
		// Labels do not select Kubernetes' own priority classes, and without a limit the rules refuse them.
		system := kind.Kind == "PriorityClass" && strings.HasPrefix(name, systemClasses)
		if limit == nil && !system || limit != nil && (allowsName(&limit.AllowedNames, name) || !system && selectsLabels(limit.Selector, classes[i].Labels)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// allowsName reports whether a list of patterns, or its expression, matches a name.
func allowsName(list *v1alpha1.AllowedNames, name string) bool {
	if slices.ContainsFunc(list.Allowed, func(p v1alpha1.ValuePattern) bool { return patternsOverlap(string(p), name) }) {
		return true
	}
	// The schema of the field refuses other expressions.
	matches, err := regexp.MatchString(list.Expression, name)
	return list.Expression != "" && err == nil && matches
}

// selectsLabels reports whether a selector is there, is valid, and selects labels.
func selectsLabels(selector *metav1.LabelSelector, set map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return selector != nil && err == nil && s.Matches(labels.Set(set))
}

// EmptySelectors returns the fields of the limits whose selectors are valid and select no class.
func EmptySelectors(limits *v1alpha1.Posture, selected *v1alpha1.SelectedClasses) []string {
	var empty []string
	for _, l := range classLimits {
		limit := l.of(limits)
		if limit == nil || limit.Selector == nil {
			continue
		}
		if _, err := metav1.LabelSelectorAsSelector(limit.Selector); err != nil {
			continue
		}
		if selected == nil || len(*l.names(selected)) == 0 {
			empty = append(empty, l.field)
		}
	}
	return empty
}

// checkSelectors returns an error that names the first invalid selector of the limits.
func checkSelectors(path string, limits *v1alpha1.Posture) error {
	for _, l := range classLimits {
		limit := l.of(limits)
		if limit == nil {
			continue
		}
		if _, err := metav1.LabelSelectorAsSelector(limit.Selector); err != nil {
			return invalidSelector(path, l, err)
		}
	}
	return nil
}

func invalidSelector(path string, l classLimit, err error) error {
	return fmt.Errorf("%s.%s.selector is invalid: %w", path, l.field, err)
}
