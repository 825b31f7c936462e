//go:build linux

package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
)

// stuck is a log that nobody reads until it is opened.
type stuck struct {
	syncBuffer
	open chan struct{}
}

func (s *stuck) Write(b []byte) (int, error) {
	<-s.open
	return s.syncBuffer.Write(b)
}

// inTime fails if f does not return.
func inTime(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal(what)
	}
}

// TestStuckLogHoldsNobodyUp: nothing that clients cause waits for who reads the log, and what was to be
// written comes when somebody reads.
func TestStuckLogHoldsNobodyUp(t *testing.T) {
	log := &stuck{open: make(chan struct{})}
	b := newBed(t, func(b *bed) {
		b.so.Logger = slog.New(slog.NewTextHandler(log, nil))
		b.so.Limits = Limits{MaxConnections: 4 * (turnsAtOnce() + 2)}
	})
	opened := false
	open := func() {
		if !opened {
			opened = true
			close(log.open)
		}
	}
	defer open()
	honest := b.hello(session1)
	n := turnsAtOnce()
	var came []*peer
	for i := range n { // each comes, and has a line, with a turn in hand
		came = append(came, newPuppet(t).hello(b.socket, fmt.Sprint("session-late-", i)))
		came[i].send(wire.Request{Op: wire.Pin, Lease: "l", Space: space, Names: []string{"a"}})
	}
	inTime(t, "turns wait for the log", func() {
		honest.ok(wire.Request{Op: wire.Stat})
		for _, p := range came {
			_, err := p.receive()
			require.NoError(t, err)
		}
	})
	crowd := newPuppet(t)
	inTime(t, "connections wait for the log", func() {
		for i := range b.so.Limits.MaxConnections {
			_ = crowd.dial(b.socket).do(helloOf(fmt.Sprint("session-crowd-", i)))
		}
		b.server.Counters()
	})
	if canBeAnother() {
		require.NoError(t, os.Chmod(b.socket, 0o777))
		require.NoError(t, os.Chmod(filepath.Dir(b.socket), 0o777))
		stranger := newPuppetAs(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
		inTime(t, "nobody is accepted any more", func() {
			stranger.dial(b.socket).refused(wire.KindPermission, helloOf("session-stranger"))
			require.NoError(t, came[0].conn.Close())
			b.eventually("there is room", func() bool { return b.server.Counters().Connections < b.so.Limits.MaxConnections })
			b.dial()
		})
	}
	open()
	b.server.records.flush(2 * time.Minute)
	require.Equal(t, n, strings.Count(log.String(), "a client came"))
	require.Contains(t, log.String(), "a connection was refused")
}

// TestLateLogDropsWhatIsTooMuch, and says how much, in its place; what is written has its order and its attributes.
func TestLateLogDropsWhatIsTooMuch(t *testing.T) {
	out := &stuck{open: make(chan struct{})}
	h, l := newAsyncHandler(slog.NewTextHandler(out, nil))
	again, none := newAsyncHandler(h)
	require.Equal(t, h, again)
	require.Nil(t, none)
	none.flush(time.Hour)
	l.flush(time.Hour) // nothing to wait for
	log := slog.New(h).With("pid", 7).WithGroup("g")
	log.Info("first")
	for taken := false; !taken; {
		l.mu.Lock()
		taken = len(l.waiting) == 0
		l.mu.Unlock()
	}
	for i := range mostWaiting + 10 {
		log.Info("line", "n", i)
	}
	l.flush(time.Nanosecond) // nobody reads
	require.Empty(t, out.String())
	close(out.open)
	l.flush(time.Hour)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, mostWaiting+2)
	require.Contains(t, lines[0], "msg=first pid=7")
	for i := range mostWaiting {
		require.True(t, strings.HasSuffix(lines[i+1], fmt.Sprintf("msg=line pid=7 g.n=%d", i)), lines[i+1])
	}
	require.Contains(t, lines[mostWaiting+1], "dropped")
	require.Contains(t, lines[mostWaiting+1], "lines=10")
}

// slowLog takes its time for each line.
type slowLog struct {
	syncBuffer
	end context.CancelFunc // when the daemon serves
}

func (s *slowLog) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "msg=serving") {
		s.end()
	}
	time.Sleep(20 * time.Millisecond)
	return s.syncBuffer.Write(b)
}

// TestRunWritesItsLastLines: the log is whole when Run returns.
func TestRunWritesItsLastLines(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := &slowLog{end: cancel}
	require.NoError(t, Run(ctx, RunOptions{Config: testConfig(t), Log: log}))
	require.Contains(t, log.String(), "msg=drained")
	require.True(t, strings.HasSuffix(log.String(), "\n"))
}
