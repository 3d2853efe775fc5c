// Tenure-sigstore verifies one keyless signature of an image: by whom Fulcio's
// certificate says that it was made, and that the transparency log knows it. It
// reads a request from its standard input and writes what was signed to its
// standard output, both in JSON; it opens no file and no connection. The exit code
// is 1 when the signature cannot be trusted, and standard error says why.
//
// It is a program and a module of its own because of what Sigstore's library brings
// along: ninety modules, of which Tenure needs none, and would have to upgrade some.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxRequest bounds a request, in bytes: a trusted root and a signature.
const maxRequest = 16 << 20

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	content, err := io.ReadAll(io.LimitReader(in, maxRequest+1))
	if err != nil {
		return fmt.Errorf("cannot read the request: %w", err)
	}
	if len(content) > maxRequest {
		return errors.New("cannot read the request: it is too long")
	}
	var r request
	if err := json.Unmarshal(content, &r); err != nil {
		return fmt.Errorf("cannot read the request: %w", err)
	}
	found, err := verifyRequest(r)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(found); err != nil {
		return fmt.Errorf("cannot write the answer: %w", err)
	}
	return nil
}
