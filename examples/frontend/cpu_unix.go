//go:build unix

package main

import (
	"syscall"
	"time"
)

// ownCPU returns the time that this process has used in user and system mode, on
// all threads.
func ownCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // can't fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
