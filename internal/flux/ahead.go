package flux

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// DeclaredAddresses returns the addresses of the sources among objects of manifests, as the option --map of
// the local cluster names them, sorted and without duplicates. A HelmRepository of type oci has those of
// the charts that HelmReleases take from it. Addresses with variables are left out.
func DeclaredAddresses(objects []*unstructured.Unstructured) []string {
	var addresses []string
	for _, u := range objects {
		if !slices.Contains(SourceKinds(), Kind(u.GetKind())) {
			continue
		}
		url := addressOf(u)
		if Kind(u.GetKind()) != HelmRepository || !strings.HasPrefix(url, "oci://") {
			addresses = append(addresses, url)
			continue
		}
		for _, release := range objects {
			ref, _, _ := unstructured.NestedStringMap(release.Object, "spec", "chart", "spec", "sourceRef")
			chart, _, _ := unstructured.NestedString(release.Object, "spec", "chart", "spec", "chart")
			if ref["kind"] == string(HelmRepository) && ref["name"] == u.GetName() {
				addresses = append(addresses, strings.TrimSuffix(url, "/")+"/"+chart)
			}
		}
	}
	addresses = slices.DeleteFunc(addresses, func(address string) bool { return address == "" || strings.Contains(address, "$") })
	slices.Sort(addresses)
	return slices.Compact(addresses)
}
