//go:build linux

package daemon

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/tier"
)

// TestClearOfWhatIsNoSpace: a space that nothing can be stored in is neither kept nor logged: it may have as
// many bytes as a request.
func TestClearOfWhatIsNoSpace(t *testing.T) {
	b := newBed(t, nil)
	p := b.hello(session1)
	for _, wrong := range []string{strings.Repeat("s", tier.MaxSpace+1), strings.Repeat("s", 1<<19), "a\x00"} {
		require.Contains(t, p.refused(wire.KindInvalid, wire.Request{Op: wire.Clear, Space: wrong}), "space")
	}
	p.ok(wire.Request{Op: wire.Clear, Space: strings.Repeat("s", tier.MaxSpace)})
	p.ok(wire.Request{Op: wire.Clear})
}

// TestClearOfAPrefix: all spaces that begin so, and no other.
func TestClearOfAPrefix(t *testing.T) {
	b := newBed(t, nil)
	p := b.hello(session1)
	spaces := []string{"kv.model.worker0", "kv.model.worker1", "kv.models.worker0", "kv"}
	for _, in := range spaces {
		items := p.ok(wire.Request{Op: wire.Reserve, Lease: "l", Space: in, Objects: objects("a")}).Items
		b.write(items[0], "a")
		p.ok(wire.Request{Op: wire.Commit, Lease: "l", Space: in, Names: []string{"a"}})
	}
	p.ok(wire.Request{Op: wire.Clear, Space: "kv.model.", Prefix: true})
	b.eventually("they are cleared", func() bool { return !p.ok(wire.Request{Op: wire.Stat}).State.Clearing })
	for i, want := range []wire.Status{wire.StatusMiss, wire.StatusMiss, wire.StatusHit, wire.StatusHit} {
		require.Equal(t, want, p.ok(wire.Request{Op: wire.Pin, Lease: "l", Space: spaces[i], Names: []string{"a"}}).Items[0].Status, spaces[i])
	}
	p.release("l")
}

// TestClearLogFlood: a client that clears in a loop fills no log: a line for each state and minute.
func TestClearLogFlood(t *testing.T) {
	var log syncBuffer
	b := newBed(t, func(b *bed) { b.so.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	p := b.hello(session1)
	p.store(b, "a")
	for i := range 2000 {
		p.do(wire.Request{Op: wire.Clear, Space: fmt.Sprintf("space%d", i%50)}) // which may be busy
	}
	b.eventually("all is cleared", func() bool { return !b.server.registry.Counts().Clearing })
	require.NoError(t, b.server.Shutdown(t.Context()))
	lines := strings.Count(log.String(), "\n")
	require.LessOrEqual(t, lines, 10, log.String())
	require.Equal(t, 1, strings.Count(log.String(), `msg="objects are being deleted, as a client wants"`))
	require.Equal(t, 1, strings.Count(log.String(), `msg="objects were deleted"`))
}

// syncBuffer is a buffer for a log of many goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestReplyToClearSaysThatItGoesOn: one that was done already when the reply was made had no state of clearing, and
// the levels as they were afterwards.
func TestReplyToClearSaysThatItGoesOn(t *testing.T) {
	b := newBed(t, nil)
	p := b.hello(session1)
	for range 300 {
		require.True(t, p.ok(wire.Request{Op: wire.Clear, Space: "empty"}).State.Clearing)
	}
	b.eventually("all is cleared", func() bool { return !b.server.State().Clearing })
}
