package tenantrepo

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// teamFiles returns the files with the syncs of teams, sorted. It returns none if it cannot read the fleet:
// the error of the layout is reported in any case.
func teamFiles(fleet fs.FS) []string {
	var files []string
	err := eachFile(fleet, ".", func(name string, content []byte) error {
		if bytes.Contains(content, []byte(fluxGroup)) && slices.ContainsFunc(documents(content), func(doc []byte) bool { return isTeamSync(name, doc) }) {
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		return nil
	}
	slices.Sort(files)
	return files
}

// layoutAdvice returns what to do in a fleet whose environments were not found. It returns "" if
// the error of the layout says it.
func layoutAdvice(fleet fs.FS, tenant Tenant) string {
	switch dir := baseParent(teamFiles(fleet)); path.Base(dir) {
	case ".":
		return teamFileAdvice(fleet, tenant)
	case tenantsWord:
		return ""
	default:
		return fmt.Sprintf("no Flux Kustomization with the name or the folder %s applies an environment's tenants, and the teams' objects are in %s: add --tenants %s", tenantsWord, path.Join(dir, baseFolder), dir)
	}
}

// baseParent returns the folder that holds base and the environments, as teams for the file
// teams/base/red/sync.yaml. It returns "" if the first file is in no such folder.
func baseParent(files []string) string {
	if len(files) == 0 {
		return ""
	}
	base := path.Dir(path.Dir(files[0]))
	if path.Base(base) != baseFolder || path.Dir(base) == "." {
		return ""
	}
	return path.Dir(base)
}

// teamFileAdvice returns how to add a tenant to a fleet that keeps the objects of each team in a file or
// folder of its own, as one repository for all teams does. It returns "" if there is no such file, and
// for files in a base folder, which the environments include.
func teamFileAdvice(fleet fs.FS, tenant Tenant) string {
	files := teamFiles(fleet)
	if len(files) == 0 || baseParent(files) != "" {
		return ""
	}
	like := files[0]
	dir, other := path.Dir(like), path.Join(path.Dir(like), tenant.Name+".yaml")
	if slices.ContainsFunc(files, func(name string) bool { return path.Dir(name) != dir && path.Dir(path.Dir(name)) == path.Dir(dir) }) {
		// Each team has a folder.
		other = path.Join(path.Dir(dir), tenant.Name, path.Base(like))
	}
	advice := fmt.Sprintf("this command writes bases and environments, and in this fleet each team has its objects in a file such as %s: copy it to %s and replace the team's name, or write the manifests there with --export > %s", like, other, other)
	if tenant.Object {
		advice = fmt.Sprintf("this command writes bases and environments, and in this fleet each team has its objects in a file such as %s: write a Tenant into %s, such as {apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: %s}, spec: {}}, and see `kubectl explain tenants.spec`; or copy %s and replace the team's name", like, other, tenant.Name, like)
	}
	for folder := path.Dir(other); folder != "."; folder = path.Dir(folder) {
		if _, err := fs.Stat(fleet, path.Join(folder, kustomizationFile)); err == nil {
			return advice + ", and add it to the resources in " + path.Join(folder, kustomizationFile)
		}
	}
	return advice
}

// isTeamSync reports whether a document of a file is a Kustomization of Flux that applies to a namespace
// other than the platform's. The root, which applies its own file, is none, and neither is a Kustomization that
// delivers the platform's own repository with the rights of the controller.
func isTeamSync(file string, doc []byte) bool {
	var k struct {
		APIVersion, Kind string
		Metadata         struct{ Namespace string }
		Spec             struct {
			Path, TargetNamespace, ServiceAccountName string
			SourceRef                                 struct{ Name, Namespace string }
		}
	}
	if yaml.Unmarshal(doc, &k) != nil || k.Kind != "Kustomization" || !strings.HasPrefix(k.APIVersion, fluxGroup) {
		return false
	}
	if folder := path.Clean(strings.TrimPrefix(k.Spec.Path, "/")); folder != "." && strings.HasPrefix(file, folder+"/") {
		return false
	}
	if k.Spec.ServiceAccountName == "" && k.Spec.SourceRef.Name == systemNamespace && cmp.Or(k.Spec.SourceRef.Namespace, k.Metadata.Namespace) == systemNamespace {
		return false
	}
	return slices.ContainsFunc([]string{k.Metadata.Namespace, k.Spec.TargetNamespace}, func(ns string) bool { return ns != "" && ns != systemNamespace })
}
