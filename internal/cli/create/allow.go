package create

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/fleet/tenantrepo"
	"github.com/tenure-dev/tenure/internal/fleet/workspace"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/ui"
	"k8s.io/apimachinery/pkg/runtime"
)

// allowed returns an error if the fleet's TenancyProfiles do not allow the tenant's
// repository, or adds the address to them and returns a note about it. The API server
// would deny the source, and Flux would then apply none of the tenant's objects.
func (t *tenantOptions) allowed(s *workspace.Set) (note string, err error) {
	files, err := profilesWithout(s.FS(), t.tenant.URL)
	if err != nil || len(files) == 0 {
		return "", err
	}
	where := strings.Join(files, " and ")
	if !t.allow {
		return "", ui.WithHint(
			fmt.Errorf("tenants may not fetch from %s: the TenancyProfile in %s does not allow the address, so the API server would refuse the tenant's source", t.tenant.URL, where),
			"add the address with --allow, or a pattern with `tenure profile multi-tenant --allow git=…`")
	}
	for _, name := range files {
		content, err := s.Read(name)
		if err != nil {
			return "", fmt.Errorf("cannot read the fleet: %w", err)
		}
		text, err := lockdown.Allow(string(content), []string{"git=" + t.tenant.URL})
		if err != nil {
			return "", fmt.Errorf("cannot change %s: %w", name, err)
		}
		if err := s.Write(name, []byte(text)); err != nil {
			return "", fmt.Errorf("cannot change %s: %w", name, err)
		}
	}
	return fmt.Sprintf("all tenants may fetch from %s now: see %s", t.tenant.URL, where), nil
}

// profilesWithout returns the files whose TenancyProfile does not allow an address. It returns
// none for a fleet without a TenancyProfile: such a fleet does not restrict addresses, or has
// the profile elsewhere.
func profilesWithout(fleet fs.FS, address string) ([]string, error) {
	var files []string
	err := readProfiles(fleet, func(name string, p *v1alpha1.TenancyProfile) {
		if !tenancy.MatchesAddress(p.Spec.Tenants.Sources.Git, address) {
			files = append(files, name)
		}
	})
	return files, err
}

// readProfile sets what the fleet's TenancyProfiles say about a new tenant: whether it is a Tenant
// object, which the manager reads, and the mode in which Git repositories have to be signed. The
// API server would deny a source without it.
func (t *tenantOptions) readProfile(fleet fs.FS, tenant *tenantrepo.Tenant) error {
	return readProfiles(fleet, func(_ string, p *v1alpha1.TenancyProfile) {
		tenant.Object = !t.plain
		if git := p.Spec.Tenants.Signatures.Git; git != nil {
			tenant.VerifyMode = cmp.Or(git.Mode, "HEAD")
		}
	})
}

// readProfiles calls found for each TenancyProfile of a fleet, with the name of its file.
func readProfiles(fleet fs.FS, found func(name string, p *v1alpha1.TenancyProfile)) error {
	err := fs.WalkDir(fleet, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		case !entry.Type().IsRegular() || path.Ext(name) != ".yaml" && path.Ext(name) != ".yml":
			return nil
		}
		content, err := fs.ReadFile(fleet, name)
		if err != nil || !bytes.Contains(content, []byte("\nkind: TenancyProfile\n")) {
			return err
		}
		objects, err := flux.ReadObjects(content)
		if err != nil {
			return nil //nolint:nilerr // a template of something else: whoever builds the fleet says what is wrong
		}
		for _, o := range objects {
			p := v1alpha1.TenancyProfile{}
			if o.GetKind() != "TenancyProfile" || runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &p) != nil {
				continue
			}
			found(name, &p)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot read the fleet: %w", err)
	}
	return nil
}
