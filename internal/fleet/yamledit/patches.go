package yamledit

import (
	"fmt"
	"regexp"
)

// ReplaceInPatches replaces a value in the patches of a kustomization file that contain the
// name of the field and the value. It reports whether there were any. It returns the errors of
// [Parse], and [ErrUneditable] if the style of a patch cannot be edited.
func ReplaceInPatches(text, field, from, to string) (string, bool, error) {
	s, err := Parse(text)
	if err != nil {
		return "", false, err
	}
	patches, err := top(s, "patches")
	if err != nil || patches == nil {
		return text, false, err
	}
	value := regexp.MustCompile(`\b` + regexp.QuoteMeta(from) + `\b`)
	found := false
	for i := range patches.Content {
		entry := At(s.Docs[0], "patches", i)
		if patch := Str(entry, "patch"); !regexp.MustCompile(`\b`+regexp.QuoteMeta(field)+`\b`).MatchString(patch) || !value.MatchString(patch) {
			continue
		}
		found = true
		if err := s.ReplaceIn(0, value, to, "patches", i, "patch"); err != nil {
			return "", false, fmt.Errorf("cannot edit patch %d: %w", i+1, err)
		}
	}
	return s.Text, found, nil
}
