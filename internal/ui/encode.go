package ui

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// The formats of [Encode].
const (
	JSON = "json"
	YAML = "yaml"
)

// Encode writes a value as JSON or YAML, with the names of its JSON fields. It returns an error for
// another format, and the error of writing.
func Encode(w io.Writer, format string, value any) error {
	var text []byte
	var err error
	switch format {
	case JSON:
		if text, err = json.MarshalIndent(value, "", "  "); err == nil {
			text = append(text, '\n')
		}
	case YAML:
		text, err = yaml.Marshal(value)
	default:
		err = fmt.Errorf("%q is no format: use %s or %s", format, JSON, YAML)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}
