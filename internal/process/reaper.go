package process

import (
	"bufio"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ReapCommand is the argument with which the tenure program becomes a reaper.
const ReapCommand = "__reap"

// orderly is the message to the reaper from a parent that closes its group.
const orderly = "done"

// RunReaper runs a reaper. It reads from in, which the parent holds open, until the parent
// sends [orderly] or dies. If the parent dies, RunReaper kills the children, removes the
// folders and kills the rest of its own process group, including itself.
func RunReaper(in io.Reader, remove []string) {
	// The parent decides when this ends, not the terminal.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	children := map[int]bool{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		line := lines.Text()
		if line == orderly {
			return
		}
		if pid, err := strconv.Atoi(strings.TrimLeft(line, "+-")); err == nil && pid > 1 {
			if line[0] == '+' {
				children[pid] = true
			} else {
				delete(children, pid)
			}
		}
	}
	for pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	awaitGone(children, 2*time.Second)
	for _, dir := range remove {
		_ = os.RemoveAll(dir)
		_ = os.Remove(filepath.Dir(dir))
	}
	_ = syscall.Kill(0, syscall.SIGKILL)
}

// awaitGone waits until none of the processes exists or the time is over: a
// child that still runs could write into a folder that is being removed.
func awaitGone(pids map[int]bool, patience time.Duration) {
	deadline := time.Now().Add(patience)
	for pid := range pids {
		for syscall.Kill(pid, 0) == nil && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
		}
	}
}
