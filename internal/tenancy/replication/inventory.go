package replication

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Account is a service account.
type Account struct {
	// Namespace is the namespace of the account.
	Namespace string
	// Name is the name of the account.
	Name string
}

// Held is an object that a declaration has replicated, or is about to replicate.
type Held struct {
	// Key identifies the object.
	Key
	// Version is the API version at which the object was written.
	Version string
	// Account is the account that applied the object, and deletes it.
	Account Account
}

// Object returns an object with the fields that identify it to the API server.
func (h Held) Object() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: h.Group, Version: h.Version, Kind: h.Kind})
	u.SetNamespace(h.Namespace)
	u.SetName(h.Name)
	return u
}

// Inventory is the set of objects that a declaration has in the cluster.
type Inventory map[Key]Held

// Add adds an object that an account applies.
func (i Inventory) Add(u *unstructured.Unstructured, account Account) {
	key := KeyOf(u)
	i[key] = Held{Key: key, Version: u.GroupVersionKind().Version, Account: account}
}

// Kept is a line of an inventory in a status: one object in several namespaces.
type Kept struct {
	APIVersion, Kind, Name string
	// Account has no namespace if it is in the namespace of the object.
	Account    Account
	Namespaces []string
}

// List returns the lines, in order.
func (i Inventory) List() []Kept {
	lines := map[[5]string]*Kept{}
	for _, h := range i {
		account := h.Account
		if account.Namespace == h.Namespace {
			account.Namespace = ""
		}
		version := schema.GroupVersion{Group: h.Group, Version: h.Version}.String()
		key := [5]string{version, h.Kind, h.Name, account.Namespace, account.Name}
		if lines[key] == nil {
			lines[key] = &Kept{APIVersion: version, Kind: h.Kind, Name: h.Name, Account: account}
		}
		lines[key].Namespaces = append(lines[key].Namespaces, h.Namespace)
	}
	var list []Kept
	for _, k := range lines {
		slices.Sort(k.Namespaces)
		list = append(list, *k)
	}
	slices.SortFunc(list, func(a, b Kept) int {
		return cmp.Or(
			strings.Compare(a.APIVersion, b.APIVersion), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name),
			strings.Compare(a.Account.Namespace, b.Account.Namespace), strings.Compare(a.Account.Name, b.Account.Name),
		)
	})
	return list
}

// ReadInventory parses the lines that [Inventory.List] returned. It skips invalid lines.
func ReadInventory(lines []Kept) Inventory {
	i := Inventory{}
	for _, k := range lines {
		version, err := schema.ParseGroupVersion(k.APIVersion)
		if err != nil || k.Kind == "" || k.Name == "" {
			continue
		}
		for _, namespace := range k.Namespaces {
			account := k.Account
			if account.Namespace == "" {
				account.Namespace = namespace
			}
			key := Key{Group: version.Group, Kind: k.Kind, Namespace: namespace, Name: k.Name}
			i[key] = Held{Key: key, Version: version.Version, Account: account}
		}
	}
	return i
}

// WrongAccount returns why an account is invalid, or "".
func WrongAccount(a Account) string {
	if problems := validation.IsDNS1123Label(a.Namespace); len(problems) > 0 {
		return "its namespace: " + strings.Join(problems, "; ")
	}
	return strings.Join(validation.IsDNS1123Subdomain(a.Name), "; ")
}
