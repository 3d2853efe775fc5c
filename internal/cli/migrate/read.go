package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/cli/kubeflags"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/ui"
)

const (
	// group is the API group of Capsule.
	group = "capsule.clastix.io"
	// profileKind is the kind of the profile of Tenure.
	profileKind = "TenancyProfile"
)

// input are the objects of Capsule.
type input struct {
	tenants []*v1beta2.Tenant
	// unknown are the fields of each Tenant that Tenure does not know.
	unknown map[string][]string
	// templates are the files that are no YAML before they are rendered.
	templates []string
	// overlays are the files of kustomize that patch objects of Capsule.
	overlays []string
	// configured are the fields of the CapsuleConfiguration that Tenure does not know.
	configured    []string
	configuration *v1beta2.CapsuleConfiguration
	owners        []v1beta2.TenantOwner
	others        []object
	// profile is the TenancyProfile; nil if it was not found.
	profile *v1alpha1.TenancyProfile
	// read are the objects by kind and name, with their files.
	read map[object]source
}

// buildFirst is the hint for objects that two files have.
const buildFirst = "name the folder of one cluster; build overlays first: kustomize build FOLDER | tenure migrate capsule -f -"

// ofCapsule matches manifests and patches of Capsule's objects. Labels and annotations of Capsule's group alone do not
// match: Tenure's own patches select namespaces by them.
var ofCapsule = regexp.MustCompile(`apiVersion["']?\s*:\s*["']?` + regexp.QuoteMeta(group) + `/`)

// source is an object, and the file that it is from.
type source struct {
	file   string
	object *unstructured.Unstructured
}

// read reads the objects from the files, of which "-" is the standard input, or from the cluster if no files are given.
func (o *capsuleOptions) read(ctx context.Context, stdin io.Reader) (*input, error) {
	paths := slices.Clone(o.files)
	if o.fleet != "" {
		paths = append(paths, o.fleet)
	}
	in := &input{unknown: map[string][]string{}, read: map[object]source{}}
	if len(paths) == 0 {
		return in, o.readCluster(ctx, in)
	}
	for _, path := range paths {
		if err := in.readFiles(path, stdin); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// readFiles reads a file, the YAML and JSON files of a folder, or, for "-", the standard input.
func (in *input) readFiles(path string, stdin io.Reader) error {
	if path == "-" {
		content, err := io.ReadAll(stdin)
		if err != nil {
			return fmt.Errorf("cannot read the standard input: %w", err)
		}
		return in.addAll("the standard input", content)
	}
	return filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("cannot read %s: %w", name, err)
		case entry.IsDir() && name != path && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case entry.IsDir() || name != path && !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)):
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("cannot read %s: %w", name, err)
		}
		if !bytes.Contains(content, []byte(group+"/")) && !bytes.Contains(content, []byte(profileKind)) {
			return nil // it may be no manifest
		}
		return in.addAll(name, content)
	})
}

// kustomization says whether a file is the input of kustomize, which is no object of a cluster.
func kustomization(name string) bool {
	base := strings.ToLower(filepath.Base(name))
	return strings.TrimSuffix(base, filepath.Ext(base)) == "kustomization"
}

// addAll adds the objects in manifests. name names them in errors.
func (in *input) addAll(name string, content []byte) error {
	objects, err := flux.ReadObjects(content)
	if err != nil && !ofCapsule.Match(content) {
		return nil // it may be no manifest, or have a label of Capsule only
	}
	if err != nil && bytes.Contains(content, []byte("{{")) {
		in.templates = append(in.templates, name)
		return nil
	}
	if err != nil && kustomization(name) {
		in.overlays = append(in.overlays, name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, u := range objects {
		if err := in.addFrom(name, u); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// readCluster reads the objects of the kinds that the cluster serves.
func (o *capsuleOptions) readCluster(ctx context.Context, in *input) error {
	config, err := o.REST(ctx)
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("cannot connect to the cluster: %w", err)
	}
	version := v1beta2.GroupVersion.Version
	versions := map[string]string{
		"Tenant": version, "CapsuleConfiguration": version, "TenantOwner": version, "TenantResource": version, "GlobalTenantResource": version,
		"ResourcePool": version, "ResourcePoolClaim": version, "CustomQuota": version, "GlobalCustomQuota": version, "GlobalResourceQuota": version,
		"ProxySetting": "v1beta1", "GlobalProxySettings": "v1beta1",
	}
	for _, kind := range slices.Sorted(maps.Keys(versions)) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: versions[kind], Kind: kind + "List"})
		err := c.List(ctx, list)
		if apimeta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return kubeflags.Explain(fmt.Errorf("cannot list Capsule's objects of kind %s: %w", kind, err))
		}
		for i := range list.Items {
			if err := in.add(&list.Items[i]); err != nil {
				return err
			}
		}
	}
	profile := &unstructured.Unstructured{}
	profile.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(profileKind))
	if err := c.Get(ctx, client.ObjectKey{Name: v1alpha1.ProfileName}, profile); err == nil {
		if err := in.addProfile(profile); err != nil {
			return err
		}
	} else if !apimeta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return kubeflags.Explain(fmt.Errorf("cannot read the TenancyProfile: %w", err))
	}
	slices.SortFunc(in.others, compareObjects)
	slices.SortFunc(in.owners, func(a, b v1beta2.TenantOwner) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// addFrom adds an object of a file. An object that two files have is added once. It returns an error if the two differ:
// one of them may be a patch, or of another cluster.
func (in *input) addFrom(file string, u *unstructured.Unstructured) error {
	if u.GroupVersionKind().Group == v1alpha1.GroupVersion.Group && u.GetKind() == profileKind && u.GetName() == v1alpha1.ProfileName {
		return in.addProfile(u)
	}
	if u.GroupVersionKind().Group != group {
		return nil
	}
	key := object{kind: u.GetKind(), name: nameOf(u)}
	before, twice := in.read[key]
	if !twice {
		in.read[key] = source{file, u}
		return in.add(u)
	}
	if !reflect.DeepEqual(before.object.Object, u.Object) {
		return ui.WithHint(fmt.Errorf("%s %s differs from the one in %s", key.kind, key.name, before.file),
			buildFirst)
	}
	return nil
}

// addProfile adds a TenancyProfile. It returns an error if another one has other hosts: one of them may be a patch, or of
// another cluster.
func (in *input) addProfile(u *unstructured.Unstructured) error {
	profile := &v1alpha1.TenancyProfile{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, profile); err != nil {
		return fmt.Errorf("cannot read TenancyProfile %s: %w", u.GetName(), err)
	}
	if in.profile != nil && !reflect.DeepEqual(in.profile.Spec.Tenants.Network.Hosts, profile.Spec.Tenants.Network.Hosts) {
		return ui.WithHint(errors.New("two TenancyProfiles have different hosts in spec.tenants.network.hosts"), buildFirst)
	}
	in.profile = profile
	return nil
}

// nameOf returns the name of an object, with its namespace if it has one.
func nameOf(u *unstructured.Unstructured) string {
	if u.GetNamespace() != "" {
		return u.GetNamespace() + "/" + u.GetName()
	}
	return u.GetName()
}

// unknownField is the message about a field of the spec that a type does not have.
var unknownField = regexp.MustCompile(`^unknown field "(spec[.[].*)"$`)

// decode converts an object to its type, and returns the fields of its spec that the type does not have.
func decode(u *unstructured.Unstructured, typed any) (unknown []string, err error) {
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, typed, true)
	strict, isStrict := runtime.AsStrictDecodingError(err)
	if err != nil && !isStrict {
		return nil, fmt.Errorf("cannot read %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	if isStrict {
		for _, e := range strict.Errors() {
			if match := unknownField.FindStringSubmatch(e.Error()); match != nil {
				unknown = append(unknown, match[1])
			}
		}
	}
	slices.Sort(unknown)
	return unknown, nil
}

// add adds an object of Capsule, and leaves out others. Both versions of a kind have the same fields.
func (in *input) add(u *unstructured.Unstructured) error {
	if u.GroupVersionKind().Group != group {
		return nil
	}
	var err error
	switch u.GetKind() {
	case "Tenant":
		tenant := &v1beta2.Tenant{}
		if in.unknown[u.GetName()], err = decode(u, tenant); err != nil {
			return err
		}
		in.tenants = append(in.tenants, tenant)
	case "CapsuleConfiguration":
		if u.GetName() != v1beta2.ConfigurationName {
			in.others = append(in.others, object{kind: u.GetKind(), name: u.GetName()})
			return nil
		}
		in.configuration = &v1beta2.CapsuleConfiguration{}
		in.configured, err = decode(u, in.configuration)
		return err
	case "TenantOwner":
		owner := v1beta2.TenantOwner{}
		if _, err := decode(u, &owner); err != nil {
			return err
		}
		in.owners = append(in.owners, owner)
	default:
		in.others = append(in.others, object{kind: u.GetKind(), name: nameOf(u)})
	}
	return nil
}
