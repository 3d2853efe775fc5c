package migrate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/capsule"
	"github.com/tenure-dev/tenure/internal/cli/kubeflags"
	"github.com/tenure-dev/tenure/internal/ui"
)

type capsuleOptions struct {
	kubeflags.Flags

	files []string
	fleet string
	keep  bool
}

func newCapsule(streams ui.IO) *cobra.Command {
	var o capsuleOptions
	cmd := &cobra.Command{
		Use:   "capsule",
		Short: "Report how Tenure treats Capsule's Tenants, and print Tenants of Tenure for them",
		Long: `Capsule reads the Tenants, the TenantOwners and the CapsuleConfiguration of Capsule, from
files or from a cluster, and lists the fields that have another effect with Tenure, or none.
It prints a Tenant of tenure.dev for each Tenant that Tenure does not refuse, and the list on
the error stream. It reads the TenancyProfile in the same place, since a Tenant of Capsule's
has no hosts of the profile that begin with an asterisk. With --keep it prints the list
alone: Capsule's Tenants stay, and Tenure's layer for Capsule reads them. It writes nothing
to the cluster.

The exit code is 1 if Tenure refuses a Tenant, for example because of a field that it
does not enforce or does not know, and if a file is a template. Build overlays and render
charts first. If another component enforces the field, accept it with the annotation
` + capsule.AcceptAnnotation + `.`,
		Example: `  # List the fields of the Tenants in a cluster, to keep these Tenants.
  tenure migrate capsule --keep

  # Print Tenants of Tenure for the Tenants in a fleet.
  tenure migrate capsule --fleet . > tenants.yaml

  # Print Tenants of Tenure for Capsule's objects in the standard input.
  kubectl get tenants.capsule.clastix.io -o yaml |
    tenure migrate capsule -f - > tenants.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd, streams) },
	}
	flags := cmd.Flags()
	flags.StringSliceVarP(&o.files, "filename", "f", nil, "a `file` or folder with Capsule's objects, or - for the standard input; repeatable")
	flags.StringVar(&o.fleet, "fleet", "", "`folder` of the platform's repository with Capsule's objects")
	flags.BoolVar(&o.keep, "keep", false, "keep Capsule's Tenants, and print no Tenants of Tenure")
	o.Add(cmd, flags)
	_ = cmd.MarkFlagDirname("fleet")
	return cmd
}

func (o *capsuleOptions) run(cmd *cobra.Command, streams ui.IO) error {
	in, err := o.read(cmd.Context(), streams.In)
	if err != nil {
		return err
	}
	if len(in.tenants)+len(in.templates)+len(in.overlays) == 0 {
		return ui.WithHint(errors.New("there are no Tenants of capsule.clastix.io"), "name a file or folder with -f, or a cluster with --kubeconfig")
	}
	slices.SortFunc(in.tenants, func(a, b *v1beta2.Tenant) int { return strings.Compare(a.Name, b.Name) })
	report := ui.Table{Header: []string{"OBJECT", "FIELD", "STATE", "MESSAGE"}}
	var manifests bytes.Buffer
	refused := 0
	var hosts *v1alpha1.AllowedNames
	if in.profile != nil {
		hosts = in.profile.Spec.Tenants.Network.Hosts
	}
	for _, tenant := range in.tenants {
		result := capsule.Translate(capsule.Input{Tenant: tenant, Unknown: in.unknown[tenant.Name], Configuration: in.configuration, Owners: in.owners, Hosts: hosts})
		if !o.keep {
			result.Notes = append(result.Notes, dynamic(tenant, in.configuration)...)
		}
		if !o.keep && in.profile == nil && result.Spec.Network.Hosts == nil {
			result.Notes = append(result.Notes, capsule.Note{Field: "spec.ingressOptions.allowWildcardHostnames", State: capsule.Different, Message: "no TenancyProfile was read: if yours allows hosts that begin with an asterisk, name its file with -f too, or the Tenant has these hosts"})
		}
		for _, note := range result.Notes {
			report.Rows = append(report.Rows, []string{"Tenant/" + tenant.Name, note.Field, string(note.State), note.Message})
		}
		if len(result.Notes) == 0 {
			report.Rows = append(report.Rows, []string{"Tenant/" + tenant.Name, "all", string(capsule.Honoured), ""})
		}
		if len(result.Refusals()) > 0 {
			refused++
			continue
		}
		capsule.WithoutLayer(&result.Spec)
		if err := write(&manifests, tenant.Name, &result.Spec); err != nil {
			return err
		}
	}
	for _, field := range in.configured {
		report.Rows = append(report.Rows, []string{"CapsuleConfiguration/" + v1beta2.ConfigurationName, field, string(capsule.Refused), "Tenure does not know the field"})
	}
	for _, file := range in.templates {
		report.Rows = append(report.Rows, []string{file, "all", string(capsule.Refused), "it is a template: render it, such as by helm template, and read the result with -f -"})
	}
	for _, file := range in.overlays {
		report.Rows = append(report.Rows, []string{file, "all", string(capsule.Refused), "it patches objects of Capsule: build it, by kustomize build, and read the result with -f -"})
	}
	for _, object := range in.others {
		report.Rows = append(report.Rows, o.other(object))
	}
	if !o.keep {
		if _, err := streams.Out.Write(manifests.Bytes()); err != nil {
			return fmt.Errorf("cannot write the Tenants: %w", err)
		}
	}
	screen := streams.Stderr()
	if o.keep {
		screen = streams.Stdout()
	}
	if err := report.Print(screen); err != nil {
		return err
	}
	if refused > 0 {
		return ui.WithHint(fmt.Errorf("%d of %d Tenants are refused", refused, len(in.tenants)),
			"change the fields that the list names, or accept them with the annotation "+capsule.AcceptAnnotation)
	}
	if len(in.templates) > 0 {
		return fmt.Errorf("%d files are templates, which may contain Tenants", len(in.templates))
	}
	switch len(in.overlays) {
	case 0:
		return nil
	case 1:
		return errors.New("1 file of kustomize patches objects of Capsule: build it")
	}
	return fmt.Errorf("%d files of kustomize patch objects of Capsule: build them", len(in.overlays))
}

// dynamic returns notes about the fields of Capsule's objects that the manager evaluates
// continuously, and that a printed Tenant cannot express.
func dynamic(tenant *v1beta2.Tenant, configuration *v1beta2.CapsuleConfiguration) []capsule.Note {
	var notes []capsule.Note
	if len(tenant.Spec.Rules) > 0 {
		notes = append(notes, capsule.Note{Field: "spec.rules", State: capsule.Refused, Message: "the rules apply only while Capsule's Tenant exists: use --keep"})
	}
	if o := tenant.Spec.IngressOptions; o != nil && o.HostnameCollisionScope != "" && o.HostnameCollisionScope != "Disabled" {
		notes = append(notes, capsule.Note{Field: "spec.ingressOptions.hostnameCollisionScope", State: capsule.Refused, Message: "the scope applies only while Capsule's Tenant exists: use --keep"})
	}
	if tenant.Spec.Permissions != nil && len(tenant.Spec.Permissions.MatchOwners) > 0 {
		notes = append(notes, capsule.Note{Field: "spec.permissions.matchOwners", State: capsule.Different, Message: "the printed Tenant has the owners that are selected now; later ones are not added"})
	}
	if configuration != nil {
		for field, restricts := range map[string]bool{
			"spec.ignoreUserWithGroups": len(configuration.Spec.IgnoreUserWithGroups) > 0, "spec.nodeMetadata": restrictsNodes(configuration.Spec.NodeMetadata),
		} {
			if restricts {
				notes = append(notes, capsule.Note{Field: "CapsuleConfiguration " + field, State: capsule.Refused, Message: "it applies only while Tenure's layer for Capsule runs: use --keep"})
			}
		}
	}
	if configuration != nil && configuration.Spec.AllowServiceAccountPromotion {
		notes = append(notes, capsule.Note{Field: "CapsuleConfiguration spec.allowServiceAccountPromotion", State: capsule.Reported, Message: "promoted service accounts do not become owners: add them to spec.owners, or use --keep"})
	}
	return notes
}

// restrictsNodes reports whether the metadata of nodes has forbidden names.
func restrictsNodes(m *v1beta2.NodeMetadata) bool {
	return m != nil && slices.ContainsFunc([]*v1beta2.ForbiddenList{m.ForbiddenLabels, m.ForbiddenAnnotations}, func(l *v1beta2.ForbiddenList) bool {
		return l != nil && (len(l.Denied) > 0 || l.DeniedRegex != "")
	})
}

// other returns the line of an object that is no Tenant.
func (o *capsuleOptions) other(object object) []string {
	state, message := capsule.Refused, "Tenure has no such kind"
	switch known := capsule.Fields(object.kind) != nil; {
	case object.kind == "CapsuleConfiguration":
		message = "only the CapsuleConfiguration named " + v1beta2.ConfigurationName + " counts"
	case known && o.keep:
		state, message = capsule.Different, "Tenure's layer for Capsule reads it: see docs/reference/capsule.md"
	case known:
		state, message = capsule.Reported, "only Tenure's layer for Capsule reads it: use --keep"
	}
	return []string{object.kind + "/" + object.name, "all", string(state), message}
}

// write adds the manifest of a Tenant of Tenure.
func write(out *bytes.Buffer, name string, spec *v1alpha1.TenantSpec) error {
	manifest := struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        map[string]string    `json:"metadata"`
		Spec            *v1alpha1.TenantSpec `json:"spec"`
	}{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Tenant"},
		Metadata: map[string]string{"name": name}, Spec: spec,
	}
	content, err := yaml.Marshal(manifest)
	if err != nil {
		return fmt.Errorf("cannot write Tenant %s: %w", name, err)
	}
	out.WriteString("---\n")
	out.Write(content)
	return nil
}

// object names an object of Capsule that is no Tenant.
type object struct{ kind, name string }

func compareObjects(a, b object) int {
	return cmp.Or(strings.Compare(a.kind, b.kind), strings.Compare(a.name, b.name))
}
