package lockdown

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The bounds of a TenancyProfile that sets none: see v1alpha1.Bounds.
const (
	leastInterval   = 30 * time.Second
	longestTimeout  = 15 * time.Minute
	releasesTimeout = 5 * time.Minute // of a HelmRelease that sets none
)

// boundsNote names the fields of Flux objects in tenants' namespaces that the rule tenure-bounds refuses, or
// returns "" if there are none. The Kustomization of the platform that applies such an object fails as a whole. A
// Tenant with bounds of its own is left out.
func (s *survey) boundsNote() string {
	least, longest := leastInterval, longestTimeout
	own := map[string]bool{}
	for _, o := range s.objects {
		switch {
		case o.GetKind() == "TenancyProfile":
			least = cmp.Or(o.duration("spec", "tenants", "bounds", "minInterval"), least)
			longest = cmp.Or(o.duration("spec", "tenants", "bounds", "maxTimeout"), longest)
		case o.GetKind() == "Tenant" && o.has("spec", "policy", "bounds"):
			own[o.GetName()] = true
		}
	}
	var refused []string
	for _, o := range s.objects {
		if tenant := s.tenants[o.GetNamespace()]; tenant == "" || own[tenant] || !strings.Contains(o.GetAPIVersion(), ".toolkit.fluxcd.io/") {
			continue
		}
		for _, field := range []string{"interval", "retryInterval", "chart.spec.interval", "install.strategy.retryInterval", "upgrade.strategy.retryInterval"} {
			if d := o.duration(append([]string{"spec"}, strings.Split(field, ".")...)...); d > 0 && d < least {
				refused = append(refused, fmt.Sprintf("%s (spec.%s is %s, at least %s)", o, field, d, least))
			}
		}
		for _, field := range []string{"timeout", "install.timeout", "upgrade.timeout", "test.timeout", "rollback.timeout", "uninstall.timeout"} {
			if d := o.duration(append([]string{"spec"}, strings.Split(field, ".")...)...); d > longest {
				refused = append(refused, fmt.Sprintf("%s (spec.%s is %s, at most %s)", o, field, d, longest))
			}
		}
		wait, _, _ := unstructured.NestedBool(o.Object, "spec", "wait")
		switch waits := wait || o.has("spec", "healthChecks") || o.text("spec", "deletionPolicy") == "WaitForTermination"; {
		case o.has("spec", "timeout"):
		case o.isFlux("Kustomization") && waits && o.duration("spec", "interval") > longest, o.isFlux("HelmRelease") && releasesTimeout > longest:
			refused = append(refused, fmt.Sprintf("%s (it needs spec.timeout, at most %s)", o, longest))
		}
	}
	if len(refused) == 0 {
		return ""
	}
	return "the rule tenure-bounds refuses these objects, and a Kustomization that applies them fails: change them, or spec.tenants.bounds of the TenancyProfile: " + strings.Join(refused, ", ")
}

// duration returns the duration in a field, or 0 if there is none.
func (o object) duration(fields ...string) time.Duration {
	d, err := time.ParseDuration(o.text(fields...))
	if err != nil {
		return 0
	}
	return d
}
