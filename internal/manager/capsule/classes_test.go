package capsule

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
)

// TestDefaultListed checks that the status lists a default class among the others, and that a list
// with a default alone allows this class only.
func TestDefaultListed(t *testing.T) {
	t.Parallel()
	list := &v1beta2.DefaultAllowedList{Default: "b"}
	if diff := cmp.Diff([]string{"b"}, selectorList(list).Allowed); diff != "" {
		t.Errorf("a default alone: %s", diff)
	}
	list.Allowed = []string{"a"}
	if diff := cmp.Diff([]string{"a", "b"}, selectorList(list).Allowed); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a"}, list.Allowed); diff != "" {
		t.Errorf("the Tenant changed: %s", diff)
	}
}
