package ringtest_test

import (
	"fmt"
	"runtime"
	"testing"
)

// fake is a test that a check may fail.
type fake struct {
	testing.TB
	failed string
	logged []string
}

func (f *fake) Fatalf(format string, args ...any) {
	f.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
func (f *fake) Logf(format string, args ...any) {
	f.logged = append(f.logged, fmt.Sprintf(format, args...))
}

// failureOf returns what a check reports, "" if it passes.
func failureOf(t *testing.T, check func(t testing.TB)) string {
	t.Helper()
	f := &fake{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		check(f)
	}()
	<-done
	return f.failed
}
