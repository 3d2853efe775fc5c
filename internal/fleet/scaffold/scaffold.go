// Package scaffold writes the initial folders of a platform and its tenants, in the layouts of the guide of flux2-multi-tenancy. It keeps existing files, so
// another run changes nothing except that it adds new clusters.
//
//	clusters/CLUSTER/flux-system/           Flux, and the root
//	clusters/CLUSTER/tenants.yaml           applies tenants/CLUSTER
//	infrastructure/tenure/                  the rules: see internal/fleet/lockdown
//	tenants/base/                           a folder for each tenant
//	tenants/CLUSTER/kustomization.yaml      the tenants of a cluster, each of them
//	                                        with a Kustomization of its own
//
//	base/                                   of a tenant: HelmRepository, HelmRelease
//	staging/, production/                   which versions each of them follows
package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
	"text/template"

	"filippo.io/age"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/fleet/tenantrepo"
	"github.com/tenure-dev/tenure/internal/fleet/workspace"
)

//go:embed files
var files embed.FS

// Fleet describes a new fleet.
type Fleet struct {
	// URL and Branch are the platform's repository.
	URL, Branch string
	// Clusters are names, such as staging; at least one. Each is a DNS label and the name of an
	// environment of tenants.
	Clusters []string
	// AgeRecipient is the age recipient of the tenants' encrypted credentials, or "".
	AgeRecipient string
	// Profile are the options of the lockdown.
	Profile lockdown.Options
}

// Write plans the files of the fleet, and returns further facts or tasks for the user. It returns an error if an option is not valid, if a file cannot be planned, or if the lockdown fails.
func (f Fleet) Write(s *workspace.Set) (notes []string, err error) {
	if err := f.validate(); err != nil {
		return nil, err
	}
	p := planner{Set: s}
	for _, cluster := range f.Clusters {
		data := map[string]any{"URL": f.URL, "Branch": f.Branch, "Cluster": cluster, "Secret": strings.HasPrefix(f.URL, "ssh://")}
		system := "clusters/" + cluster + "/flux-system/"
		p.content(system+"gotk-components.yaml", config.FluxComponents())
		p.file(system+"gotk-sync.yaml", "cluster/gotk-sync.yaml", data)
		p.file(system+"kustomization.yaml", "cluster/kustomization.yaml", data)
		p.file("clusters/"+cluster+"/tenants.yaml", "cluster/tenants.yaml", data)
		p.file("tenants/"+cluster+"/kustomization.yaml", "cluster/overlay.yaml", data)
	}
	if f.AgeRecipient != "" {
		p.file(".sops.yaml", "cluster/sops.yaml", map[string]any{"Age": f.AgeRecipient})
	}
	if p.err != nil {
		return nil, fmt.Errorf("cannot make the fleet: %w", p.err)
	}
	if strings.HasPrefix(f.URL, "ssh://") {
		notes = append(notes, "Flux reads this repository with the Secret flux-system/flux-system, which must not be in a repository: create it in each cluster with `tenure create secret git flux-system --url "+f.URL+"`")
	}
	more, err := f.lockDown(s)
	return append(notes, more...), err
}

func (f Fleet) validate() error {
	if _, err := tenantrepo.ParseURL(f.URL); err != nil {
		return err
	}
	if err := tenantrepo.CheckBranch(f.Branch); err != nil {
		return err
	}
	if len(f.Clusters) == 0 {
		return errors.New("no cluster is named: name one with --cluster staging")
	}
	for _, cluster := range f.Clusters {
		if err := tenantrepo.CheckName("cluster's name", cluster); err != nil {
			return err
		}
		if cluster == "base" {
			return fmt.Errorf("the cluster's name %q %w: tenants/base is the folder of the tenants themselves", cluster, tenantrepo.ErrInvalid)
		}
	}
	if f.AgeRecipient != "" {
		if _, err := age.ParseX25519Recipient(f.AgeRecipient); err != nil {
			return fmt.Errorf("the age recipient %w: give the public key, which begins with age1", tenantrepo.ErrInvalid)
		}
	}
	return nil
}

// lockDown adds the files of `tenure profile` to the planned files, unless the fleet is for a single tenant.
// The notes name existing clusters that read another repository.
func (f Fleet) lockDown(s *workspace.Set) (notes []string, err error) {
	dir, err := os.MkdirTemp("", "tenure-scaffold-")
	if err != nil {
		return nil, fmt.Errorf("cannot lock the fleet down: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := s.CopyTo(dir); err != nil {
		return nil, fmt.Errorf("cannot lock the fleet down: %w", err)
	}
	for _, cluster := range f.Clusters {
		loaded, err := layout.Load(dir, "clusters/"+cluster, layout.Options{URL: f.URL, Branch: f.Branch, Components: config.FluxComponents()})
		if err != nil {
			return nil, err
		}
		if note := f.otherSource(loaded); note != "" {
			notes = append(notes, note)
		}
		if !f.Profile.Tenants {
			continue
		}
		plan, err := lockdown.Make(loaded, f.Profile)
		if err != nil {
			return nil, err
		}
		for _, c := range plan.Changes {
			if err := write(s, c); err != nil {
				return nil, fmt.Errorf("cannot lock the fleet down: %w", err)
			}
		}
		if err := plan.Write(dir); err != nil {
			return nil, err
		}
		for _, n := range plan.Notes {
			if !slices.Contains(notes, n) {
				notes = append(notes, n)
			}
		}
	}
	return notes, nil
}

// otherSource returns a note for a cluster that reads another repository or branch than the flags name, since the
// command keeps existing files, or "".
func (f Fleet) otherSource(cluster *layout.Fleet) string {
	sync := cluster.Sync
	switch source := fmt.Sprintf("%s %s/%s", sync.Kind, sync.Namespace, sync.Source); {
	case sync.URL != f.URL:
		return fmt.Sprintf("%s reads %s, not %s, and this command keeps that: to change it, edit spec.url of the %s there", cluster.Path, sync.URL, f.URL, source)
	case sync.Branch != f.Branch:
		return fmt.Sprintf("%s reads the branch %s, not %s, and this command keeps that: to change it, edit spec.ref of the %s there", cluster.Path, sync.Branch, f.Branch, source)
	}
	return ""
}

func write(s *workspace.Set, c lockdown.Change) error {
	if c.After == nil {
		return s.Remove(c.Path)
	}
	return s.Write(c.Path, []byte(*c.After))
}

// Repository describes the initial content of a tenant's repository: one release of one chart.
type Repository struct {
	// Namespace is the namespace of the release, and Account the account that applies it.
	Namespace, Account string
	// Chart is the name of the chart, and of the release; a DNS label.
	Chart string
	// URL is the address of the chart's repository.
	URL string
}

// Write plans the files of the repository. It returns an error if a name is not valid, if the address of the charts is not valid ([tenantrepo.ErrInvalid]), or if a file cannot be planned.
func (r Repository) Write(s *workspace.Set) error {
	for _, name := range [][3]string{{"namespace", r.Namespace, "--namespace"}, {"service account name", r.Account, "--service-account"}, {"chart's name", r.Chart, "--chart"}} {
		if name[1] == "" {
			return fmt.Errorf("the %s is missing: give it with %s", name[0], name[2])
		}
		if err := tenantrepo.CheckName(name[0], name[1]); err != nil {
			return err
		}
	}
	// The error leaves out the address, which may contain a password.
	if u, err := url.Parse(r.URL); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || strings.ContainsAny(r.URL, " #\n") {
		return fmt.Errorf("the address of the charts %w: it has to begin with https:// and hold no credentials (--helm-url)", tenantrepo.ErrInvalid)
	}
	p := planner{Set: s}
	p.file("base/kustomization.yaml", "repository/base.yaml", r)
	p.file("base/"+r.Chart+"-repository.yaml", "repository/repository.yaml", r)
	p.file("base/"+r.Chart+"-release.yaml", "repository/release.yaml", r)
	for _, environment := range []string{"staging", "production"} {
		p.file(environment+"/kustomization.yaml", "repository/overlay.yaml", r)
		p.file(environment+"/"+r.Chart+"-values.yaml", "repository/"+environment+".yaml", r)
	}
	if p.err != nil {
		return fmt.Errorf("cannot make the repository: %w", p.err)
	}
	return nil
}

// planner plans files that are not there, up to the first error.
type planner struct {
	*workspace.Set
	err error
}

func (p *planner) file(name, from string, data any) {
	if p.err != nil {
		return
	}
	t, err := template.ParseFS(files, "files/"+from)
	var out bytes.Buffer
	if err == nil {
		err = t.Execute(&out, data)
	}
	if err != nil {
		p.err = fmt.Errorf("cannot write %s: %w", name, err)
		return
	}
	p.content(name, out.Bytes())
}

func (p *planner) content(name string, content []byte) {
	if p.err != nil {
		return
	}
	_, err := p.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = p.Write(name, content)
	}
	p.err = err
}
