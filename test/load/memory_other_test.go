//go:build !linux

package load

import (
	"path/filepath"
	"testing"
)

// Only Linux has groups of processes whose memory it counts apart.
func newGroup(string) string { return "" }

func groupMemory(string) float64 { return 0 }

func unreadProgram(b *testing.B) string {
	b.Helper()
	return filepath.Join(binDir(b), "tenure-server")
}
