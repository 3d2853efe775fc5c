package get

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/ui"
)

// The values of -o besides [ui.JSON] and [ui.YAML].
const (
	outputTable = ""
	outputWide  = "wide"
	outputName  = "name"
)

var outputs = []string{outputWide, outputName, ui.JSON, ui.YAML}

// errOutput returns an error for a value of -o that is none of [outputs]. command is the path of the command.
func errOutput(command, value string) error {
	if value == outputTable || slices.Contains(outputs, value) {
		return nil
	}
	return ui.WithHint(fmt.Errorf("-o is wide, name, json or yaml, not %q", value), "see `"+command+" --help`")
}

// checkOutput validates -o. With wide, the table has the column of --show-source.
func (o *options) checkOutput(c command) error {
	if err := errOutput("tenure get "+c.use, o.output); err != nil {
		return err
	}
	if o.watch && o.output != outputTable && o.output != outputWide {
		return ui.WithHint(errors.New("--watch prints a table only"), "leave out --watch or -o "+o.output)
	}
	o.showSource = o.showSource || o.output == outputWide && c.isDelivery()
	return nil
}

// object is the output for one of Flux's objects. The fields stay as they are in later versions.
type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	// Source is the source as Kind/namespace/name, and empty for kinds without one.
	Source string `json:"source,omitempty"`
	// Revision is the whole revision, and empty if there is none yet.
	Revision  string `json:"revision"`
	Suspended bool   `json:"suspended"`
	// Ready is True, False or Unknown.
	Ready   string `json:"ready"`
	Message string `json:"message"`
}

// printObjects prints names, or JSON or YAML: one object if one was named, and otherwise a list in the field
// items. It returns the error of writing.
func (o *options) printObjects(rows []flux.Row, name string) error {
	screen := o.streams.Stdout()
	objects := []object{}
	for _, row := range rows {
		gvk := row.Kind.GroupVersionKind()
		if o.output == outputName {
			if _, err := fmt.Fprintln(screen, ui.Clean(strings.ToLower(gvk.Kind)+"."+gvk.Group+"/"+row.Name)); err != nil {
				return err
			}
			continue
		}
		objects = append(objects, object{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: row.Namespace, Name: row.Name,
			Source: row.Source, Revision: row.Revision, Suspended: row.Suspended, Ready: row.Ready, Message: row.Message,
		})
	}
	switch {
	case o.output == outputName:
		return nil
	case name != "" && len(objects) == 1 && !o.allNamespaces:
		return ui.Encode(screen, o.output, objects[0])
	}
	return ui.Encode(screen, o.output, map[string]any{"items": objects})
}
