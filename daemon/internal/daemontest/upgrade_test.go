//go:build linux

package daemontest

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/client"
)

// upgradeSteps is what clients do under each daemon of TestUpgrade.
const upgradeSteps = 1000

// TestUpgrade puts daemons of other releases in the place of one, as a service manager does (SIGTERM, start) and after a
// kill, forwards and back, under clients that go on. Each sees to it that what it has pinned stays, and verifies every
// byte; what was committed under one release is there under the next; and with a socket of the service manager nobody is
// refused.
func TestUpgrade(t *testing.T) {
	for name, c := range map[string]struct {
		settings map[string]string
		passed   bool
		full     bool // memory has no room for all objects
	}{
		"memory":                                {passed: true},
		"a disk below a small memory":           {settings: map[string]string{"size": "6MiB", "disk": "DIR/disk", "disk-size": "1GiB"}, full: true},
		"a socket that the daemon itself makes": {},
	} {
		t.Run(name, func(t *testing.T) {
			u := &upgrade{t: t, dir: folder(t), passed: c.passed, crowd: newCrowd(t), settings: map[string]string{"http": "off", "grace": "10m"}}
			for k, v := range c.settings {
				u.settings[k] = strings.Replace(v, "DIR", u.dir, 1)
			}
			u.run(c.full)
		})
	}
}

// upgrade is one segment with its socket, and daemons one after the other.
type upgrade struct {
	t        *testing.T
	dir      string
	passed   bool
	settings map[string]string
	crowd    *crowd

	listener *os.File // of the service manager
	client   *client.Client
	m        *client.Mapping
	dialed   atomic.Int64
	refused  atomic.Pointer[string]
}

func (u *upgrade) socket() string { return filepath.Join(u.dir, "socket") }

func (u *upgrade) run(full bool) {
	t := u.t
	if u.passed {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: u.socket()})
		require.NoError(t, err)
		l.SetUnlinkOnClose(false)
		u.listener, err = l.File()
		require.NoError(t, err)
		require.NoError(t, l.Close()) // of the two descriptors, as systemd's
		t.Cleanup(func() { require.NoError(t, u.listener.Close()) })
		u.knock()
	}
	for i, x := range []struct {
		release string
		end     syscall.Signal
	}{
		{"v1.0.0", syscall.SIGTERM}, {"v1.1.0", syscall.SIGTERM}, {"v2.0.0", syscall.SIGKILL}, {"v2.0.1", syscall.SIGTERM}, {"v1.0.0", syscall.SIGTERM},
	} {
		cmd := u.start(x.release)
		if i == 0 {
			for n := range uint64(2) {
				u.crowd.add(role{Client: &clientRole{Socket: u.socket(), Dir: u.dir, Space: "space", Objects: 300, Sessions: 4, Seed: n + 1, MayFull: full}})
			}
		}
		u.check(x.release, full)
		u.work()
		require.NoError(t, cmd.Process.Signal(x.end))
		err := cmd.Wait()
		if x.end == syscall.SIGTERM {
			require.NoError(t, err, "the end of %s", x.release)
		}
		require.Empty(t, u.crowd.wrong(), "at the end of %s", x.release)
	}
	cmd := u.start("v3.0.0")
	u.check("v3.0.0", full)
	u.crowd.end()
	require.Empty(t, u.crowd.wrong())
	if u.passed {
		if text := u.refused.Load(); text != nil {
			t.Fatal("a client was refused: " + *text)
		}
		require.Greater(t, u.dialed.Load(), int64(6), "clients have connected all the time")
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
	t.Logf("%d objects; with a socket of the service manager %d connections were made meanwhile", len(u.crowd.ledger.Objects("space")), u.dialed.Load())
	logCounts(t, u.crowd.counts)
}

// start starts a daemon of a release and waits until it serves.
func (u *upgrade) start(release string) *exec.Cmd {
	u.t.Helper()
	cmd := child(u.t, role{Served: &servedRole{Dir: u.dir, Version: release, Settings: u.settings, Passed: u.passed}})
	if u.passed {
		cmd.ExtraFiles = []*os.File{u.listener}
	}
	require.NoError(u.t, start(cmd))
	u.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	(&servedRole{Dir: u.dir}).await(u.t)
	return cmd
}

// work waits until clients have done some steps with the daemon that runs.
func (u *upgrade) work() {
	u.t.Helper()
	for len(u.crowd.steps) > 0 {
		<-u.crowd.steps
	}
	ctx, stop := context.WithTimeout(u.t.Context(), patience)
	defer stop()
	for range upgradeSteps {
		select {
		case <-u.crowd.steps:
		case <-u.crowd.ends:
			u.t.Fatalf("a client has ended: %q", u.crowd.wrong())
		case <-ctx.Done():
			u.t.Fatal("clients do nothing")
		}
	}
}

// check looks for all that was committed under earlier releases, by a client that has been there all the time.
func (u *upgrade) check(release string, full bool) {
	t := u.t
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if u.client == nil {
		var err error
		u.client, err = client.Dial(ctx, client.Options{Socket: u.socket(), Name: "ledger", Dir: u.dir})
		require.NoError(t, err)
		t.Cleanup(func() { _ = u.client.Close() })
		u.m, err = u.client.Map(ctx)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, u.m.Close()) })
	}
	segment := u.client.Hello().Segment
	r, err := u.crowd.ledger.Check(ctx, u.client, u.m, "space")
	require.NoError(t, err)
	require.Equal(t, "ringcache "+release, u.client.Hello().Server, "the client has connected again")
	require.Equal(t, segment, u.client.Hello().Segment, "its mapping is of the segment that the daemon has")
	require.Empty(t, r.Gone, "%s does not have what was there", release)
	if !full {
		require.Zero(t, r.Full+r.Orphans)
	}
}

// knock connects again and again, to see whether a client is ever refused.
func (u *upgrade) knock() {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	u.t.Cleanup(func() { stop(); <-ended })
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			c, err := client.Dial(ctx, client.Options{Socket: u.socket(), Name: "knock", Dir: u.dir})
			switch {
			case err == nil:
				_ = c.Close()
				u.dialed.Add(1)
			case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, os.ErrNotExist):
				text := err.Error()
				u.refused.Store(&text)
				return
				// Else the old daemon had taken the connection already, and has ended: the next one waits for the new daemon.
			}
		}
	}()
}
