package ui

import (
	"errors"
	"fmt"
	"strings"
)

// Exit codes of Tenure's commands. Like kubectl and flux, and unlike many other
// programs, wrong usage is an error like others.
const (
	// ExitError is the exit code of errors without their own code.
	ExitError = 1
	// ExitInterrupted is the exit code of a command that a signal ended before it completed, as in
	// shells after Ctrl-C.
	ExitInterrupted = 130
)

// ErrReported is the error of a command that has already printed the reason.
var ErrReported = errors.New("reported before")

type hintError struct {
	error
	hints []string
}

func (e *hintError) Unwrap() error { return e.error }

// WithHint adds lines of advice to an error. They are printed below the message and are not
// part of it.
func WithHint(err error, hints ...string) error {
	if err == nil {
		return nil
	}
	return &hintError{err, hints}
}

// Hints returns the lines of advice in an error, in the order in which they are printed.
func Hints(err error) []string {
	var hints []string
	for hint := (*hintError)(nil); errors.As(err, &hint); err = hint.error {
		hints = append(hints, hint.hints...)
	}
	return hints
}

type exitError struct {
	error
	code int
}

func (e *exitError) Unwrap() error { return e.error }

// WithExitCode sets the exit code of an error, for commands that distinguish errors by their
// exit codes.
func WithExitCode(err error, code int) error {
	if err == nil {
		return nil
	}
	return &exitError{err, code}
}

// ExitCode returns the exit code of an error: 0 for nil, the code set by [WithExitCode], or
// [ExitError].
func ExitCode(err error) int {
	var exit *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	}
	return ExitError
}

// PrintError prints an error as `✗ message` with its hints below. It keeps the line breaks of
// the message, and wraps its lines on a terminal.
func PrintError(screen *Screen, err error) {
	const indent = 2
	var b strings.Builder
	for i, line := range strings.Split(strings.TrimSpace(err.Error()), "\n") {
		mark := " "
		if i == 0 {
			mark = screen.Paint(Red, "✗")
		}
		b.WriteString(screen.Wrap(mark+" ", indent, line))
	}
	for _, line := range Hints(err) {
		b.WriteString(screen.Wrap(strings.Repeat(" ", indent), indent, line))
	}
	_, _ = fmt.Fprint(screen, b.String())
}
