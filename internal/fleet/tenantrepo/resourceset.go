package tenantrepo

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/fleet/workspace"
	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	"sigs.k8s.io/yaml"
)

// resourceSet is a ResourceSet of flux-operator that creates namespaces.
type resourceSet struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Inputs            []map[string]any `json:"inputs"`
		InputsFrom        []inputsFrom     `json:"inputsFrom"`
		Resources         []map[string]any `json:"resources"`
		ResourcesTemplate string           `json:"resourcesTemplate"`
	} `json:"spec"`

	// file has the ResourceSet as its document doc, whose text is raw.
	file string
	doc  int
	raw  string
}

// inputsFrom selects the providers of inputs by name or by labels.
type inputsFrom struct {
	Name     string `json:"name"`
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
}

var (
	// clusterWide matches the template of a binding for the whole cluster. A ResourceSet with one makes
	// no tenants.
	clusterWide = regexp.MustCompile(`kind:\s*["']?ClusterRoleBinding\b`)
	// namespaceTemplate matches the template of a Namespace in text.
	namespaceTemplate = regexp.MustCompile(`kind:\s*["']?Namespace\b`)
	// tenantLabel matches a label that names a tenant.
	tenantLabel = regexp.MustCompile(`(?:tenure\.dev|toolkit\.fluxcd\.io|capsule\.clastix\.io)/tenant["']?\s*:`)
	// inputField matches an expression that is a field of the input.
	inputField = regexp.MustCompile(`<<-?\s*inputs\.([A-Za-z0-9_]+)\s*-?>>`)
	// nameField matches a name that begins with a field of the input.
	nameField = regexp.MustCompile(`name:\s*["']?` + inputField.String())
	// urlField matches an address in a template.
	urlField = regexp.MustCompile(`(?m)^[\s-]*url:\s*["']?(.*?)["']?\s*$`)
)

// findTenantSet returns the ResourceSet that makes the tenants of a fleet, or nil: the set whose template
// has a Namespace and no binding for the whole cluster. It returns [ErrLayout] if there are several.
func findTenantSet(fleet fs.FS) (*resourceSet, error) {
	var found []resourceSet
	err := eachFile(fleet, ".", func(name string, content []byte) error {
		if !bytes.Contains(content, []byte("ResourceSet")) {
			return nil
		}
		stream, err := yamledit.Parse(string(content))
		if err != nil {
			return nil //nolint:nilerr // not a manifest, or one that cannot be edited: another way is advised
		}
		for i, node := range stream.Docs {
			if yamledit.Str(node, "kind") != "ResourceSet" {
				continue
			}
			set := resourceSet{file: name, doc: i}
			if set.read(node) == nil && set.makesTenants() {
				found = append(found, set)
			}
		}
		return nil
	})
	switch {
	case err != nil || len(found) == 0:
		return nil, err
	case len(found) > 1:
		var names []string
		for _, set := range found {
			names = append(names, set.String())
		}
		return nil, fmt.Errorf("%w: flux-operator makes the tenants of this fleet by several ResourceSets: add an input to one of them: %s", ErrLayout, strings.Join(names, ", "))
	}
	return &found[0], nil
}

// read sets the fields of the object and its text.
func (r *resourceSet) read(node *kyaml.Node) error {
	var content map[string]any
	if err := node.Decode(&content); err != nil {
		return err
	}
	raw, err := yaml.Marshal(content)
	if err != nil {
		return err
	}
	r.raw = string(raw)
	return yaml.Unmarshal(raw, r)
}

func (r resourceSet) String() string {
	return fmt.Sprintf("ResourceSet %s in %s", r.Metadata.Name, r.file)
}

// makesTenants reports whether the templates have a Namespace and no binding for the whole cluster.
func (r resourceSet) makesTenants() bool {
	return (namespaceTemplate.MatchString(r.Spec.ResourcesTemplate) || r.namespace() != nil) && !clusterWide.MatchString(r.raw)
}

// namespace returns the template of the Namespace among the resources.
func (r resourceSet) namespace() map[string]any {
	i := slices.IndexFunc(r.Spec.Resources, func(o map[string]any) bool { return o["kind"] == "Namespace" })
	if i < 0 {
		return nil
	}
	return r.Spec.Resources[i]
}

// tenantField returns the field of an input that names the tenant: the field in the name of the
// Namespace. It returns "" if there is none.
func (r resourceSet) tenantField() string {
	if namespace := r.namespace(); namespace != nil {
		metadata, _ := namespace["metadata"].(map[string]any)
		name, _ := metadata["name"].(string)
		if match := inputField.FindStringSubmatch(name); match != nil {
			return match[1]
		}
		return ""
	}
	for _, doc := range documents([]byte(r.Spec.ResourcesTemplate)) {
		if match := nameField.FindSubmatch(doc); match != nil && namespaceTemplate.Match(doc) {
			return string(match[1])
		}
	}
	return ""
}

// addInput adds the tenant to the inputs of a ResourceSet. It returns [ErrLayout], with what to add, if
// the inputs are in another place or are written in a way that only a person can edit.
func (r resourceSet) addInput(s *workspace.Set, o Options) (*Plan, error) {
	field := r.tenantField()
	if len(r.Spec.Inputs) == 0 || field == "" {
		return nil, fmt.Errorf("%w: flux-operator makes the tenants of this fleet: %s", ErrLayout, r.providerAdvice(o.Tenant, field))
	}
	plan := &Plan{}
	for _, input := range r.Spec.Inputs {
		if input[field] == o.Tenant.Name {
			return plan, nil
		}
	}
	if err := checkOwners(s.FS(), o.Tenant); err != nil {
		return nil, fmt.Errorf("cannot create the tenant %s: %w", o.Tenant.Name, err)
	}
	entry, copied := newInput(r.Spec.Inputs[0], field, o.Tenant)
	added, err := r.edit(s, entry)
	if err != nil {
		return nil, err
	}
	if err := s.Write(r.file, added); err != nil {
		return nil, err
	}
	plan.note("the %s makes the tenant's objects: its template, and no flag, decides namespaces, roles and folders", r)
	if len(copied) > 0 {
		plan.note("%s: copied from the first input, check them", strings.Join(copied, ", "))
	}
	if addresses := r.addresses(entry); len(addresses) > 0 && !slices.Contains(addresses, o.Tenant.URL) {
		plan.note("the template fetches the tenant from %s, and not from %s", strings.Join(addresses, " or "), o.Tenant.URL)
	}
	if !tenantLabel.MatchString(r.raw) {
		plan.note("the template gives no object the label of a tenant, so Tenure's rules do not apply to its namespace: add %s: << inputs.%s >> to the labels of the Namespace", v1alpha1.LabelFluxTenant, field)
	}
	if o.Seal != nil {
		plan.note("no credentials were made: put them where the template takes them from")
	}
	return plan, nil
}

// edit returns the file of the ResourceSet with one more input.
func (r resourceSet) edit(s *workspace.Set, entry map[string]any) ([]byte, error) {
	content, err := s.Read(r.file)
	if err != nil {
		return nil, err
	}
	stream, err := yamledit.Parse(string(content))
	if err != nil {
		return nil, fmt.Errorf("cannot edit %s: %w", r.file, err)
	}
	text, err := yaml.Marshal(entry)
	if err != nil {
		return nil, fmt.Errorf("cannot write an input: %w", err)
	}
	err = stream.AppendItem(r.doc, string(text), "spec", "inputs")
	if errors.Is(err, yamledit.ErrUneditable) {
		return nil, fmt.Errorf("%w: flux-operator makes the tenants of this fleet: add to spec.inputs of %s: - %s", ErrLayout, r, yamledit.Flow(entry))
	}
	return []byte(stream.Text), err
}

// newInput returns an input for the tenant, made from another tenant's: with the tenant's name, repository
// and branch in their fields. copied are the fields with the other tenant's values.
func newInput(other map[string]any, field string, tenant Tenant) (entry map[string]any, copied []string) {
	entry = map[string]any{}
	for _, key := range sortedKeys(other) {
		value := other[key]
		old, isText := value.(string)
		switch {
		case key == field:
			value = tenant.Name
		case isText && strings.Contains(old, "://"):
			value = tenant.URL
		case key == "branch" && tenant.Branch != "" && old != "":
			value = tenant.Branch
		default:
			copied = append(copied, key)
		}
		entry[key] = value
	}
	return entry, copied
}

// addresses returns the addresses of the sources that the templates make for an input, without those
// that Flux completes.
func (r resourceSet) addresses(input map[string]any) []string {
	templates, err := yaml.Marshal(r.Spec.Resources)
	if err != nil {
		return nil // they were read from YAML
	}
	var all []string
	for _, match := range urlField.FindAllStringSubmatch(string(templates)+r.Spec.ResourcesTemplate, -1) {
		address := inputField.ReplaceAllStringFunc(match[1], func(expression string) string {
			return fmt.Sprint(input[inputField.FindStringSubmatch(expression)[1]])
		})
		if strings.Contains(address, "://") && !strings.Contains(address, "<<") && !strings.Contains(address, "${") && !slices.Contains(all, address) {
			all = append(all, address)
		}
	}
	return all
}

// providerAdvice returns how to add a tenant to a ResourceSet whose inputs come from providers.
func (r resourceSet) providerAdvice(tenant Tenant, field string) string {
	if field == "" {
		return fmt.Sprintf("the template of %s computes its inputs: add an input for the tenant there", r)
	}
	values := yamledit.Flow(map[string]any{field: tenant.Name})
	metadata := fmt.Sprintf("name: %s, namespace: flux-system", tenant.Name)
	more := fmt.Sprintf(", and {name: %s} in its spec.inputsFrom", tenant.Name)
	for _, from := range r.Spec.InputsFrom {
		if len(from.Selector.MatchLabels) > 0 {
			labels := map[string]any{}
			for key, value := range from.Selector.MatchLabels {
				labels[key] = value
			}
			metadata, more = metadata+", labels: "+yamledit.Flow(labels), ""
			break
		}
	}
	return fmt.Sprintf("%s takes its inputs from providers: add {apiVersion: fluxcd.controlplane.io/v1, kind: ResourceSetInputProvider, metadata: {%s}, spec: {type: Static, defaultValues: %s}}, with the other fields of its inputs%s", r, metadata, values, more)
}
