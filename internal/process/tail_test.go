package process

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCrashLogTail(t *testing.T) {
	t.Parallel()
	stack := "goroutine 1 [running]:\nmain.main()\n" + strings.Repeat("\tmain.go:1 +0x1\n", 40)
	for name, tc := range map[string]struct {
		reason, log string
		want        []string
	}{
		"Short":     {"All of a short log is shown.", "one\ntwo\n", []string{"one", "two"}},
		"Long":      {"Only the end of a long one is.", strings.Repeat("early\n", 100) + strings.Repeat("late\n", 10), slices.Repeat([]string{"late"}, 10)},
		"Panic":     {"A stack hides the reason, which is before it.", "early\npanic: no room\n\n" + stack, []string{"early", "panic: no room"}},
		"Twice":     {"The first stack of a crash is of who panicked.", "panic: no room\n" + stack + "\n" + stack, []string{"panic: no room"}},
		"OnlyStack": {"A stack is better than nothing.", "goroutine 1 [running]:\nmain.main()\n", []string{"goroutine 1 [running]:", "main.main()"}},
		"Wide":      {"A line is cut.", strings.Repeat("x", 1000) + "\n", []string{strings.Repeat("x", 500) + "…"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(file, []byte(tc.log), 0o600); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, CrashLogTail(file)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	if got := CrashLogTail(filepath.Join(t.TempDir(), "absent")); got != nil {
		t.Errorf("a log that is absent: got %q", got)
	}
}
