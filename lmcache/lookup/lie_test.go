package lookup

import (
	"context"
	"encoding/binary"
	"flag"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/internal/zmtp"
	"github.com/ringcache/ringcache/kv"
)

var (
	lies    = flag.Int("lookup.lies", 4000, "TestLies sends so many lying messages")
	lieSeed = flag.Uint64("lookup.lies.seed", 1, "seed of TestLies")
)

const liars = 6

// TestLies: liars send frames that can't be read, numbers that do not fit, lengths of what is not there, and
// other protocols, and go in the middle of a message. The scheduler beside them gets right answers, and
// nothing is left of them.
func TestLies(t *testing.T) {
	var lines log
	scheme := kv.Scheme{Algorithm: kv.SHA256CBOR, ChunkTokens: 4}
	s, path := serve(t, ServerOptions{
		Lookup: func(_ context.Context, r Request) (int, error) {
			if _, err := kv.ParseTags([]byte(r.Options)); err != nil {
				return 0, err
			}
			if r.ID != "honest" {
				return -1, nil
			}
			return 4 * (len(r.Hashes) - 1), nil
		},
		Hasher: newHasher(t, scheme), MaxMessage: 1 << 16, MaxConns: liars + 1,
		Logger: slog.New(slog.NewTextHandler(&lines, nil)),
	})
	c := connect(t, ClientOptions{Paths: []string{path}, Database: newDatabase(t, scheme)})
	honest := func() {
		n, err := c.Lookup(t.Context(), "honest", tokens(40), "")
		require.NoError(t, err)
		require.Equal(t, 36, n)
	}
	honest() // it has its connection
	begin, before := time.Now(), heap()
	var told atomic.Int64
	var answered, ended atomic.Int64
	var all sync.WaitGroup
	for i := range liars {
		all.Go(func() {
			//nolint:gosec // lies can be repeated
			l := &liar{rng: rand.New(rand.NewPCG(*lieSeed, uint64(i))), path: path}
			for told.Add(1) <= int64(*lies) {
				if l.lie() {
					answered.Add(1)
				} else {
					ended.Add(1)
				}
			}
			l.hangUp()
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	questions, most := 0, uint64(0)
	for going := true; going; questions++ {
		honest()
		if questions%1000 == 0 {
			most = max(most, heap())
		}
		select {
		case <-done:
			going = false
		default:
		}
	}
	took := time.Since(begin)
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.conns == 1
	}, time.Minute, time.Millisecond, "only the scheduler is connected")
	honest()
	require.LessOrEqual(t, len(s.recent), maxRecent)
	require.LessOrEqual(t, strings.Count(lines.String(), "\n"), 3*(2+int(took/time.Minute)),
		"a line a minute of each kind")
	require.Positive(t, answered.Load())
	require.Positive(t, ended.Load())
	after := heap()
	require.Less(t, after, before+(8<<20))
	t.Logf(
		"%d lies in %v: %d answered with 0, %d ended their connection; "+
			"%d right answers beside them; heap %d KiB before, %d at most, %d after",
		*lies, took.Round(time.Second), answered.Load(), ended.Load(), questions, before>>10, most>>10, after>>10)
}

// heap returns the bytes of what is reachable.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A liar keeps a connection for as long as the server does.
type liar struct {
	rng  *rand.Rand
	path string
	raw  net.Conn
	conn *zmtp.Conn // greeted, or nil
}

func (l *liar) hangUp() {
	if l.raw != nil {
		_ = l.raw.Close()
	}
	l.raw, l.conn = nil, nil
}

// dial connects. All places may be taken for a moment.
func (l *liar) dial() {
	for l.raw == nil {
		raw, err := net.Dial("unix", l.path)
		if err != nil {
			continue
		}
		l.raw = raw
	}
}

// lie sends one message, and reports whether it was answered. Any answer is 0.
func (l *liar) lie() bool {
	if l.rng.IntN(50) == 0 { // no ZMTP, or not to its end
		l.hangUp()
		l.dial()
		_, _ = l.raw.Write(l.noise())
		l.hangUp()
		return false
	}
	for l.conn == nil {
		l.dial()
		conn := zmtp.New(l.raw, zmtp.Options{MaxMessage: 1 << 16, SendTimeout: time.Minute})
		if _, err := conn.Greet("REQ", time.Minute); err != nil {
			l.hangUp()
			continue
		}
		l.conn = conn
	}
	if l.rng.IntN(40) == 0 { // frames whose lengths lie
		_, _ = l.raw.Write(l.noise())
		l.hangUp()
		return false
	}
	if err := l.conn.Send(l.question()); err == nil {
		if answer, err := l.conn.Receive(); err == nil {
			if n, err := readAnswer(answer); err != nil || n != 0 {
				panic("a lie has an answer that is not 0")
			}
			return true
		}
	}
	l.hangUp()
	return false
}

// noise is bytes that are no frames, or the heads of frames that never come.
func (l *liar) noise() []byte {
	b := make([]byte, l.rng.IntN(100))
	for i := range b {
		b[i] = byte(l.rng.Uint32())
	}
	heads := []string{
		"", "\x02\xff\xff\xff\xff\xff\xff\xff\xff", "\x03\x00\x00\x00\x00\x7f\xff\xff\xff",
		"\x01\x00\x01\x7f", "\x04\x05READY", "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03",
		"GET / HTTP/1.1\r\n\r\n",
	}
	return append([]byte(heads[l.rng.IntN(len(heads))]), b...)
}

// question is one that is right but for something.
func (l *liar) question() [][]byte {
	r := Request{ID: "lies", Options: "{}"}
	for range 1 + l.rng.IntN(8) {
		r.Hashes, r.Lengths = append(r.Hashes, "7"), append(r.Lengths, 4)
	}
	frames, err := appendQuestion(r, false)
	if err != nil {
		panic(err)
	}
	for range 1 + l.rng.IntN(3) {
		i := l.rng.IntN(len(frames))
		switch l.rng.IntN(12) {
		case 0:
			frames[i] = l.noise()
		case 1:
			frames[i] = nil
		case 2: // a list of more than there is
			frames[i] = msgp.AppendArrayHeader(nil, l.rng.Uint32())
		case 3: // or a text
			frames[i] = append(binary.BigEndian.AppendUint32([]byte{0xdb}, l.rng.Uint32()), "x"...)
		case 4:
			frames[i] = append(frames[i], 0)
		case 5:
			frames = append(frames, l.noise())
		case 6:
			frames = frames[:max(1, len(frames)-1)]
		case 7:
			if b := frames[i]; len(b) > 0 {
				frames[i] = append([]byte(nil), b...)
				frames[i][l.rng.IntN(len(b))] ^= 1 << l.rng.IntN(8)
			}
		case 8:
			frames[i] = msgp.AppendInt64(nil, int64(l.rng.Uint64()))
		case 9: // a list in a list in a list
			frames[i] = []byte(strings.Repeat("\x91", l.rng.IntN(2000)))
		case 10: // many bytes
			frames[i] = append(msgp.AppendArrayHeader(nil, 40000), make([]byte, 40000)...)
		case 11:
			frames[i] = msgp.AppendString(nil, strings.Repeat("[", l.rng.IntN(20000)))
		}
	}
	return frames
}
