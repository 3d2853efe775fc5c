package lockdown

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/tenure-dev/tenure/api/v1alpha1"
)

// fluxNamespace is the default namespace of Flux.
const fluxNamespace = "flux-system"

// fluxControllers are the names of Flux's controllers, of their accounts and of the label app of their Pods.
var fluxControllers = []string{
	"source-controller", "kustomize-controller", "helm-controller", "notification-controller",
	"image-reflector-controller", "image-automation-controller", "source-watcher",
}

// platformAccounts are the names of the accounts of Flux's controllers and of the
// manager. They match the default in the schema of a TenancyProfile for [fluxNamespace].
var platformAccounts = append(slices.Clone(fluxControllers), managerName)

// posture returns the TenancyProfile for a fleet. It allows the addresses and accounts that
// the tenants use now, and the additional ones in allow.
func (s *survey) posture(namespace string, allow []string) (string, error) {
	var sources v1alpha1.Sources
	var accounts []string
	usesFlagger := false
	for _, o := range s.objects {
		tenant := s.tenants[o.GetNamespace()]
		usesFlagger = usesFlagger || tenant != "" && strings.HasPrefix(o.GetAPIVersion(), "flagger.app/")
		if tenant == "" || !strings.Contains(o.GetAPIVersion(), ".toolkit.fluxcd.io/") {
			continue
		}
		if account := o.text("spec", "serviceAccountName"); account != "" && account != tenant && (o.isFlux("Kustomization") || o.isFlux("HelmRelease")) {
			accounts = append(accounts, account)
		}
		switch kind, pattern := o.address(); kind {
		case "git":
			sources.Git = append(sources.Git, pattern)
		case "helm":
			sources.Helm = append(sources.Helm, pattern)
		case "oci":
			sources.OCI = append(sources.OCI, pattern)
		}
		if o.isFlux("Bucket") {
			sources.Buckets = append(sources.Buckets, v1alpha1.BucketPattern{Endpoint: o.text("spec", "endpoint"), BucketName: o.text("spec", "bucketName"), Region: o.text("spec", "region")})
		}
		if provider := o.text("spec", "provider"); provider != "" && provider != "generic" && isSource(o.GetKind()) {
			sources.Providers = append(sources.Providers, provider)
		}
	}
	for _, a := range allow {
		kind, pattern, err := parseAllow(a)
		if err != nil {
			return "", err
		}
		list := map[string]*[]v1alpha1.AddressPattern{"git": &sources.Git, "helm": &sources.Helm, "oci": &sources.OCI}[kind]
		*list = append(*list, v1alpha1.AddressPattern(pattern))
	}
	spec := map[string]any{"platformNamespaces": []string{namespace}}
	if namespace != fluxNamespace {
		// The default lists the accounts of Flux's usual namespace.
		var platform []string
		for _, account := range platformAccounts {
			platform = append(platform, namespace+"/"+account)
		}
		spec["platformAccounts"] = platform
	}
	if delegated := s.delegatedSyncs(namespace); len(delegated) > 0 {
		spec["delegatedSyncs"] = delegated
	}
	tenants, from := map[string]any{}, map[string]any{}
	add(from, "git", sources.Git)
	add(from, "helm", sources.Helm)
	add(from, "oci", sources.OCI)
	if len(sources.Providers) > 0 {
		add(from, "providers", append(sources.Providers, "generic"))
	}
	if len(sources.Buckets) > 0 {
		from["buckets"] = sources.Buckets
	}
	if len(from) > 0 {
		tenants["sources"] = from
	}
	if len(accounts) > 0 {
		reconcilers := map[string]any{}
		add(reconcilers, "reconcilers", accounts)
		tenants["accounts"] = reconcilers
	}
	if usesFlagger {
		tenants["flagger"] = map[string]any{}
	}
	if len(tenants) > 0 {
		spec["tenants"] = tenants
	}
	content, err := yaml.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "TenancyProfile",
		"metadata": map[string]any{
			"name":        v1alpha1.ProfileName,
			"annotations": map[string]any{"kustomize.toolkit.fluxcd.io/prune": "disabled"},
		}, "spec": spec,
	})
	if err != nil {
		return "", fmt.Errorf("cannot write the TenancyProfile: %w", err)
	}
	return "# The TenancyProfile: what tenants may do. It began with the addresses that the tenants of\n# this fleet used. You can edit this file: `tenure profile multi-tenant --allow` only adds\n# addresses to it.\n" + string(content), nil
}

// address returns the kind of --allow and the pattern that approve the address of a source, and "" for other objects
// and Buckets.
func (o object) address() (kind string, pattern v1alpha1.AddressPattern) {
	url := v1alpha1.AddressPattern(o.text("spec", "url"))
	switch {
	case o.isFlux("GitRepository"):
		return "git", url
	case o.isFlux("HelmRepository"):
		return "helm", helmHost(url)
	case o.isFlux("OCIRepository"):
		return "oci", url
	case o.isFlux("ImageRepository"):
		return "oci", v1alpha1.AddressPattern("oci://" + o.text("spec", "image"))
	}
	return "", ""
}

// helmHost returns the host of a Helm repository's address: an index may lead to any
// address, so the profile approves whole hosts. An OCI registry has no index.
func helmHost(url v1alpha1.AddressPattern) v1alpha1.AddressPattern {
	parts := strings.SplitN(string(url), "/", 4)
	if len(parts) < 3 || parts[0] == "oci:" {
		return url
	}
	return v1alpha1.AddressPattern(strings.Join(parts[:3], "/"))
}

func isSource(kind string) bool {
	return slices.Contains([]string{"GitRepository", "HelmRepository", "OCIRepository", "Bucket", "ImageRepository"}, kind)
}

// add sets a key of a map to the strings without duplicates; it does nothing without strings.
func add[T ~string](m map[string]any, key string, values []T) {
	if len(values) == 0 {
		return
	}
	values = slices.Clone(values)
	slices.Sort(values)
	m[key] = slices.Compact(values)
}
