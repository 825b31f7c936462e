// Package promtest tests the board and the alerts of the folder deploy with Prometheus' own packages, against daemons
// that run. It is a module of its own, so that Prometheus is no dependency of the library, and it is below daemon for
// the load of engines with LMCache: `make test-deploy`.
//
// A daemon is a process, and what is scraped are its own answers. Only the times of scrapes are the test's: each is 15
// seconds after the one before, so that an alert that waits ten minutes takes 40 scrapes.
//
// See docs/decisions.md, "Alerts are seen firing, in Prometheus' own engine".
package promtest
