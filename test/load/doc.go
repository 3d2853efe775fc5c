// Package load measures the local cluster and the programs that run on it. `make bench`
// runs the benchmarks. Where possible, a result is a ratio of two measurements of one run,
// because the speed of machines varies.
package load
