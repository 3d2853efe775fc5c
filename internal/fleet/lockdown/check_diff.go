package lockdown

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// kindCRD is the kind in which empty fields have a meaning: `subresources: {status: {}}`.
const kindCRD = "CustomResourceDefinition"

// differences lists the fields of a cluster's object that differ from the object that
// this version installs, each with both values. It ignores labels and annotations that we
// do not set, except the labels for the aggregation of roles.
func differences(want, is *unstructured.Unstructured) []string {
	want, is = want.DeepCopy(), is.DeepCopy()
	setDefaults(want)
	dropManaged(want, is)
	d := differ{emptyMatters: want.GetKind() == kindCRD}
	keys := maps.Clone(want.Object)
	maps.Copy(keys, is.Object)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		switch key {
		case "apiVersion", "kind", "metadata", "status":
		default:
			d.compare(key, want.Object[key], is.Object[key])
		}
	}
	d.metadata("labels", want.GetLabels(), is.GetLabels())
	d.metadata("annotations", want.GetAnnotations(), is.GetAnnotations())
	return d.found
}

// differ collects differences.
type differ struct {
	emptyMatters bool
	found        []string
}

func (d *differ) metadata(field string, want, is map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		d.compare("metadata."+field+"["+key+"]", want[key], orNil(is, key))
	}
	for _, key := range slices.Sorted(maps.Keys(is)) {
		if _, ours := want[key]; !ours && strings.HasPrefix(key, "rbac.") {
			d.compare("metadata."+field+"["+key+"]", nil, is[key])
		}
	}
}

func orNil(values map[string]string, key string) any {
	if value, ok := values[key]; ok {
		return value
	}
	return nil
}

// compare adds the differences of a field.
func (d *differ) compare(field string, want, is any) {
	if d.absent(want) && d.absent(is) || text(want) == text(is) {
		return
	}
	wantMap, isMap := asMap(want), asMap(is)
	wantList, isList := asList(want), asList(is)
	switch {
	case wantMap != nil && isMap != nil:
		keys := maps.Clone(wantMap)
		maps.Copy(keys, isMap)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			d.compare(field+"."+key, wantMap[key], isMap[key])
		}
	case wantList != nil && isList != nil:
		d.compareLists(field, wantList, isList)
	case d.absent(is):
		d.add("%s is missing, and should be %s", field, excerpt(want, nil))
	case d.absent(want):
		d.add("%s is %s, and should not be there", field, excerpt(is, nil))
	default:
		d.add("%s is %s, and should be %s", field, excerpt(is, want), excerpt(want, is))
	}
}

// compareLists compares the elements of lists by name if they have names, by index if the
// lists have the same length, and otherwise as sets.
func (d *differ) compareLists(field string, want, is []any) {
	wantNames, isNames := byName(want), byName(is)
	if wantNames != nil && isNames != nil {
		names := maps.Clone(wantNames)
		maps.Copy(names, isNames)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			d.compare(field+"["+name+"]", wantNames[name], isNames[name])
		}
		return
	}
	if len(want) == len(is) && asMap(want[0]) != nil {
		for i := range want {
			d.compare(field+"["+strconv.Itoa(i)+"]", want[i], is[i])
		}
		return
	}
	for _, element := range minus(want, is) {
		d.add("%s lacks %s", field, excerpt(element, nil))
	}
	for _, element := range minus(is, want) {
		d.add("%s has %s, which should not be there", field, excerpt(element, nil))
	}
}

func (d *differ) add(format string, args ...any) {
	d.found = append(d.found, fmt.Sprintf(format, args...))
}

// absent reports whether a field has no value: the API server leaves out most empty
// fields.
func (d *differ) absent(v any) bool {
	if v == nil {
		return true
	}
	if d.emptyMatters {
		return false
	}
	return v == "" || len(asMap(v)) == 0 && asMap(v) != nil || len(asList(v)) == 0 && asList(v) != nil
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func asList(v any) []any {
	l, _ := v.([]any)
	return l
}

// byName returns the elements of a list by their field name, or nil if an element has no
// name or two have the same.
func byName(list []any) map[string]any {
	named := map[string]any{}
	for _, element := range list {
		name, ok := asMap(element)["name"].(string)
		if _, twice := named[name]; !ok || twice {
			return nil
		}
		named[name] = element
	}
	return named
}

// minus returns the elements of a list that are not in another one. It counts duplicates.
func minus(list, other []any) []any {
	left := map[string]int{}
	for _, element := range other {
		left[text(element)]++
	}
	var more []any
	for _, element := range list {
		if left[text(element)]--; left[text(element)] < 0 {
			more = append(more, element)
		}
	}
	return more
}

// text returns a value as JSON, whose maps are sorted.
func text(v any) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// maxExcerpt is the maximum length of a value in a message, in characters: some
// expressions have hundreds.
const maxExcerpt = 100

// excerpt returns a value for a message: of a long value, the part that differs from the
// other value.
func excerpt(v, other any) string {
	shown := []rune(written(v))
	if len(shown) <= maxExcerpt {
		return string(shown)
	}
	from, before := 0, ""
	if other != nil {
		const lead = 20
		compared := []rune(written(other))
		for from < len(shown) && from < len(compared) && shown[from] == compared[from] {
			from++
		}
		if from = min(max(from-lead, 0), len(shown)-maxExcerpt); from > 0 {
			before = "…"
		}
	}
	to := min(from+maxExcerpt, len(shown))
	after := ""
	if to < len(shown) {
		after = "…"
	}
	return before + string(shown[from:to]) + after
}

// written formats a value for messages: text in backquotes, so that quotes need no escapes.
func written(v any) string {
	if s, ok := v.(string); ok && utf8.ValidString(s) {
		return "`" + strings.Join(strings.Fields(s), " ") + "`"
	}
	return text(v)
}
