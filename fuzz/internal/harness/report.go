package harness

import (
	"fmt"
	"regexp"
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
