package ui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// maxSecret is the maximum size of a secret, in bytes.
const maxSecret = 64 << 10

// ReadSecret reads a secret of one line, at most 64 KiB: from a file, from the input (-), or,
// without a file, from a prompt on a terminal. Questions and errors call the secret by the
// name in what; they never contain the secret.
func ReadSecret(ctx context.Context, streams IO, file, what string) (string, error) {
	var raw []byte
	var err error
	switch file {
	case "":
		raw, err = prompt(ctx, streams, what)
	case "-":
		raw, err = io.ReadAll(io.LimitReader(streams.In, maxSecret+1))
	default:
		raw, err = os.ReadFile(file)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the %s: %w", what, err)
	}
	text := string(bytes.TrimRight(raw, "\r\n"))
	switch {
	case text == "":
		return "", fmt.Errorf("cannot read the %s: it is empty", what)
	case len(text) > maxSecret || strings.ContainsAny(text, "\x00\r\n"):
		return "", fmt.Errorf("cannot read the %s: it is more than one line", what)
	}
	return text, nil
}

// WarnArgument warns that the secret in a flag can be seen by others. The flag has a twin with
// the suffix -file. It returns an error if it cannot write to the error stream.
func WarnArgument(streams IO, flag string) error {
	_, err := fmt.Fprintf(streams.Err, "warning: --%[1]s is in the history of the shell, and every user of this machine can see it while the command runs: use --%[1]s-file, and replace the secret if others use this machine\n", flag)
	return err
}

// prompt asks for a secret on a terminal, without echo.
func prompt(ctx context.Context, streams IO, what string) ([]byte, error) {
	file, ok := streams.In.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil, WithHint(errors.New("the input is no terminal"), "name a file with the secret, or - for the input, with the flag that ends in -file")
	}
	before, err := term.GetState(int(file.Fd()))
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(streams.Err, "%s: ", what); err != nil {
		return nil, err
	}
	text, err := Await(ctx, streams.Err, func() ([]byte, error) { return term.ReadPassword(int(file.Fd())) })
	if ctx.Err() != nil {
		// Turn the echo on again after an interrupt.
		return nil, errors.Join(err, term.Restore(int(file.Fd()), before))
	}
	_, _ = fmt.Fprintln(streams.Err)
	return text, err
}

// Await returns what read returns, or the error of the context if it ends before. Then it ends the line of
// the question on the error stream, after the ^C that a terminal shows. read goes on in the background.
func Await[T any](ctx context.Context, errs io.Writer, read func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := read()
		answers <- answer{value, err}
	}()
	select {
	case <-ctx.Done():
		_, _ = fmt.Fprintln(errs)
		var none T
		return none, ctx.Err()
	case a := <-answers:
		return a.value, a.err
	}
}
