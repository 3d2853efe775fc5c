// Package promrules has no code: its tests evaluate the alerts of config/monitoring with
// Prometheus' own libraries, and parse the queries of the dashboard. It is a module of its own
// because Prometheus requires several hundred modules.
package promrules
