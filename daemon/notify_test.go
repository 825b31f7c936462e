package daemon

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// manager is a service manager's socket.
type manager struct{ conn *net.UnixConn }

// newManager makes a socket, and this process its service.
func newManager(t *testing.T) manager {
	t.Helper()
	path := socketPath(t)
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	t.Setenv("NOTIFY_SOCKET", path)
	return manager{conn}
}

// next returns the next message, by its names.
func (m manager) next(t *testing.T) map[string]string {
	t.Helper()
	require.NoError(t, m.conn.SetDeadline(time.Now().Add(3*time.Minute)))
	b := make([]byte, 4096)
	n, err := m.conn.Read(b)
	require.NoError(t, err)
	all := map[string]string{}
	for line := range strings.SplitSeq(string(b[:n]), "\n") {
		name, value, ok := strings.Cut(line, "=")
		require.True(t, ok, "%q", line)
		all[name] = value
	}
	return all
}

func TestMessagesForTheServiceManager(t *testing.T) {
	m, n := newManager(t), notifier{quiet()}
	n.status("opening")
	require.Equal(t, map[string]string{"STATUS": "opening"}, m.next(t))
	n.ready("serving")
	require.Equal(t, map[string]string{"READY": "1", "STATUS": "serving"}, m.next(t))
	before := monotonic()
	n.reloading()
	got := m.next(t)
	require.Equal(t, "1", got["RELOADING"])
	at, err := strconv.ParseInt(got["MONOTONIC_USEC"], 10, 64)
	require.NoError(t, err)
	require.LessOrEqual(t, before.Microseconds(), at)
	require.LessOrEqual(t, at, monotonic().Microseconds())
	require.Positive(t, at)
	n.stopping(time.Minute)
	require.Equal(t, map[string]string{"STOPPING": "1", "STATUS": "draining", "EXTEND_TIMEOUT_USEC": "90000000"}, m.next(t))
	n.alive()
	require.Equal(t, map[string]string{"WATCHDOG": "1"}, m.next(t))
}

func TestWatchdog(t *testing.T) {
	n := notifier{quiet()}
	c, stop := n.watchdog()
	require.Nil(t, c)
	stop()
	t.Setenv("WATCHDOG_USEC", "3000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	c, stop = n.watchdog()
	require.NotNil(t, c)
	<-c
	stop()
	t.Setenv("WATCHDOG_USEC", "soon")
	var log bytes.Buffer
	c, stop = notifier{slog.New(slog.NewTextHandler(&log, nil))}.watchdog()
	require.Nil(t, c)
	stop()
	require.Contains(t, log.String(), "can't be read")
}

// TestSilenceWithoutAManager: nothing is sent, and nothing is logged.
func TestSilenceWithoutAManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	var log bytes.Buffer
	n := notifier{slog.New(slog.NewTextHandler(&log, nil))}
	n.ready("x")
	require.Empty(t, log.String())
	t.Setenv("NOTIFY_SOCKET", "/nowhere")
	n.ready("x")
	require.Contains(t, log.String(), "does not take messages")
}

// TestReloadLogsThatConnectionsAreCut: as the start does, where there are not enough descriptors.
func TestReloadLogsThatConnectionsAreCut(t *testing.T) {
	r := testRunner(t)
	var log bytes.Buffer
	r.log = slog.New(slog.NewTextHandler(&log, nil))
	next := r.config
	r.o.Reload = func() (Config, error) { return next, nil }
	next.MaxSessions = 7
	r.reload()
	require.NotContains(t, log.String(), "connections are cut")
	next.MaxConnections = 1 << 20
	if _, cut := next.files().fit(next.configured()); !cut {
		t.Skip("this process may open millions of files")
	}
	r.reload()
	require.Contains(t, log.String(), "connections are cut from 1048576 to ")
}

// TestReload takes over everything or nothing.
func TestReload(t *testing.T) {
	r := testRunner(t)
	var log bytes.Buffer
	r.log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: r.level}))
	m := newManager(t)
	next := r.config
	var err error
	r.o.Reload = func() (Config, error) { return next, err }
	reload := func() string {
		log.Reset()
		r.reload()
		require.Equal(t, "1", m.next(t)["RELOADING"])
		require.Equal(t, "1", m.next(t)["READY"])
		return log.String()
	}
	require.Contains(t, reload(), "nothing has changed")

	next.LogLevel, next.Grace, next.MaxSessions, next.Drain = "debug", time.Hour, 7, time.Second
	require.Contains(t, reload(), `changed="[grace drain max-sessions log-level]"`)
	require.Equal(t, slog.LevelDebug, r.level.Level())
	require.Equal(t, next, r.config)

	good := next
	next.LogLevel, next.Size, next.Disk = "error", 2<<20, "/elsewhere"
	text := reload()
	require.Contains(t, text, "size is")
	require.Contains(t, text, "disk is")
	require.Contains(t, text, "needs a restart")
	require.Equal(t, slog.LevelDebug, r.level.Level(), "what could be taken over is refused, too")
	require.Equal(t, good, r.config)

	next = good
	next.LogLevel = "loud"
	require.Contains(t, reload(), `\"loud\" is not one of`)
	require.Equal(t, good, r.config)
	next, err = Config{}, &ConfigError{[]string{"first", "second"}}
	text = reload()
	require.Contains(t, text, "problem=first")
	require.Contains(t, text, "problem=second")
	err = io.ErrUnexpectedEOF
	require.Contains(t, reload(), "unexpected EOF")
	r.o.Reload = nil
	require.Contains(t, reload(), "without a way to read")
	require.Equal(t, good, r.config)
}

func TestSocketsOfTheServiceManager(t *testing.T) {
	// This test process has been passed none, whatever the variables of others are.
	t.Setenv("LISTEN_PID", "1")
	t.Setenv("LISTEN_FDS", "3")
	s, err := openSocket(context.Background(), socketPath(t), quiet())
	require.NoError(t, err)
	require.NotEmpty(t, s.path)
	require.NoError(t, s.close())
}
