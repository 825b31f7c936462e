package lmcache

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
)

// zmqEvents is a subscription by ZMQ, of a connection of its own.
type zmqEvents struct {
	*zmqConn
	number []byte
	begun  bool // a batch was received, which is acknowledged when the next one is wanted
}

func (z *zmqConn) subscribe(q *mp.SubscribeKvEventsRequest) *zmqEvents {
	z.Helper()
	own := &zmqConn{bed: z.bed, address: z.address}
	var err error
	own.c, err = own.dial()
	require.NoError(z, err)
	z.Cleanup(func() { _ = own.Close() })
	s := &zmqEvents{zmqConn: own, number: msgp.AppendInt(nil, 7)}
	s.send(q)
	return s
}

// send sends the call.
func (s *zmqEvents) send(q *mp.SubscribeKvEventsRequest) {
	s.Helper()
	require.NoError(s, s.c.Send([][]byte{
		s.number, msgp.AppendString(nil, subscription),
		msgp.AppendInt64(nil, q.InstanceId), msgp.AppendString(nil, q.ModelName), msgp.AppendInt64(nil, q.Cursor), msgp.AppendInt64(nil, q.MaxEvents),
	}))
}

// control sends something about the subscription.
func (s *zmqEvents) control(what string) {
	s.Helper()
	require.NoError(s, s.c.Send([][]byte{s.number, nil, []byte(what)}))
}

// receive takes the next batch, as LMCache's client does.
func (s *zmqEvents) receive(b *mp.KVEventBatch) error {
	s.Helper()
	if s.begun {
		_ = s.c.Send([][]byte{s.number, nil, []byte("ack")}) // the server may have ended
	}
	return s.read(b)
}

// read reads the next message of the subscription, io.EOF is its end.
func (s *zmqEvents) read(b *mp.KVEventBatch) error {
	s.Helper()
	frames, err := s.c.Receive()
	require.NoError(s, err)
	require.GreaterOrEqual(s, len(frames), 2)
	require.Equal(s, s.number, frames[0])
	op, _, err := msgp.ReadStringBytes(frames[1])
	require.NoError(s, err)
	switch {
	case op != subscription:
		return errors.New(op)
	case len(frames) == 2:
		return io.EOF
	}
	s.begun = true
	readBatch(s, frames[2], b)
	return nil
}

// readBatch reads a batch, all of whose fields must be there.
func readBatch(t require.TestingT, frame []byte, b *mp.KVEventBatch) {
	d := &decoder{rest: frame, kind: errArguments}
	d.fields(5, func(name string) {
		switch name {
		case "enabled":
			b.Enabled = d.truth()
		case "incarnation":
			b.Incarnation = int64(d.integer())
		case "next_cursor":
			b.NextCursor = int64(d.integer())
		case "lost":
			b.Lost = d.truth()
		case "events":
			d.list(maxBatch, func(d *decoder) {
				r := &mp.KVEventRecord{}
				d.fields(7, func(name string) {
					switch name {
					case "seq":
						r.Seq = int64(d.integer())
					case "kind":
						r.Kind = d.text()
					case "medium":
						r.Medium = d.text()
					case "model_name":
						r.ModelName = d.text()
					case "block_hashes":
						d.list(1, func(d *decoder) { r.BlockHashes = append(r.BlockHashes, append([]byte(nil), d.bytes()...)) })
					case "parent_block_hash":
						if !d.null() {
							r.ParentBlockHash = append([]byte(nil), d.bytes()...)
						}
					case "token_ids":
						r.TokenIds = d.integers(batchTokens)
					default:
						d.fail("a field %q", name)
					}
				})
				b.Events = append(b.Events, r)
			})
		default:
			d.fail("a field %q", name)
		}
	})
	require.NoError(t, d.err)
	require.Empty(t, d.rest)
}

// TestEventsByZMQAreAcknowledged: a worker that takes none has one batch under way, whatever happens, and goes on from
// there; it may end the subscription, and has a few at most.
func TestEventsByZMQAreAcknowledged(t *testing.T) {
	b := overZMQBed(t, func(b *bed) { b.mo.Size = 4 << 20 })
	e := b.engine("engine", since057)
	e.register(1, 1)
	q := &mp.SubscribeKvEventsRequest{InstanceId: 1, ModelName: "org/model", MaxEvents: 1024}
	s := e.conn.(*zmqConn).subscribe(q)
	first := &mp.KVEventBatch{}
	require.NoError(t, s.receive(first))
	for i := range 20 {
		require.Equal(t, 2, e.store(of(e.key("w", prompt(100*i, 32), 0, 32), 0), 1))
	}
	s.number = msgp.AppendInt(nil, 8) // the next message on this connection is the answer to this call, not a batch
	require.NoError(t, s.c.Send([][]byte{s.number, msgp.AppendString(nil, "noop")}))
	frames, err := s.c.Receive()
	require.NoError(t, err)
	require.Equal(t, s.number, frames[0])
	s.number = msgp.AppendInt(nil, 7)
	all := &mp.KVEventBatch{}
	require.NoError(t, s.receive(all))
	require.Len(t, all.Events, 40)
	require.False(t, all.Lost)
	s.control("ack")
	s.control("ack") // of nothing: one more batch may be under way then, and no more
	s.control("neither")
	s.control("cancel")
	require.ErrorIs(t, s.read(&mp.KVEventBatch{}), io.EOF)
	s.control("cancel") // of one that has ended

	// A number is used again, in place of what it was.
	s.send(q)
	require.NoError(t, s.read(&mp.KVEventBatch{}))
	s.send(&mp.SubscribeKvEventsRequest{InstanceId: 2, ModelName: "org/model", MaxEvents: 1024})
	ends := 0
	for range 2 {
		if err := s.read(&mp.KVEventBatch{}); err != nil {
			require.ErrorIs(t, err, io.EOF)
			ends++
		}
	}
	require.Equal(t, 1, ends)
	for n := range int64(maxStreams - 1) {
		s.number = msgp.AppendInt64(nil, 10+n)
		s.send(&mp.SubscribeKvEventsRequest{InstanceId: 10 + n, ModelName: "org/model", MaxEvents: 1024})
		require.NoError(t, s.read(&mp.KVEventBatch{}))
	}
	s.number = msgp.AppendInt64(nil, 100)
	s.send(&mp.SubscribeKvEventsRequest{InstanceId: 100, ModelName: "org/model", MaxEvents: 1024})
	require.EqualError(t, s.read(&mp.KVEventBatch{}), errStreams.Error())
	require.NoError(t, s.c.Send([][]byte{s.number, msgp.AppendString(nil, subscription), msgp.AppendNil(nil)}))
	require.ErrorContains(t, s.read(&mp.KVEventBatch{}), "the call can't be read")
	b.nothingHeld()
}
