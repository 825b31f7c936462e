package lmcache

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/internal/zmtp"
)

// TestSubscriptionsThatNobodyReads: a client that begins one again and again, and takes nothing, has a few at most under
// way; the next one waits.
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
