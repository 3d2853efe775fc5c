package fanout

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// maxEvent is the maximum size of an event, in bytes. An object has at most 1.5 MiB in
// etcd, and its JSON is larger.
const maxEvent = 16 << 20

// maxKept is the size of an event above which a Decoder does not keep its memory for the next one.
const maxKept = 16 << 10

// Frame is an event of a watch in JSON.
type Frame struct {
	Type   watch.EventType `json:"type"`
	Object json.RawMessage `json:"object"`
}

// Decoder reads the events of a watch in JSON, each of at most 16 MiB.
type Decoder struct {
	limited *limitedReader
	source  io.Reader
	json    *json.Decoder
}

// NewDecoder returns a Decoder that reads from the body of an answer.
func NewDecoder(body io.Reader) *Decoder {
	limited := &limitedReader{reader: body}
	return &Decoder{limited, limited, json.NewDecoder(limited)}
}

// Next returns the next event. It returns io.EOF at the normal end of a watch, and another error
// for a frame that is too long or incomplete.
func (d *Decoder) Next() (Frame, error) {
	d.limited.left = maxEvent
	var next Frame
	err := d.json.Decode(&next)
	if len(next.Object) > maxKept {
		// The decoder keeps the memory of the largest event.
		rest, _ := io.ReadAll(d.json.Buffered()) // it reads from memory
		d.source = io.MultiReader(bytes.NewReader(rest), d.source)
		d.json = json.NewDecoder(d.source)
	}
	return next, err
}

// wait waits until the next event begins, or the watch ends.
func (d *Decoder) wait() {
	d.limited.left = maxEvent
	d.json.More()
}

// head is the part of an event's object that the watch reads.
type head struct {
	Metadata struct {
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Rows []struct {
		Object struct {
			Metadata struct {
				ResourceVersion string            `json:"resourceVersion"`
				Annotations     map[string]string `json:"annotations"`
			} `json:"metadata"`
		} `json:"object"`
	} `json:"rows"`
}

// version returns the resource version of an event's object. For a Table, it returns the
// version of the first row.
func (h head) version() string {
	if h.Metadata.ResourceVersion == "" && len(h.Rows) > 0 {
		return h.Rows[0].Object.Metadata.ResourceVersion
	}
	return h.Metadata.ResourceVersion
}

func (h head) initialEnd() bool {
	annotations := h.Metadata.Annotations
	if len(h.Rows) > 0 && len(annotations) == 0 {
		annotations = h.Rows[0].Object.Metadata.Annotations
	}
	return annotations[metav1.InitialEventsAnnotationKey] == "true"
}

// WithVersion returns an object, or a Table of one object, with another resource version. It returns an error if the object is not JSON.
func WithVersion(object json.RawMessage, version string) (json.RawMessage, error) {
	var content map[string]any
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber()
	if err := decoder.Decode(&content); err != nil {
		return nil, err
	}
	set := func(holder map[string]any) {
		metadata, ok := holder["metadata"].(map[string]any)
		if !ok {
			metadata = map[string]any{}
			holder["metadata"] = metadata
		}
		metadata["resourceVersion"] = version
	}
	set(content)
	if rows, ok := content["rows"].([]any); ok && len(rows) > 0 {
		if row, ok := rows[0].(map[string]any); ok {
			if inner, ok := row["object"].(map[string]any); ok {
				set(inner)
			}
		}
	}
	return json.Marshal(content)
}

// newer reports whether a resource version is newer than another. Resource versions are
// numbers: see KEP-5504.
func newer(version, than string) bool {
	a, errA := strconv.ParseUint(version, 10, 64)
	b, errB := strconv.ParseUint(than, 10, 64)
	if errA != nil {
		return false
	}
	return errB != nil || a > b
}
