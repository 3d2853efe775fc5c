package local

import (
	"regexp"
	"slices"

	"github.com/tenure-dev/tenure/internal/flux"
)

// retries holds the last failures by object. An object that failed twice with the same message
// counts as failed during the next retry; otherwise a fleet with a short retryInterval would
// never settle.
type retries map[flux.Ref]*failure

type failure struct {
	row flux.Row
	// times is the number of consecutive failures with the same message.
	times int
	// failed reports that the object has not been retried since.
	failed bool
}

// steady returns the rows, with failed rows in place of rows that are being retried after
// repeated failures. It must be called with every change in order.
func (r retries) steady(rows []flux.Row) []flux.Row {
	rows = slices.Clone(rows)
	for i, row := range rows {
		f := r[row.Ref()]
		switch {
		case row.State == flux.Failed && (f == nil || sameReason(f.row.Message) != sameReason(row.Message)):
			r[row.Ref()] = &failure{row: row, times: 1, failed: true}
		case row.State == flux.Failed:
			if !f.failed {
				f.times++
			}
			f.row, f.failed = row, true
		case row.State == flux.Working && f != nil:
			f.failed = false
			if f.times > 1 {
				rows[i] = f.row
			}
		default:
			delete(r, row.Ref())
		}
	}
	return rows
}

// folderNumber matches the number of a temporary folder, which each try of a controller chooses anew: the
// message of a build that fails has it.
var folderNumber = regexp.MustCompile(`\d{6,}`)

// sameReason returns a text that is the same for the messages of tries that fail alike.
func sameReason(message string) string { return folderNumber.ReplaceAllString(message, "#") }
