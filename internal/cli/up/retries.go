package up

import (
	"slices"

	"github.com/tenure-dev/tenure/internal/flux"
)

// retries remembers what has failed. An object that has failed twice for the
// same reason counts as failed while it is tried once more: with a short
// retryInterval the fleet would otherwise never settle.
type retries map[flux.Ref]*failure

type failure struct {
	row flux.Row
	// times is how often in a row the object has failed with that message.
	times int
	// failed says that it has not been tried again since.
	failed bool
}

// steady returns the rows with those that are being tried in vain as they were
// when they failed. It must be called with every change in turn.
func (r retries) steady(rows []flux.Row) []flux.Row {
	rows = slices.Clone(rows)
	for i, row := range rows {
		f := r[row.Ref()]
		switch {
		case row.State == flux.Failed && (f == nil || f.row.Message != row.Message):
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
