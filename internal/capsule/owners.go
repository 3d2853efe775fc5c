package capsule

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// accountPrefix is the prefix of the user names of service accounts.
	accountPrefix = "system:serviceaccount:"
	// rolesAnnotation, followed by a slash and the index of an owner, is the annotation of v1beta1 with the
	// roles of that owner.
	rolesAnnotation = "clusterrolenames.capsule.clastix.io"
)

// defaultRoles returns the roles of an owner without clusterRoles.
func defaultRoles() []string { return []string{roleAdmin, RoleDeleter} }

func (t *translation) owners() {
	if n := len(t.tenant.Spec.Owners); n > maxOwners {
		t.note(Refused, "spec.owners", "there are %d, and at most %d can be kept", n, maxOwners)
		return
	}
	for i, o := range t.tenant.Spec.Owners {
		field := fmt.Sprintf("spec.owners[%d]", i)
		owner, err := owner(o.Identity)
		if err != nil {
			t.note(Refused, field, "%v", err)
			continue
		}
		owner.Roles = t.roles(i, o, field)
		t.ownerBindings(o, owner, field)
		t.spec.Owners = append(t.spec.Owners, owner)
	}
	t.proxySettings()
}

// owner translates the identity of an owner. The user name of a service account denotes the
// service account even if the kind is User or missing, since no other user can have the name.
func owner(id v1beta2.Identity) (v1alpha1.Owner, error) {
	if id.Name == "" || len(id.Name) > maxName {
		return v1alpha1.Owner{}, fmt.Errorf("the name must have 1 to %d characters", maxName)
	}
	rest, account := strings.CutPrefix(id.Name, accountPrefix)
	switch {
	case account && id.Kind != rbacv1.GroupKind:
		namespace, name, _ := strings.Cut(rest, ":")
		if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
			return v1alpha1.Owner{}, errors.New("a service account's name has the form " + accountPrefix + "NAMESPACE:NAME")
		}
		return v1alpha1.Owner{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}, nil
	case id.Kind == rbacv1.ServiceAccountKind:
		return v1alpha1.Owner{}, errors.New("a service account's name has the form " + accountPrefix + "NAMESPACE:NAME")
	case strings.HasPrefix(id.Name, "system:"):
		return v1alpha1.Owner{}, errors.New("names that begin with system: are Kubernetes' own: name the people or service accounts that own the tenant")
	case id.Kind != rbacv1.UserKind && id.Kind != rbacv1.GroupKind:
		return v1alpha1.Owner{}, errors.New("the kind is missing: give User, Group or ServiceAccount")
	}
	return v1alpha1.Owner{Kind: id.Kind, Name: id.Name}, nil
}

// roles returns the ClusterRoles of an owner.
func (t *translation) roles(index int, o v1beta2.Owner, field string) []string {
	given := o.ClusterRoles
	if given == nil {
		given = defaultRoles()
	}
	key := fmt.Sprintf("%s/%d", rolesAnnotation, index)
	if older, ok := t.tenant.Annotations[key]; ok {
		names := list(older)
		if !slices.Equal(given, defaultRoles()) && !slices.Equal(given, names) {
			t.note(Refused, "metadata.annotations["+key+"]", "names other roles than %s.clusterRoles: remove one of them", field)
		}
		given = names
	}
	return t.roleList(given, field+".clusterRoles")
}

// roleList returns the ClusterRoles that Tenure grants for the ClusterRoles of an owner.
func (t *translation) roleList(given []string, field string) []string {
	var roles []string
	for i, role := range given {
		role = t.role(role, fmt.Sprintf("%s[%d]", field, i))
		if role != "" && !slices.Contains(roles, role) {
			roles = append(roles, role)
		}
	}
	switch {
	case len(roles) == 0:
		t.note(Refused, field, "an owner without roles cannot be kept: give at least one")
	case len(roles) > maxRoles:
		t.note(Refused, field, "there are %d, and at most %d can be kept", len(roles), maxRoles)
	}
	return roles
}

// role returns the ClusterRole that Tenure grants for a ClusterRole, or "" if it refuses the name.
func (t *translation) role(name, field string) string {
	switch {
	case name == "" || len(name) > maxName:
		t.note(Refused, field, "the name of a role must have 1 to %d characters", maxName)
		return ""
	case Role(name) != name:
		t.note(Different, field, "%s is given in the place of %s: everything in a namespace but what would let a tenant out of it", Role(name), name)
	}
	return Role(name)
}

func (t *translation) bindings() {
	if n := len(t.spec.RoleBindings) + len(t.tenant.Spec.AdditionalRoleBindings); n > maxBindings {
		t.note(Refused, "spec.additionalRoleBindings", "with those for the labels of owners there are %d, and at most %d can be kept", n, maxBindings)
		return
	}
	for i, b := range t.tenant.Spec.AdditionalRoleBindings {
		t.binding(fmt.Sprintf("spec.additionalRoleBindings[%d]", i), b, nil)
	}
}

// binding translates a role binding for the namespaces that a selector selects.
func (t *translation) binding(field string, b v1beta2.AdditionalRoleBinding, selector *metav1.LabelSelector) {
	binding := v1alpha1.TenantRoleBinding{Role: t.role(b.ClusterRoleName, field+".clusterRoleName"), NamespaceSelector: selector}
	if len(b.Subjects) == 0 || len(b.Subjects) > maxSubjects {
		t.note(Refused, field+".subjects", "there must be 1 to %d", maxSubjects)
		return
	}
	for j, s := range b.Subjects {
		subject, err := subject(s)
		if err != nil {
			t.note(Refused, fmt.Sprintf("%s.subjects[%d]", field, j), "%v", err)
			continue
		}
		binding.Subjects = append(binding.Subjects, subject)
	}
	if len(b.Labels) > maxBindingMetadata || len(b.Annotations) > maxBindingMetadata {
		t.note(Refused, field, "at most %d labels and %d annotations can be kept", maxBindingMetadata, maxBindingMetadata)
		return
	}
	binding.Labels, binding.Annotations = b.Labels, b.Annotations
	t.spec.RoleBindings = append(t.spec.RoleBindings, binding)
}

func subject(s rbacv1.Subject) (v1alpha1.Subject, error) {
	group := rbacv1.GroupName
	if s.Kind == rbacv1.ServiceAccountKind {
		group = ""
	}
	switch {
	case s.APIGroup != "" && s.APIGroup != group:
		return v1alpha1.Subject{}, fmt.Errorf("a %s is not of API group %q", s.Kind, s.APIGroup)
	case s.Name == "" || len(s.Name) > maxName:
		return v1alpha1.Subject{}, fmt.Errorf("the name must have 1 to %d characters", maxName)
	case s.Kind == rbacv1.ServiceAccountKind && s.Namespace != "" && len(validation.IsDNS1123Label(s.Namespace)) > 0:
		return v1alpha1.Subject{}, errors.New("the namespace of the service account is not one")
	case s.Kind == rbacv1.ServiceAccountKind:
		return v1alpha1.Subject{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name}, nil
	case s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind:
		// RBAC ignores the namespace of users and groups.
		return v1alpha1.Subject{Kind: s.Kind, Name: s.Name}, nil
	}
	return v1alpha1.Subject{}, fmt.Errorf("the kind is %q and must be User, Group or ServiceAccount", s.Kind)
}

// ownersIndex reports whether text is the index of an owner of the tenant.
func (t *translation) ownersIndex(text string) bool {
	i, err := strconv.Atoi(text)
	return err == nil && i >= 0 && i < len(t.tenant.Spec.Owners)
}
