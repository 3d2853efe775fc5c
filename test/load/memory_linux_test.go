package load

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// unreadProgram returns a copy of tenure-server of which the kernel holds nothing in memory, so that it
// counts the pages that a process reads for the group of this process.
func unreadProgram(b *testing.B) string {
	b.Helper()
	content, err := os.ReadFile(filepath.Join(binDir(b), "tenure-server"))
	if err != nil {
		b.Fatal(err)
	}
	name := filepath.Join(b.TempDir(), "tenure-server")
	if err := os.WriteFile(name, content, 0o700); err != nil {
		b.Fatal(err)
	}
	f, err := os.Open(name)
	if err == nil {
		defer f.Close()
		err = errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	}
	if err != nil {
		b.Fatal(err)
	}
	return name
}

// newGroup creates a group of processes for which the kernel counts the memory separately, as it does for
// the containers of a node. It returns the group's folder, or "" if the machine has no such groups.
func newGroup(name string) string {
	for _, root := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup"} {
		dir := filepath.Join(root, fmt.Sprintf("%s-%d", name, os.Getpid()))
		if os.Mkdir(dir, 0o700) != nil {
			continue
		}
		if groupMemory(dir) >= 0 {
			return dir
		}
		_ = os.Remove(dir)
	}
	return ""
}

// groupMemory returns the working set of a group of processes in bytes as kubelet computes it, and
// `kubectl top` prints it: all memory without the pages of files that the kernel drops first. It
// returns -1 if the folder is no such group.
func groupMemory(dir string) float64 {
	used := -1.0
	for _, name := range []string{"memory.usage_in_bytes", "memory.current"} {
		if content, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			used, _ = strconv.ParseFloat(strings.TrimSpace(string(content)), 64)
		}
	}
	stat, _ := os.ReadFile(filepath.Join(dir, "memory.stat"))
	for line := range strings.Lines(string(stat)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name == "inactive_file" {
			inactive, _ := strconv.ParseFloat(value, 64)
			used -= inactive
		}
	}
	return used
}
