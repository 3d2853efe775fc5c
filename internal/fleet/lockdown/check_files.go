package lockdown

import (
	"strings"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
)

// maxPlaces is the maximum number of files that Locate adds to a result.
const maxPlaces = 4

// Locate adds to each failed result the files of the fleet that define its objects.
func Locate(f *layout.Fleet, results []Result) {
	var documents []layout.Document
	for i, r := range results {
		if r.OK || len(r.Objects) == 0 {
			continue
		}
		if documents == nil {
			documents = f.Documents()
		}
		for _, object := range r.Objects {
			kind, name, _ := strings.Cut(object, " ")
			namespace, plain, within := strings.Cut(name, "/")
			if !within {
				namespace, plain = "", name
			}
			for _, d := range f.Defining(documents, kind, namespace, plain) {
				if len(results[i].Files) < maxPlaces {
					results[i].Files = append(results[i].Files, d.String())
				}
			}
		}
	}
}
