package kvevents

import (
	"bytes"
	"context"
	"encoding/binary"
	"io/fs"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/internal/zmtp"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/kv/directory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// batchOf is a batch with one event; lists is the form of older releases.
func batchOf(ts float64, kind string, lists bool, hashes ...int64) []byte {
	b := msgp.AppendArrayHeader(msgp.AppendFloat64(msgp.AppendArrayHeader(nil, 2), ts), 1)
	if lists {
		b = msgp.AppendString(msgp.AppendArrayHeader(b, 2), kind)
	} else {
		b = msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(b, 2), "type"), kind)
		b = msgp.AppendString(b, "block_hashes")
	}
	b = msgp.AppendArrayHeader(b, uint32(len(hashes)))
	for _, h := range hashes {
		b = msgp.AppendInt64(b, h)
	}
	return b
}

// publisher is an engine's.
type publisher struct {
	t       *testing.T
	pub     net.Listener
	router  net.Listener
	mu      sync.Mutex
	batches [][]byte
	first   uint64 // the oldest that it has
	subs    []*zmtp.Conn
	work    sync.WaitGroup
	joined  chan struct{}
}

func newPublisher(t *testing.T) *publisher {
	p := &publisher{t: t, joined: make(chan struct{}, 16)}
	var err error
	p.pub, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p.router, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p.accept(p.pub, zmq4.Pub, func(c *zmtp.Conn) {
		frames, err := c.Receive()
		if err == nil && len(frames) == 1 && string(frames[0]) == "\x01" {
			p.mu.Lock()
			p.subs = append(p.subs, c)
			p.mu.Unlock()
			p.joined <- struct{}{}
			_, _ = c.Receive() // until it goes
		}
	})
	p.answer()
	t.Cleanup(func() {
		p.pub.Close()
		p.router.Close()
		p.hangUp()
		p.work.Wait()
	})
	return p
}

// answer begins to answer those that have missed batches.
func (p *publisher) answer() {
	p.accept(p.router, zmq4.Router, func(c *zmtp.Conn) {
		frames, err := c.Receive()
		if err != nil {
			return
		}
		from := binary.BigEndian.Uint64(frames[1])
		p.mu.Lock()
		defer p.mu.Unlock()
		for n := max(from, p.first); n < uint64(len(p.batches)); n++ {
			_ = c.Send([][]byte{{}, []byte("topic"), binary.BigEndian.AppendUint64(nil, n), p.batches[n]})
		}
		_ = c.Send([][]byte{{}, []byte("topic"), binary.BigEndian.AppendUint64(nil, 1<<64-1), {}})
	})
}

func (p *publisher) accept(l net.Listener, kind zmq4.SocketType, serve func(*zmtp.Conn)) {
	p.work.Go(func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			p.work.Go(func() {
				defer raw.Close()
				c := zmtp.New(raw, zmtp.Options{MaxMessage: 1 << 20, SendTimeout: time.Minute})
				if _, err := c.Greet(kind, time.Minute); err == nil {
					serve(c)
				}
			})
		}
	})
}

func (p *publisher) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.subs {
		c.Close()
	}
	p.subs = nil
}

// publish sends a batch, unless it is lost.
func (p *publisher) publish(lost bool, batch []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := uint64(len(p.batches))
	p.batches = append(p.batches, batch)
	for _, c := range p.subs {
		if !lost {
			require.NoError(p.t, c.Send([][]byte{[]byte("topic"), binary.BigEndian.AppendUint64(nil, n), batch}))
		}
	}
}

func (p *publisher) restart() {
	p.hangUp()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batches, p.first = nil, 0
}

func holds(d *directory.Directory, hashes ...int64) (n int, stale bool) {
	chain := make([]directory.Key, len(hashes))
	for i, h := range hashes {
		chain[i] = keyOf("m", 0, binary.BigEndian.AppendUint64(nil, uint64(h)))
	}
	for _, p := range d.Find(chain, directory.Query{}) {
		n, stale = p.Chunks, p.Stale
	}
	return n, stale
}

// follow starts to follow p, and returns a function that waits until the directory has some of some blocks.
func follow(t *testing.T, p *publisher, replay bool) func(want int, stale bool, hashes ...int64) {
	d := directory.New(directory.Options{})
	s := Source{Endpoint: "tcp://" + p.pub.Addr().String(), Instance: "i", Model: "m"}
	if replay {
		s.Replay = "tcp://" + p.router.Addr().String()
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Follow(ctx, d, s) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		require.Empty(t, d.Workers(""), "who is not followed is not known")
	})
	return func(want int, stale bool, hashes ...int64) {
		require.Eventually(t, func() bool {
			n, odd := holds(d, hashes...)
			return n == want && odd == stale
		}, time.Minute, time.Millisecond)
	}
}

// TestReplay: what came before, what was lost and a publisher that begins anew make no difference, as long as
// it has its batches; what it has no more makes the instance stale.
func TestReplay(t *testing.T) {
	p := newPublisher(t)
	p.publish(false, batchOf(1, stored, false, 1, 2)) // nobody is there
	p.publish(false, batchOf(2, stored, true, 3, -4))
	expect := follow(t, p, true)
	expect(4, false, 1, 2, 3, -4)
	<-p.joined
	p.publish(true, batchOf(3, removed, false, 2))
	p.publish(false, batchOf(4, stored, false, 5))
	expect(1, false, 1, 2, 3)
	expect(1, false, 5)
	p.hangUp() // the same process
	<-p.joined
	p.publish(false, batchOf(5, stored, false, 2))
	expect(5, false, 1, 2, 3, -4, 5)
	p.restart()
	p.publish(false, batchOf(6, stored, false, 9))
	expect(1, false, 9)
	expect(0, false, 1)
	<-p.joined
	p.publish(false, batchOf(7, cleared, true))
	expect(0, false, 9)
	p.publish(false, []byte("nonsense"))
	p.publish(false, batchOf(8, stored, false, 7))
	expect(1, true, 7)

	late := newPublisher(t)
	late.publish(true, batchOf(1, stored, false, 1))
	late.publish(true, batchOf(2, stored, false, 2))
	late.first = 1
	follow(t, late, true)(1, true, 2)
}

// TestWithoutReplay: from its first batch on the publisher is followed, and after a loss or a pause it is stale.
func TestWithoutReplay(t *testing.T) {
	p := newPublisher(t)
	expect := follow(t, p, false)
	<-p.joined
	p.publish(false, batchOf(1, stored, false, 1))
	expect(1, false, 1)
	p.publish(true, batchOf(2, stored, false, 2))
	p.publish(false, batchOf(3, stored, false, 3))
	expect(1, true, 3)
	p.hangUp()
	<-p.joined
	expect(0, false, 1)
	p.publish(false, batchOf(4, stored, false, 4))
	expect(1, true, 4)
	p.restart()
	<-p.joined
	p.publish(false, batchOf(5, stored, false, 5))
	expect(1, false, 5)
}

// TestBatches: both forms of events are read, hashes as numbers and as bytes have one key, and anything else
// is refused.
func TestBatches(t *testing.T) {
	long := append(make([]byte, 24), 0, 0, 0, 0, 0, 0, 0, 7)
	b := msgp.AppendArrayHeader(msgp.AppendFloat64(msgp.AppendArrayHeader(nil, 3), 1), 1)
	b = msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(b, 4), "type"), stored)
	b = msgp.AppendBytes(msgp.AppendArrayHeader(msgp.AppendString(b, "block_hashes"), 1), long)
	b = msgp.AppendString(msgp.AppendString(b, "medium"), "CPU")
	b = msgp.AppendInt(msgp.AppendNil(msgp.AppendString(b, "group_idx")), 0)
	events, err := parseBatch(b)
	require.NoError(t, err)
	require.Equal(t, []event{{kind: stored, hashes: [][8]byte{{7: 7}}, medium: "CPU"}}, events)
	events, err = parseBatch(batchOf(1, stored, true, 7))
	require.NoError(t, err)
	require.Equal(t, []event{{kind: stored, hashes: [][8]byte{{7: 7}}, medium: "GPU"}}, events)
	for _, wrong := range [][]byte{nil, {0x90}, []byte("\x92\x01\xdd\xff\xff\xff\xff"), batchOf(1, "Other", false),
		b[:len(b)-1]} {
		_, err := parseBatch(wrong)
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
	for _, s := range []Source{{Endpoint: "tcp://*:5557", Instance: "i"}, {Endpoint: "x", Instance: "i"},
		{Endpoint: "tcp://a:1"}, {Endpoint: "tcp://a:1", Instance: "i", Replay: "b"}} {
		require.ErrorIs(t, Follow(t.Context(), nil, s), fs.ErrInvalid)
	}
	h, err := kv.NewHasher(kv.Scheme{Algorithm: kv.SHA256CBOR, ChunkTokens: 2})
	require.NoError(t, err)
	c := h.NewChain()
	require.NoError(t, c.SetTokens([]int64{1, 2}))
	require.Equal(t, []directory.Key{keyOf("m", 0, c.Hash(0)[24:])}, AppendKeys(nil, "m", c))
}

// TestBatchOfNoEvents: a list that can't be one of events takes no memory: an event has many times the bytes of a nil.
func TestBatchOfNoEvents(t *testing.T) {
	const n = 1 << 20
	b := msgp.AppendArrayHeader(msgp.AppendFloat64(msgp.AppendArrayHeader(nil, 2), 1), n)
	b = append(b, bytes.Repeat([]byte{0xc0}, n)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := parseBatch(b)
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, "1048576 events in 1048576 bytes")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20))
}

// FuzzBatch: no batch makes parseBatch panic, or take more than a small multiple of its bytes.
func FuzzBatch(f *testing.F) {
	f.Add(batchOf(1, stored, false, 1, -2))
	f.Add(batchOf(1, removed, true, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		events, err := parseBatch(b)
		if err != nil {
			require.ErrorIs(t, err, fs.ErrInvalid)
		}
		require.LessOrEqual(t, len(events), len(b))
	})
}

// TestLateWithoutReplay: who begins to follow in the midst does not know what was before.
func TestLateWithoutReplay(t *testing.T) {
	p := newPublisher(t)
	p.publish(true, batchOf(1, stored, false, 1))
	expect := follow(t, p, false)
	<-p.joined
	p.publish(false, batchOf(2, stored, false, 2))
	expect(1, true, 2)
}

// TestReplayHasLessThanWasLost: of the batches that were lost the publisher has the last ones only.
func TestReplayHasLessThanWasLost(t *testing.T) {
	p := newPublisher(t)
	expect := follow(t, p, true)
	<-p.joined
	p.publish(false, batchOf(1, stored, false, 1))
	expect(1, false, 1)
	p.publish(true, batchOf(2, removed, false, 1))
	p.publish(true, batchOf(3, stored, false, 3))
	p.mu.Lock()
	p.first = 2
	p.mu.Unlock()
	p.publish(false, batchOf(4, stored, false, 4))
	expect(2, true, 3, 4)
}

// TestNewProcessSentMore: a publisher that begins anew, and has sent more batches than the one before it, is known from
// its first batch on.
func TestNewProcessSentMore(t *testing.T) {
	p := newPublisher(t)
	p.publish(true, batchOf(1, stored, false, 1))
	p.publish(true, batchOf(2, stored, false, 2))
	expect := follow(t, p, true)
	<-p.joined
	expect(2, false, 1, 2)
	p.mu.Lock()
	p.batches = [][]byte{batchOf(7, stored, false, 7), batchOf(8, stored, false, 8), batchOf(9, stored, false, 9)}
	p.mu.Unlock()
	p.hangUp()
	expect(3, false, 7, 8, 9)
	expect(0, false, 1)
}

// TestReplayFails: while a source with a replay endpoint has no replay, nothing is claimed that may be wrong,
// reports are followed, and all is right again once there is a replay.
func TestReplayFails(t *testing.T) {
	p := newPublisher(t)
	p.publish(true, batchOf(1, stored, false, 1))
	at := p.router.Addr().String()
	require.NoError(t, p.router.Close())
	expect := follow(t, p, true)
	<-p.joined
	p.publish(false, batchOf(2, stored, false, 2))
	expect(1, true, 2)
	var err error
	p.router, err = net.Listen("tcp", at)
	require.NoError(t, err)
	p.answer()
	p.hangUp()
	expect(2, false, 1, 2)
}

// TestEventsOfNothing: elements of one byte do not become events of 64.
func TestEventsOfNothing(t *testing.T) {
	b := msgp.AppendArrayHeader(msgp.AppendFloat64(msgp.AppendArrayHeader(nil, 2), 1), 1<<20)
	_, err := parseBatch(append(b, make([]byte, 1<<20)...))
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, "events in")
}
