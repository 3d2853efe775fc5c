package ui

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var liveHeader = []string{"NAME", "READY", "MESSAGE"}

func TestLiveInAPipePrintsChangesOnce(t *testing.T) {
	t.Parallel()
	screen, b := pipe()
	live := NewLive(screen)
	for _, rows := range [][][]string{
		{},
		{{"a", "False", "new"}, {"b", "False", "new"}},
		{{"a", "False", "new"}, {"b", "True", "ok"}},
		{{"a", "False", "new"}, {"b", "True", "ok"}},
		{{"b", "True", "ok"}},
		{{"a", "False", "new"}, {"b", "True", "ok"}},
	} {
		if err := live.Set(Table{Header: liveHeader, Rows: rows}, "footer"); err != nil {
			t.Fatal(err)
		}
	}
	if err := live.Println("said"); err != nil {
		t.Fatal(err)
	}
	if err := live.Close(); err != nil {
		t.Fatal(err)
	}
	want := "NAME   READY   MESSAGE\na      False   new\nb      False   new\nb      True    ok\na      False   new\nsaid\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLiveOnATerminal(t *testing.T) {
	t.Parallel()
	term := &terminal{width: 40, height: 10}
	_, _ = term.Write([]byte("$ tenure up\n"))
	live := NewLive(term.screen())
	set := func(want string, footer string, rows ...[]string) {
		t.Helper()
		if err := live.Set(Table{Header: liveHeader, Rows: rows}, footer); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, term.text()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	const prompt = "$ tenure up\n"
	set(prompt+"NAME   READY   MESSAGE\na      False   new\n1 left", "1 left", []string{"a", "False", "new"})
	set(prompt+"NAME   READY   MESSAGE\na      True    ok\nb      False   日本語日本語日本語日本語…\n1 left", "1 left",
		[]string{"a", "True", "ok"}, []string{"b", "False", "日本語日本語日本語日本語日本語"})

	if err := live.Println("something else"); err != nil {
		t.Fatal(err)
	}
	set(prompt+"something else\nNAME   READY   MESSAGE\na      True    ok", "", []string{"a", "True", "ok"})

	// If not all rows fit, the table shows the rows that are not ready, and the number of hidden
	// rows.
	var many [][]string
	for i := range 20 {
		many = append(many, []string{fmt.Sprintf("r%02d", i), "True", "ok"})
	}
	many[15][1] = "False"
	shown := "NAME   READY   MESSAGE\nr00    True    ok\nr01    True    ok\nr02    True    ok\nr03    True    ok\nr04    True    ok\nr15    False   ok\n… and 14 more\nfooter"
	set(prompt+"something else\n"+shown, "footer", many...)
	set(prompt+"something else\n"+shown, "footer", many...)

	if err := live.Close(); err != nil {
		t.Fatal(err)
	}
	want := prompt + "something else\nNAME   READY   MESSAGE\n"
	for i, row := range many {
		want += fmt.Sprintf("%s    %-5s   ok", row[0], row[1])
		if i < len(many)-1 {
			want += "\n"
		}
	}
	if diff := cmp.Diff(want, term.text()); diff != "" {
		t.Errorf("all rows must be left when the table ends (-want +got):\n%s", diff)
	}
}

func TestLiveFollowsTheSize(t *testing.T) {
	t.Parallel()
	term := &terminal{width: 60, height: 10}
	live := NewLive(term.screen())
	row := []string{"a", "False", "a message that needs some room to be read"}
	if err := live.Set(Table{Header: liveHeader, Rows: [][]string{row}}, ""); err != nil {
		t.Fatal(err)
	}
	term.resize(30, 10)
	want := "NAME   READY   MESSAGE\na      False   a message that…"
	deadline := time.After(time.Minute)
	for term.text() != want {
		select {
		case <-deadline:
			t.Fatalf("the table is not redrawn for a narrower terminal (-want +got):\n%s", cmp.Diff(want, term.text()))
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := live.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSteps(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	run := func(screen *Screen) (during string, text func() string) {
		steps := newSteps(screen, func() time.Time { return now })
		etcd, api := steps.Start("etcd"), steps.Start("api server")
		api.Update("starting")
		etcd.Done()
		if term, ok := screen.Writer.(*terminal); ok {
			during = term.text()
		}
		etcd.Done() // a second end is none
		api.Fail(errors.New("port 6443\nis taken"))
		steps.Start("given up")
		steps.Close()
		return during, nil
	}
	screen, b := pipe()
	run(screen)
	want := "✓ etcd 0.0s\n✗ api server: port 6443 is taken\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("in a pipe (-want +got):\n%s", diff)
	}
	term := &terminal{width: 40, height: 10}
	during, _ := run(term.screen())
	if want := "✓ etcd 0.0s\n⠋ api server 0.0s starting"; during != want {
		t.Errorf("on a terminal, while a step runs (-want +got):\n%s", cmp.Diff(want, during))
	}
	if diff := cmp.Diff("✓ etcd 0.0s\n✗ api server: port 6443 is taken", term.text()); diff != "" {
		t.Errorf("on a terminal, at the end (-want +got):\n%s", diff)
	}
}

// TestLiveNarrow checks that a table without room for the message leaves out the revision while it is redrawn,
// and prints it at the end.
func TestLiveNarrow(t *testing.T) {
	t.Parallel()
	table := Table{Header: []string{"NAME", "READY", "REVISION", "MESSAGE"}, Rows: [][]string{{"apps", "False", "main@sha1:4cc9d301", "a dependency is not ready"}}}
	for width, want := range map[int]string{
		60: "NAME   READY   MESSAGE\napps   False   a dependency is not ready",
		80: "NAME   READY   REVISION             MESSAGE\napps   False   main@sha1:4cc9d301   a dependency is not ready",
	} {
		term := &terminal{width: width, height: 10}
		live := NewLive(term.screen())
		if err := live.Set(table, ""); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, term.text()); diff != "" {
			t.Errorf("width %d (-want +got):\n%s", width, diff)
		}
		if err := live.Close(); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(term.text(), "main@sha1:4cc9d301") {
			t.Errorf("width %d: the last table has no revision:\n%s", width, term.text())
		}
	}
}
