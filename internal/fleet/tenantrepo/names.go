package tenantrepo

import (
	"io/fs"
	"maps"
	"slices"
)

// Names returns the tenants of a fleet, sorted: the values of the label of tenants on its objects, and the names of
// its Tenants. It returns an error if a file cannot be read.
func Names(fleet fs.FS) ([]string, error) {
	names := map[string]bool{}
	err := eachFile(fleet, ".", func(_ string, content []byte) error {
		for _, m := range readMetadata(content) {
			if name := m.Metadata.Labels[TenantLabel]; name != "" {
				names[name] = true
			}
			if m.isTenant() {
				names[m.Metadata.Name] = true
			}
		}
		return nil
	})
	return slices.Sorted(maps.Keys(names)), err
}
