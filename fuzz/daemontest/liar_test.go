//go:build linux

package daemontest

type liarRole struct{}

func (r *liarRole) run() {}
