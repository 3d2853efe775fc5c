// Package baseline reads the file in which a platform team accepts risks: attacks that
// may get through, or may stay unproven. Each entry names the tenants, the reason, the
// person who accepts the risk, and the expiry date.
package baseline

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// Kind is the outcome that an entry accepts.
type Kind string

// The kinds, as the keys of the file.
const (
	// Through accepts that an attack gets through.
	Through Kind = "accepted"
	// Unproven accepts that an attack is not proven to be stopped. It does not accept
	// that the attack gets through.
	Unproven Kind = "notProven"
)

// Entry is one accepted risk.
type Entry struct {
	// Kind is the outcome that the entry accepts.
	Kind Kind
	// ID names the attack: an ID of the catalogue such as A1, for all its paths, or a key such as A1-api,
	// for one path.
	ID string
	// Tenant is the tenant's name, or [AllTenants].
	Tenant string
	// Reason says why the risk is accepted. It is never empty.
	Reason string
	// By is the name of the person who accepts the risk. It is required in entries for
	// unproven attacks, and optional in others.
	By string
	// Expires is the last day, in UTC, on which the risk is accepted.
	Expires time.Time
}

// AllTenants as the name of the tenant means every tenant.
const AllTenants = "*"

// Baseline is a file of accepted risks, in the file's order.
type Baseline []Entry

// ErrInvalid reports a file that is not a baseline. The message names the line or the entry.
var ErrInvalid = errors.New("the baseline cannot be used")

// example is the hint of errors about the file's form.
const example = "accepted: [{id: A1, tenant: \"*\", reason: why, expires: 2027-01-31}], and for what is not proven notProven: [{id: S5, tenant: \"*\", reason: why, by: who, expires: 2027-01-31}]"

// Parse parses a baseline: a mapping with the keys accepted and notProven, lists of mappings with the keys
// id, tenant, reason, by and expires (YYYY-MM-DD). All are required, except by in the list accepted. An
// empty file accepts nothing. Errors wrap [ErrInvalid].
func Parse(content []byte) (Baseline, error) {
	// The conversion finds keys that are given twice, and names lines.
	converted, err := yaml.YAMLToJSONStrict(content)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrInvalid, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if bytes.Equal(converted, []byte("null")) {
		return nil, nil
	}
	var document map[string]json.RawMessage
	if json.Unmarshal(converted, &document) != nil {
		return nil, fmt.Errorf("%w: it must look like %s", ErrInvalid, example)
	}
	for _, key := range slices.Sorted(maps.Keys(document)) {
		if kind := Kind(key); kind != Through && kind != Unproven {
			return nil, fmt.Errorf("%w: unknown field %q: it must look like %s", ErrInvalid, key, example)
		}
	}
	var b Baseline
	for _, kind := range []Kind{Through, Unproven} {
		entries, err := parseEntries(kind, document[string(kind)])
		if err != nil {
			return nil, err
		}
		b = append(b, entries...)
	}
	return b, nil
}

// parseEntries parses one of the lists, which may be missing.
func parseEntries(kind Kind, list json.RawMessage) (Baseline, error) {
	var written []map[string]any
	if list != nil && json.Unmarshal(list, &written) != nil {
		return nil, fmt.Errorf("%w: %s must be a list of entries: %s", ErrInvalid, kind, example)
	}
	var b Baseline
	seen := map[[2]string]int{}
	for i, fields := range written {
		e, err := newEntry(kind, fields)
		if err != nil {
			return nil, fmt.Errorf("%w: entry %d%s of %s: %w", ErrInvalid, i+1, named(fields), kind, err)
		}
		if first, twice := seen[[2]string{e.ID, e.Tenant}]; twice {
			return nil, fmt.Errorf("%w: entry %d%s of %s: entry %d is for the same attack and tenant", ErrInvalid, i+1, named(fields), kind, first)
		}
		seen[[2]string{e.ID, e.Tenant}] = i + 1
		b = append(b, e)
	}
	return b, nil
}

// named adds the ID to an entry's number, where there is one.
func named(fields map[string]any) string {
	if id, ok := fields["id"].(string); ok && id != "" {
		return fmt.Sprintf(" (%q)", id)
	}
	return ""
}

func newEntry(kind Kind, fields map[string]any) (Entry, error) {
	e := Entry{Kind: kind}
	var expires string
	known := map[string]*string{"id": &e.ID, "tenant": &e.Tenant, "reason": &e.Reason, "by": &e.By, "expires": &expires}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		to, ok := known[key]
		if !ok {
			return Entry{}, fmt.Errorf("unknown field %q; there are id, tenant, reason, by and expires", key)
		}
		text, ok := fields[key].(string)
		if !ok {
			return Entry{}, fmt.Errorf("%s must be text: put it in quotes", key)
		}
		*to = strings.TrimSpace(text)
	}
	for _, key := range []string{"id", "tenant", "reason", "by", "expires"} {
		if *known[key] == "" && (key != "by" || kind == Unproven) {
			return Entry{}, fmt.Errorf("%s is missing", key)
		}
	}
	var err error
	if e.Expires, err = time.Parse(time.DateOnly, expires); err != nil {
		return Entry{}, fmt.Errorf("expires %q is not a day: write it as YYYY-MM-DD, such as 2027-01-31", expires)
	}
	return e, nil
}

// Expired reports whether the entry's last day has ended.
func (e Entry) Expired(now time.Time) bool { return !now.Before(e.Expires.AddDate(0, 0, 1)) }

// Until returns the last day in the form YYYY-MM-DD.
func (e Entry) Until() string { return e.Expires.Format(time.DateOnly) }

// Matches reports whether the entry applies to an attack with this ID and key by a tenant.
func (e Entry) Matches(id, key, tenant string) bool {
	return (e.ID == id || e.ID == key) && (e.Tenant == AllTenants || e.Tenant == tenant)
}

// Find returns the entry of a kind for an attack by a tenant, or nil. If several entries match, it returns
// the entry that expires last, which may have expired, too.
func (b Baseline) Find(kind Kind, id, key, tenant string) *Entry {
	var found []*Entry
	for i := range b {
		if b[i].Kind == kind && b[i].Matches(id, key, tenant) {
			found = append(found, &b[i])
		}
	}
	if len(found) == 0 {
		return nil
	}
	return slices.MaxFunc(found, func(a, b *Entry) int { return cmp.Compare(a.Expires.Unix(), b.Expires.Unix()) })
}
