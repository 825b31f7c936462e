// Package check has only tests, of what is in deploy: the Helm chart is linted, rendered with many values and decoded as
// an API server would, its flags are those of the daemon, the plain manifests say what the chart says, and the Compose
// files load as Compose loads them.
//
// See docs/decisions.md, "The chart is a DaemonSet of flags, and the plain manifests are compared with it".
package check
