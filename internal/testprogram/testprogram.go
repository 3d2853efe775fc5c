// Package testprogram writes programs that tests run.
package testprogram

import (
	"os"
	"syscall"
	"testing"
)

// Write writes a program, which is a script or the copy of another one, that can be run
// at once. A process that is started by somebody else while the file is written would
// keep it open until its own program begins, and Linux runs no file that is open for
// writing (text file busy, go.dev/issue/22315): nothing is started meanwhile.
func Write(t testing.TB, file string, content []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(file, content, 0o755); err != nil { //nolint:gosec // whoever runs it may be another user
		t.Fatal(err)
	}
}
