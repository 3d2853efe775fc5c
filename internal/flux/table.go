package flux

import (
	"regexp"
	"strings"
)

// hash matches hexadecimal notation from SHA-1 to SHA-512, as flux's
// TruncateHex does.
var hash = regexp.MustCompile(`\b[a-f0-9]{40,128}\b`)

// shortHash is the number of digits that are left of a hash.
const shortHash = 8

// ShortRevision shortens every hash of 40 to 128 hexadecimal digits in a
// revision or message to 8 digits, as `flux get` does: main@sha1:abc12345.
func ShortRevision(s string) string {
	return hash.ReplaceAllStringFunc(s, func(h string) string { return h[:shortHash] })
}

// TableOptions selects the columns of a table besides the kind's own columns.
type TableOptions struct {
	// Namespace adds the column NAMESPACE.
	Namespace bool
	// KindInName writes names as kind/name, which `flux get all` does
	// because it prints one table after the other.
	KindInName bool
	// Source adds the column SOURCE to Kustomizations and HelmReleases.
	Source bool
}

// Table lays out rows of one kind in the columns that `flux get` has for it. The cells are
// untrusted values of the objects: clean and cut them before printing.
func Table(kind Kind, rows []Row, opts TableOptions) (header []string, cells [][]string) {
	columns := columnsOf(kind, opts)
	for _, c := range columns {
		header = append(header, c.header)
	}
	for _, row := range rows {
		var line []string
		for _, c := range columns {
			line = append(line, c.value(row))
		}
		cells = append(cells, line)
	}
	return header, cells
}

// LiveTable lays out rows of any kinds in one table, for a fleet that is starting.
func LiveTable(rows []Row) (header []string, cells [][]string) {
	header = []string{"NAMESPACE", "KIND", "NAME", "READY", "REVISION", "MESSAGE"}
	for _, r := range rows {
		cells = append(cells, []string{r.Namespace, string(r.Kind), r.Name, r.Ready, shownRevision(r), ShortRevision(r.Message)})
	}
	return header, cells
}

type column struct {
	header string
	value  func(Row) string
}

func columnsOf(kind Kind, opts TableOptions) []column {
	source := func(r Row) string { return r.Source }
	suspended := column{"SUSPENDED", func(r Row) string {
		if r.Suspended {
			return "True"
		}
		return "False"
	}}
	var columns []column
	if opts.Namespace {
		columns = append(columns, column{"NAMESPACE", func(r Row) string { return r.Namespace }})
	}
	columns = append(columns, column{"NAME", func(r Row) string {
		if opts.KindInName {
			return strings.ToLower(string(r.Kind)) + "/" + r.Name
		}
		return r.Name
	}})
	switch kind {
	case ExternalArtifact:
		columns = append(columns, column{"REVISION", shownRevision}, column{"SOURCE", source})
	case ImageRepository:
		columns = append(columns, column{"LAST SCAN", shownRevision}, suspended)
	case ImagePolicy:
		columns = append(columns, column{"IMAGE", source}, column{"TAG", shownRevision})
	case ImageUpdateAutomation:
		columns = append(columns, column{"LAST RUN", shownRevision}, suspended)
	case Receiver, Alert:
		columns = append(columns, suspended)
	case Provider:
	case Kustomization, HelmRelease:
		if opts.Source {
			columns = append(columns, column{"SOURCE", source})
		}
		columns = append(columns, column{"REVISION", shownRevision}, suspended)
	default:
		columns = append(columns, column{"REVISION", shownRevision}, suspended)
	}
	return append(columns,
		column{"READY", func(r Row) string { return r.Ready }},
		column{"MESSAGE", func(r Row) string { return ShortRevision(r.Message) }})
}

// shownRevision does not shorten versions of charts: like Flux, since a part of
// a SemVer that happens to look like a hash belongs to the version.
func shownRevision(r Row) string {
	switch r.Kind {
	case HelmChart, HelmRelease, ImagePolicy:
		return r.Revision
	}
	return ShortRevision(r.Revision)
}
