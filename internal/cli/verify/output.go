package verify

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/ui"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"golang.org/x/sys/unix"
)

// formMarkdown is the output format of a comparison.
const formMarkdown = "markdown"

// forms are the forms of a report, with how each is written.
var forms = []struct {
	name  string
	write func(report, *ui.Screen, bool) error
}{
	{"text", func(r report, screen *ui.Screen, all bool) error { return r.writeText(screen, all) }},
	{"json", func(r report, screen *ui.Screen, _ bool) error { return r.writeJSON(screen) }},
	{"junit", func(r report, screen *ui.Screen, _ bool) error { return r.writeJUnit(screen) }},
	{"sarif", func(r report, screen *ui.Screen, _ bool) error { return r.writeSARIF(screen, catalog.Catalogue()) }},
	{"html", func(r report, screen *ui.Screen, _ bool) error { return r.writeHTML(screen) }},
	{formMarkdown, func(r report, screen *ui.Screen, _ bool) error { return r.writeMarkdown(screen, r.before) }},
}

func formNames() []string {
	var names []string
	for _, f := range forms {
		names = append(names, f.name)
	}
	return names
}

// outputs are the requested formats, each with its file. A format without a file goes to the
// output.
type outputs []output

type output struct{ form, file string }

// parseOutputs parses the values of -o, FORM or FORM=FILE. At most one value may lack a file.
// If all have files, it adds the text format on the output.
func parseOutputs(values []string) (outputs, error) {
	var all outputs
	onOutput := false
	for _, value := range values {
		form, file, hasFile := strings.Cut(value, "=")
		if !slices.Contains(formNames(), form) {
			return nil, ui.WithHint(fmt.Errorf("cannot write a report as %q", form), "-o takes text, json, junit, sarif, html or markdown, and with =FILE a file for it, such as -o sarif=verify.sarif")
		}
		if !hasFile {
			if onOutput {
				return nil, ui.WithHint(errors.New("cannot write two reports to the output"), "give one of them a file: -o "+form+"=FILE")
			}
			onOutput = true
		} else if err := writable(file); err != nil {
			return nil, fmt.Errorf("cannot use -o %s: %w", value, err)
		}
		if hasFile && slices.ContainsFunc(all, func(o output) bool { return o.file != "" && filepath.Clean(o.file) == filepath.Clean(file) }) {
			return nil, fmt.Errorf("cannot use -o %s: the file has another report already", value)
		}
		all = append(all, output{form, file})
	}
	if !onOutput {
		all = append(outputs{{form: "text"}}, all...)
	}
	return all, nil
}

// onOutput reports whether a form goes to the output.
func (o outputs) onOutput(form string) bool { return slices.Contains(o, output{form: form}) }

// writable finds common mistakes before a run of a minute. It does not create the file, which may
// be in the fleet that is verified.
func writable(file string) error {
	if file == "" {
		return errors.New("the name of the file is missing")
	}
	written := file
	if info, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		written = filepath.Dir(file)
	} else if err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder", file)
	}
	if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
		return fmt.Errorf("there is no folder %s", filepath.Dir(file))
	}
	if err := unix.Access(written, unix.W_OK); err != nil {
		return fmt.Errorf("cannot write to %s: %w", written, err)
	}
	return nil
}

// write writes the report in every requested form. It goes on after an error.
func (o outputs) write(r report, streams ui.IO, all bool) error {
	var errs []error
	for _, out := range o {
		i := slices.Index(formNames(), out.form)
		if out.file == "" {
			errs = append(errs, forms[i].write(r, streams.Stdout(), all))
			continue
		}
		var b bytes.Buffer
		err := forms[i].write(r, ui.NewScreen(&b), all)
		if err == nil {
			err = writeFile(out.file, &b)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot write the report %s: %w", out.file, err))
		}
	}
	// A verdict without its report is no answer.
	return ui.WithExitCode(errors.Join(errs...), exitUnjudged)
}

// writeFile writes a report. It removes an incomplete file, for example if the disk is full, since readers could
// take it for a report. It empties an incomplete file behind a link, since the link may lead to the output of the command, as
// /dev/stdout does.
func writeFile(name string, content io.Reader) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	if err = errors.Join(err, file.Close()); err == nil {
		return nil
	}
	// The name may also be that of a device.
	if info, errStat := os.Lstat(name); errStat == nil && info.Mode().IsRegular() {
		return errors.Join(err, os.Remove(name))
	}
	if info, errStat := os.Stat(name); errStat == nil && info.Mode().IsRegular() {
		return errors.Join(err, os.Truncate(name, 0))
	}
	return err
}
