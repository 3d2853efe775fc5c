package tenantrepo

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
)

// defaults maps fields that a person may have changed to flags. They may differ from the
// generated value unless the flag is set.
var defaults = map[string]string{
	"spec.interval":                       "interval",
	"spec.retryInterval":                  "",
	"spec.timeout":                        "",
	"spec.prune":                          "",
	"spec.deletionPolicy":                 "",
	"spec.path":                           "",
	"roleRef.name":                        "cluster-role",
	"spec.namespaces.podSecurity":         "pod-security",
	"metadata.labels." + podSecurityLabel: "pod-security",
}

// differences returns the fields in which an object contradicts the wanted object. Additional
// fields do not count.
func differences(have, want map[string]any, chosen map[string]bool) []string {
	var found []string
	var walk func(where string, have, want any)
	walk = func(where string, have, want any) {
		// The overlay's patch is all about the path, so there it counts.
		if flag, soft := defaults[where]; soft && !chosen[flag] && !isPatch(where, want) {
			return
		}
		switch want := want.(type) {
		case map[string]any:
			mapping, ok := have.(map[string]any)
			if !ok {
				found = append(found, fmt.Sprintf("%s is missing", where))
				return
			}
			for _, key := range sortedKeys(want) {
				walk(strings.TrimPrefix(where+"."+key, "."), mapping[key], want[key])
			}
		case []any:
			entries, _ := have.([]any)
			for _, w := range want {
				if !slices.ContainsFunc(entries, func(h any) bool { return includes(h, w) }) {
					found = append(found, fmt.Sprintf("%s lacks %s", where, inline(w)))
				}
			}
		default:
			if have == nil {
				found = append(found, fmt.Sprintf("%s is missing, not %v", where, want))
				return
			}
			if !reflect.DeepEqual(have, want) {
				found = append(found, fmt.Sprintf("%s is %v, not %v", where, have, want))
			}
		}
	}
	walk("", have, want)
	return found
}

// inline returns an entry of a list as YAML on one line.
func inline(entry any) string {
	if fields, ok := entry.(map[string]any); ok {
		return yamledit.Flow(fields)
	}
	return fmt.Sprint(entry)
}

// isPatch reports whether a path is set by an environment and not by the base.
func isPatch(where string, want any) bool { return where == "spec.path" && want != "./" }

// includes reports whether an entry of a list is the wanted one. It ignores apiGroup, since
// older versions of `flux create tenant` omitted it.
func includes(have, want any) bool {
	h, ok := have.(map[string]any)
	w, isMap := want.(map[string]any)
	if !ok || !isMap {
		return reflect.DeepEqual(have, want)
	}
	for key, value := range w {
		if key != "apiGroup" && !reflect.DeepEqual(h[key], value) {
			return false
		}
	}
	return true
}
