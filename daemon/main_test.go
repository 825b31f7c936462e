//go:build linux

package daemon

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childVariable makes the test's program another one: a puppet, or a server.
const childVariable = "RINGCACHE_TEST_DAEMON"

func TestMain(m *testing.M) {
	switch what := os.Getenv(childVariable); what {
	case "":
		goleak.VerifyTestMain(m)
	case "puppet":
		runPuppet()
	case "server":
		runServer()
	}
}
