// Package flux handles the objects of Flux 2.9: how to read
// them into the rows of a table, how to follow them, when all of them have
// settled, and how to install the controllers that reconcile them. No other
// package imports Flux's APIs.
//
// It does not reconcile anything itself; upstream's controllers do.
package flux
