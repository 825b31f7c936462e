// Package harnesstest runs tests that have to fail: those of planted defects.
package harnesstest

import (
	"fmt"
	"runtime"
	"testing"
)

// T is a test that a check may fail.
type T struct {
	testing.TB
	Report string // what failed, "" if the check passed
	Logged []string
}

// Fatalf ends the check.
func (f *T) Fatalf(format string, args ...any) {
	f.Report = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Logf keeps what a check logs.
func (f *T) Logf(format string, args ...any) {
	f.Logged = append(f.Logged, fmt.Sprintf(format, args...))
}

// FailureOf returns what a check reports, "" if it passes.
func FailureOf(t testing.TB, check func(t testing.TB)) string {
	t.Helper()
	f := &T{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		check(f)
	}()
	<-done
	return f.Report
}
