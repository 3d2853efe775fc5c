package proxy

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
)

// TestHistory checks that a client that continues from before a change has missed the
// change. A change that arrives while a watch is open is not missed, except within a second
// of the beginning of the watch, which may have begun with the old rights.
func TestHistory(t *testing.T) {
	t.Parallel()
	heard := time.Now()
	for _, tc := range []struct {
		reason  string
		from    uint64
		began   time.Duration // after the arrival of the change
		byName  bool
		missed  bool
		ofSpace bool
	}{
		{reason: "from before it", from: 99, began: time.Minute, missed: true},
		{reason: "from after it", from: 101, began: time.Minute},
		{reason: "from after it, but right after", from: 101, began: lag / 2, missed: true},
		{reason: "right before it was heard of", from: 101, began: -lag / 2, missed: true},
		{reason: "open for long when it came", from: 99, began: -time.Minute},
		{reason: "a namespace, to who sees them by label", from: 99, began: time.Minute, ofSpace: true},
		{reason: "a namespace, to who sees more by it", from: 99, began: time.Minute, ofSpace: true, byName: true, missed: true},
		{reason: "before the proxy began", from: 9, began: -time.Minute, missed: true},
	} {
		h := newHistory()
		h.begin(10)
		h.note(100, []string{"user ann"}, tc.ofSpace)
		for _, marks := range []map[string]historyMark{h.rights, h.spaces} {
			for key, m := range marks {
				m.heard = heard
				marks[key] = m
			}
		}
		if got := h.since(&user.DefaultInfo{Name: "ann"}, nil, tc.from, heard.Add(tc.began), tc.byName); got != tc.missed {
			t.Errorf("%s: missed is %v, want %v", tc.reason, got, tc.missed)
		}
		if tc.from > 10 && h.since(&user.DefaultInfo{Name: "ben"}, nil, tc.from, heard.Add(tc.began), tc.byName) {
			t.Errorf("%s: somebody else is said to have missed it", tc.reason)
		}
	}
}

// TestHistoryOutOfOrder checks that changes may arrive out of order from two informers: a
// client that continues from between two changes has missed the newer change, although the
// older change arrived last.
func TestHistoryOutOfOrder(t *testing.T) {
	t.Parallel()
	ann := &user.DefaultInfo{Name: "ann"}
	for _, tc := range []struct {
		reason string
		note   func(h *history, version uint64)
	}{
		{"a right", func(h *history, version uint64) { h.note(version, []string{userKey("ann")}, false) }},
		{"a namespace", func(h *history, version uint64) { h.note(version, []string{userKey("ann")}, true) }},
		{"what a tenant says", func(h *history, version uint64) { h.noteNamed(version, "a", []string{userKey("ann")}, false) }},
		{"what two tenants say", func(h *history, version uint64) {
			h.noteNamed(version, fmt.Sprint("tenant-", version), []string{userKey("ann")}, false)
		}},
		{"more subjects than are remembered", func(h *history, version uint64) {
			keys := []string{userKey("ann")}
			if version == 104 {
				for i := range maxMarks {
					keys = append(keys, userKey(fmt.Sprint(i)))
				}
			}
			h.note(version, keys, false)
		}},
	} {
		h := newHistory()
		tc.note(h, 105)
		tc.note(h, 104)
		later := time.Now().Add(time.Minute)
		if !h.since(ann, nil, 104, later, true) {
			t.Errorf("%s: who goes on from 104 is not told to list again", tc.reason)
		}
		if h.since(ann, nil, 105, later, true) {
			t.Errorf("%s: who goes on from 105 has missed nothing", tc.reason)
		}
	}
}
