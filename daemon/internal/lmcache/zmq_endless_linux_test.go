package lmcache

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/internal/zmtp"
)

// TestSubscriptionsThatNobodyReads: a client that begins one again and again, and takes nothing, has a few at
// most under way; the next one waits.
func TestSubscriptionsThatNobodyReads(t *testing.T) {
	b := overZMQBed(t, nil)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	defer l.Close()
	client, err := net.Dial("unix", l.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	raw, err := l.Accept()
	require.NoError(t, err)
	defer raw.Close()
	conn, err := b.server.identify(raw)
	require.NoError(t, err)
	defer b.server.closed(conn)
	ctx, cancel := context.WithCancel(t.Context())
	nobody, unread := net.Pipe() // has room for nothing
	defer unread.Close()
	p := newZMQPeer(NewZMQ(b.server), zmtp.New(nobody, zmtp.Options{MaxMessage: maxMessage, SendTimeout: time.Hour}),
		caller{ctx: ctx, conn: conn, id: newID()})
	begin := func() error {
		number := msgp.AppendInt(nil, 7)
		return p.subscribe(number, msgp.AppendString(nil, subscription), [][]byte{
			msgp.AppendInt(nil, 1), msgp.AppendString(nil, "org/model"), msgp.AppendInt(nil, 0), msgp.AppendInt(nil, 10),
		})
	}
	for range maxEnding {
		require.NoError(t, begin())
	}
	cancel()
	require.ErrorIs(t, begin(), context.Canceled)
	require.NoError(t, nobody.Close())
	p.calls.Wait()
}

// TestSubscriptionKeepsNoLargeMessage: what it has of its call has no room of the budget.
func TestSubscriptionKeepsNoLargeMessage(t *testing.T) {
	q := &mp.SubscribeKvEventsRequest{InstanceId: 1, ModelName: strings.Repeat("m", 32<<10), MaxEvents: 10}
	for name, newBedOf := range map[string]func(*testing.T, func(*bed)) *bed{
		"gRPC": func(t *testing.T, change func(*bed)) *bed { t.Helper(); return newBed(t, change) }, "ZMQ": overZMQBed,
	} {
		t.Run(name, func(t *testing.T) {
			s := newBedOf(t, nil).engine("engine", since057).subscribeBy("KVEventService", q)
			require.ErrorContains(t, s.receive(&mp.KVEventBatch{}), "the model's name")
		})
	}
}

// TestNumberOfACallThatOutlivesItsMessage: also one of a call that waits may be as long as a message, and is
// kept.
func TestNumberOfACallThatOutlivesItsMessage(t *testing.T) {
	b := overZMQBed(t, nil)
	c := &zmqConn{bed: b, address: "unix:" + b.socket}
	t.Cleanup(func() { _ = c.Close() })
	number := make([]byte, 1<<20)
	for _, call := range [][][]byte{
		{msgp.AppendInt(nil, 10), msgp.AppendString(nil, "r"), msgp.AppendFloat64(nil, 1)},
		{msgp.AppendString(nil, subscription), msgp.AppendInt(nil, 1), msgp.AppendString(nil, "m"), msgp.AppendInt(nil, 0), msgp.AppendInt(nil, 1)},
	} {
		answer := c.exchange(append([][]byte{number}, call...)...)
		if len(answer) != 2 { // without the number in the text
			t.Fatal("it is not refused")
		}
		text, _, err := msgp.ReadStringBytes(answer[1])
		require.NoError(t, err)
		require.Contains(t, text, "too large")
	}
}
