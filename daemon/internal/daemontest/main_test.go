//go:build linux

package daemontest

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const roleVariable = "RINGCACHE_DAEMONTEST"

// role is what a child process is.
type role struct {
	Daemon *daemonRole
	Client *clientRole
	Liar   *liarRole
	Ledger *ledgerRole

	Served   *servedRole
	Honest   *honestRole
	Attacker *attackerRole

	KVClient *kvClientRole
	KVLiar   *kvLiarRole

	ValueClient *valueClientRole
	ValueLiar   *valueLiarRole
}

func TestMain(m *testing.M) {
	s := os.Getenv(roleVariable)
	if s == "" {
		os.Exit(m.Run())
	}
	var r role
	if err := json.Unmarshal([]byte(s), &r); err != nil {
		panic(err)
	}
	switch {
	case r.Daemon != nil:
		r.Daemon.run()
	case r.Client != nil:
		r.Client.run()
	case r.Liar != nil:
		r.Liar.run()
	case r.Ledger != nil:
		r.Ledger.run()
	case r.Served != nil:
		r.Served.run()
	case r.Honest != nil:
		r.Honest.run()
	case r.Attacker != nil:
		r.Attacker.run()
	case r.KVClient != nil:
		r.KVClient.run()
	case r.KVLiar != nil:
		r.KVLiar.run()
	case r.ValueClient != nil:
		r.ValueClient.run()
	case r.ValueLiar != nil:
		r.ValueLiar.run()
	}
}

// child makes a command of this program in a role, which dies with this process.
func child(t *testing.T, r role, env ...string) *exec.Cmd {
	t.Helper()
	b, err := json.Marshal(r)
	require.NoError(t, err)
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(append(os.Environ(), roleVariable+"="+string(b), "GORACE=atexit_sleep_ms=0"), env...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// encoded returns what a process says of itself.
func encoded(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// start starts a command. The kernel ends a child with the thread that started it, so one thread starts all
// and never ends.
func start(cmd *exec.Cmd) error {
	startThread()
	result := make(chan error)
	starts <- func() { result <- cmd.Start() }
	return <-result
}

var (
	starts      = make(chan func())
	startThread = sync.OnceFunc(func() {
		go func() {
			runtime.LockOSThread()
			for f := range starts {
				f()
			}
		}()
	})
)

// seedOf returns the seed that a flag has, or makes one up.
func seedOf(t *testing.T, name string, seed uint64) uint64 {
	t.Helper()
	for seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-%s %d", name, seed)
	return seed
}

// folder makes a folder whose name is short enough for sockets, and removes it at the end.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dt")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}
