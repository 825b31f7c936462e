package harness

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/ringcache/ringcache/fuzz"
)

// Report ends a test: it fails for an error or a failure, with the command that shows the failure
// again, and else logs what was done.
func Report(t testing.TB, pkg, done string, f *fuzz.Failure, err error) {
	t.Helper()
	switch {
	case err != nil:
		t.Fatalf("%s: %v", pkg, err)
	case f != nil:
		f.Repeat = repeat(t, f)
		t.Fatalf("%s: after %s:\n%v", pkg, done, f)
	}
	t.Logf("%s: %s", pkg, done)
}

// repeat returns the command that runs the test, or subtest, alone, from the seed that failed.
func repeat(t testing.TB, f *fuzz.Failure) string {
	parts := strings.Split(t.Name(), "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	command := fmt.Sprintf("go test -run '%s' .", strings.Join(parts, "/"))
	if f.Seeded {
		command = fmt.Sprintf("%s=%d %s", seedVariable, f.Seed, command)
	}
	return command
}

// Recover turns a panic of what is tested into a failure. It has to be deferred itself.
func Recover(failure **fuzz.Failure, ops func() []fuzz.Op) {
	x := recover()
	if x == nil {
		return
	}
	*failure = &fuzz.Failure{
		Invariant: "panic", Ops: ops(), Err: fmt.Errorf("%v, at %s", x, panicked()),
		Why: "arguments may be anything: an error is the answer to what can't be done",
	}
}

// panicked returns where the panic that is being recovered from began.
func panicked() string {
	frames := make([]uintptr, 64)
	trace := runtime.CallersFrames(frames[:runtime.Callers(2, frames)])
	for inPanic := false; ; {
		frame, more := trace.Next()
		ours := !strings.HasPrefix(frame.Function, "runtime.")
		if inPanic && ours || !more {
			return fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
		inPanic = inPanic || frame.Function == "runtime.gopanic"
	}
}
