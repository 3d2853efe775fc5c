// Package ui provides the output of Tenure's commands: tables, the steps of a start, a table
// that follows a fleet, and errors with hints. On a terminal it uses colour and redraws in
// place; in a pipe, or when TERM is dumb, it prints plain lines, each once. NO_COLOR
// (https://no-color.org) turns colour off.
//
// Text from a cluster may be written by a tenant. This package removes control characters and
// terminal sequences from everything it prints.
//
// It does not use bubbletea, which takes over the terminal's input and signals and redraws on
// its own clock. These commands read no input, and the caller's context handles Ctrl-C. The
// remaining task is to redraw a block of lines (see canvas), for which the widths of x/ansi
// suffice.
package ui
