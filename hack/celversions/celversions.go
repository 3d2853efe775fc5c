// Package celversions has no code: its test compiles the expressions of the policies in config as each
// supported version of Kubernetes does. It is a module of its own because nothing else needs CEL.
package celversions
