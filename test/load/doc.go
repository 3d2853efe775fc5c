// Package load measures the local cluster and what runs on it. `make bench` runs
// it; the figures are ratios taken in one run where that is possible, because
// machines are noisy.
package load
