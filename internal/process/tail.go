package process

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	// lastWords is the maximum number of log lines that are shown after a crash.
	lastWords = 10
	// stackLines is the maximum number of lines of a panic's stack in a log.
	stackLines = 500
	// wordWidth is the length in bytes to which they are cut; structured
	// logs can have stacks in one line.
	wordWidth = 500
)

// panicking matches the first line of the stack that Go's runtime prints for a panic.
var panicking = regexp.MustCompile(`^goroutine \d+ .*\[running.*\]:$`)

// CrashLogTail returns the last lines of the log of a process that has crashed, at most ten lines
// of at most 500 bytes. It leaves out the stack of a panic, since the lines before the stack
// give the reason.
func CrashLogTail(file string) []string {
	lines := Tail(file, stackLines)
	for i, line := range lines {
		if i > 0 && panicking.MatchString(line) {
			lines = lines[:i]
			break
		}
	}
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	lines = lines[max(len(lines)-lastWords, 0):]
	for i, line := range lines {
		if len(line) > wordWidth {
			lines[i] = strings.ToValidUTF8(line[:wordWidth], "") + "…"
		}
	}
	return lines
}

// tailWindow bounds how much of a log Tail reads.
const tailWindow = 64 << 10

// Tail returns up to n of the last lines of a log file, from at most its last 64 KiB. It
// returns nothing if the file cannot be read.
func Tail(file string, n int) []string {
	f, err := os.Open(filepath.Clean(file))
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	offset := max(info.Size()-tailWindow, 0)
	buf := make([]byte, info.Size()-offset)
	read, _ := f.ReadAt(buf, offset)
	var lines []string
	for _, line := range bytes.Split(bytes.TrimRight(buf[:read], "\n"), []byte("\n")) {
		lines = append(lines, string(line))
	}
	return lines[max(len(lines)-n, 0):]
}
