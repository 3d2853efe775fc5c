// Package ui is how Tenure's commands talk to people: tables, the steps of a
// start, a table that follows a fleet, errors with hints. On a terminal it uses
// colour and redraws in place; in a pipe, or when TERM is dumb, it prints plain
// lines, each once. NO_COLOR (https://no-color.org) turns colour off.
//
// Text that comes from a cluster can be a tenant's. Everything printed here is
// cleaned of control characters and terminal sequences first.
//
// Why not bubbletea: it wants to own the terminal's input and its signals, and
// it redraws on its own clock. These commands read nothing, and Ctrl-C belongs
// to the context of whoever called. What is left is a block of lines that is
// drawn again (see canvas), for which the widths of x/ansi suffice.
package ui
