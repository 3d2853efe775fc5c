// Package tenantrepo adds tenants to a platform's repository and removes them. It replaces six
// commands and four manual edits in the guide of flux2-multi-tenancy. It writes files only;
// once they are committed, Flux applies them.
//
//	tenants/base/TENANT/tenant.yaml           Tenant object
//	tenants/base/TENANT/rbac.yaml             or namespaces, accounts, role bindings
//	tenants/base/TENANT/sync.yaml             and GitRepository and Kustomization
//	tenants/base/TENANT/auth.yaml             credentials, encrypted with SOPS
//	tenants/base/TENANT/kustomization.yaml
//	tenants/ENVIRONMENT/TENANT.yaml           Flux Kustomization of the platform that applies
//	tenants/ENVIRONMENT/TENANT/               the base, with a patch: the folder of the repository
//	tenants/ENVIRONMENT/kustomization.yaml    an entry for TENANT.yaml
//
// An environment that changes the objects of all its tenants keeps them in one Kustomization:
// TENANT-patch.yaml, and entries for the base and the patch.
//
// The package finds these folders in the fleet. It keeps existing objects: it compares an
// object that a person wrote or changed with the generated one, and refuses the change if they
// contradict each other. It builds the finished change as kustomize-controller does, and
// refuses it if it changes another tenant.
package tenantrepo

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Errors for errors.Is.
var (
	// ErrInvalid reports an invalid name, address or path.
	ErrInvalid = errors.New("is not valid")
	// ErrExists reports that a different object already exists.
	ErrExists = errors.New("exists already and differs")
	// ErrTaken reports that a namespace is another tenant's or the platform's.
	ErrTaken = errors.New("is taken")
	// ErrLayout reports that the fleet does not have the expected folders.
	ErrLayout = errors.New("the fleet's layout is not understood")
	// ErrOthers reports that a change would affect more than the tenant.
	ErrOthers = errors.New("would change more than this tenant")
	// ErrNotFound reports that there is no such tenant.
	ErrNotFound = errors.New("there is no such tenant in the fleet")
)

// TenantLabel is the label that `flux create tenant` sets on all its objects.
const TenantLabel = "toolkit.fluxcd.io/tenant"

// podSecurityLabel is the level that the API server enforces in a namespace.
const podSecurityLabel = "pod-security.kubernetes.io/enforce"

// PodSecurityNone omits the labels of Pod Security.
const PodSecurityNone = "none"

// reserved are namespaces that no tenant can have.
var reserved = []string{"default", "flux-system", "kube-system", "kube-public", "kube-node-lease"}

// Tenant holds the options of a tenant.
type Tenant struct {
	// Name is a DNS label.
	Name string
	// Namespaces are the tenant's namespaces; the first one has the sync.
	Namespaces []string
	// ClusterRole is the role of the tenant in its namespaces.
	ClusterRole string
	// Account is the service account's name, or "" for the tenant's.
	Account string
	// SkipNamespace omits the Namespaces, which another process creates.
	SkipNamespace bool
	// Labels are additional labels for all objects.
	Labels map[string]string
	// PodSecurity is a level of Pod Security, or PodSecurityNone.
	PodSecurity string
	// URL and Branch are the tenant's repository.
	URL, Branch string
	// Interval is the interval at which Flux checks the repository.
	Interval time.Duration
	// VerifyMode is the mode in which Flux verifies the signatures of the repository with the
	// platform's keys, or "".
	VerifyMode string
	// Object makes the tenant a Tenant object, for a fleet with the manager; otherwise it consists
	// of plain manifests. A tenant that the fleet has already keeps its form.
	Object bool
	// SecretName is the Secret with the repository's credentials, or "".
	SecretName string
	// Chosen are the names of the flags that the user has set. Existing objects may differ
	// in the fields of other flags.
	Chosen map[string]bool
}

// Environment maps an environment to a folder of the tenant's repository.
type Environment struct {
	// Name is the name of the environment, such as staging.
	Name string
	// Path is a folder in the tenant's repository, such as ./staging.
	Path string
}

// ParseEnvironment reads NAME=PATH. It returns [ErrInvalid] if the name is not a DNS label or
// the path leaves the repository.
func ParseEnvironment(text string) (Environment, error) {
	name, folder, ok := strings.Cut(text, "=")
	if errs := validation.IsDNS1123Label(name); !ok || len(errs) > 0 {
		return Environment{}, fmt.Errorf("the environment %q %w: write NAME=PATH, such as staging=./staging", text, ErrInvalid)
	}
	clean := path.Clean(folder)
	if folder == "" || path.IsAbs(folder) || clean == ".." || strings.HasPrefix(clean, "../") || strings.ContainsAny(folder, "\\\n\r\x00") {
		return Environment{}, fmt.Errorf("the path of the environment %q %w: write a folder inside the tenant's repository, such as ./staging", text, ErrInvalid)
	}
	if clean == "." {
		return Environment{name, "./"}, nil
	}
	return Environment{name, "./" + clean}, nil
}

// account returns the service account that applies the tenant.
func (t Tenant) account() string {
	if t.Account != "" {
		return t.Account
	}
	return t.Name
}

// Validate checks the values that can be checked without a fleet. It checks the repository only
// if one is set. It returns [ErrInvalid] for a value that is not valid, and another error if
// there is no namespace.
func (t Tenant) Validate() error {
	if err := CheckName("tenant name", t.Name); err != nil {
		return err
	}
	if len(t.Name)+len("-reconciler") > validation.DNS1123LabelMaxLength {
		return fmt.Errorf("the tenant name %q %w: it is longer than %d characters", t.Name, ErrInvalid, validation.DNS1123LabelMaxLength-len("-reconciler"))
	}
	if t.Name == "default" {
		return fmt.Errorf("the tenant name %q %w: Flux applies as the account of this name, which is the account of all Pods in each namespace: choose another name", t.Name, ErrInvalid)
	}
	if len(t.Namespaces) == 0 {
		return fmt.Errorf("the tenant %s has no namespace: name one with --with-namespace", t.Name)
	}
	for i, ns := range t.Namespaces {
		if err := CheckName("namespace", ns); err != nil {
			return err
		}
		if slices.Contains(reserved, ns) || strings.HasPrefix(ns, "kube-") {
			return fmt.Errorf("the namespace %q %w: it belongs to the platform", ns, ErrInvalid)
		}
		if slices.Contains(t.Namespaces[:i], ns) {
			return fmt.Errorf("the namespace %q %w: it is named twice", ns, ErrInvalid)
		}
	}
	if err := CheckName("service account name", t.account()); err != nil {
		return err
	}
	if errs := validation.IsDNS1123Subdomain(strings.ReplaceAll(t.ClusterRole, ":", "-")); len(errs) > 0 {
		return fmt.Errorf("the cluster role %q %w: %s", t.ClusterRole, ErrInvalid, errs[0])
	}
	if !slices.Contains([]string{"restricted", "baseline", "privileged", PodSecurityNone}, t.PodSecurity) {
		return fmt.Errorf("the pod security level %q %w: use restricted, baseline, privileged or %s", t.PodSecurity, ErrInvalid, PodSecurityNone)
	}
	for key, value := range t.Labels {
		if errs := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(errs) > 0 {
			return fmt.Errorf("the label %s=%s %w: %s", key, value, ErrInvalid, errs[0])
		}
		if key == TenantLabel || key == podSecurityLabel {
			return fmt.Errorf("the label %s %w: it is set by this command itself", key, ErrInvalid)
		}
	}
	return nil
}

// validateRepository checks where the tenant is delivered from.
func (t Tenant) validateRepository() error {
	if _, err := ParseURL(t.URL); err != nil {
		return err
	}
	if err := CheckBranch(t.Branch); err != nil {
		return err
	}
	if t.Interval < time.Second {
		return fmt.Errorf("the interval %s %w: it is shorter than a second", t.Interval, ErrInvalid)
	}
	return nil
}

// ParseURL checks a repository's address: HTTPS, HTTP or SSH, without credentials in it. It
// returns [ErrInvalid] for any other address, and another error if the address is empty.
func ParseURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case address == "":
		return nil, errors.New("the repository's address is missing: give it with --git-url")
	case err != nil && strings.Contains(address, "@") && !strings.Contains(address, "://"):
		return nil, fmt.Errorf("the address %q %w: Flux wants ssh://USER@HOST/PATH instead of USER@HOST:PATH", address, ErrInvalid)
	case err != nil:
		return nil, fmt.Errorf("the repository's address %w", ErrInvalid) // the address may contain a password
	}
	if _, secret := u.User.Password(); secret {
		return nil, fmt.Errorf("the address of %s %w: it holds a password, which belongs in a Secret (--secret token)", u.Hostname(), ErrInvalid)
	}
	switch {
	case !slices.Contains([]string{"https", "http", "ssh"}, u.Scheme):
		return nil, fmt.Errorf("the address %q %w: it has to begin with https:// or ssh://", address, ErrInvalid)
	case u.Scheme != "ssh" && u.User != nil:
		return nil, fmt.Errorf("the address %q %w: a user belongs in a Secret (--secret token)", address, ErrInvalid)
	case u.Hostname() == "" || strings.Trim(u.Path, "/") == "":
		return nil, fmt.Errorf("the address %q %w: the host or the path is missing", address, ErrInvalid)
	case u.RawQuery != "" || u.Fragment != "" || strings.Contains(u.Path, ".."):
		return nil, fmt.Errorf("the address %q %w: it has more than a path", address, ErrInvalid)
	}
	return u, nil
}

// CheckBranch checks that a name can be a branch's. The error is [ErrInvalid].
func CheckBranch(name string) error {
	if !validBranch(name) {
		return fmt.Errorf("the branch %q %w", name, ErrInvalid)
	}
	return nil
}

// validBranch follows git check-ref-format as far as it matters here.
func validBranch(name string) bool {
	return name != "" && len(name) < 250 && !strings.HasPrefix(name, "-") && !strings.HasPrefix(name, "/") && !strings.HasSuffix(name, "/") &&
		!strings.HasSuffix(name, ".lock") && !strings.HasSuffix(name, ".") && !strings.Contains(name, "..") && !strings.Contains(name, "@{") &&
		!strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune("~^:?*[\\", r) })
}

// CheckName returns [ErrInvalid] for a name that is not a DNS label (RFC 1123). The message uses
// what as the noun for the name.
func CheckName(what, name string) error {
	if errs := validation.IsDNS1123Label(name); len(errs) > 0 {
		return fmt.Errorf("the %s %q %w: use lower case letters, digits and '-', at most %d", what, name, ErrInvalid, validation.DNS1123LabelMaxLength)
	}
	return nil
}
