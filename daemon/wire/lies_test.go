package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
)

var (
	lies     = flag.Int("lies", 5000, "byte streams that TestLies feeds to the readers of requests and replies")
	liesSeed = flag.Uint64("lies-seed", 1, "seed of TestLies")
)

// liar makes streams that are wrong in many ways, and sometimes right.
type liar struct {
	*rand.Rand
	frames [][]byte
}

func newLiar(t *testing.T, seed uint64) *liar {
	l := &liar{Rand: rand.New(rand.NewPCG(seed, 2))}
	keep := func(frame []byte, err error) {
		require.NoError(t, err)
		l.frames = append(l.frames, frame)
	}
	for _, q := range requestExamples() {
		keep(AppendRequest(nil, q))
	}
	for _, p := range replyExamples() {
		keep(AppendReply(nil, p))
	}
	keep(AppendRequest(nil, pinRequest(64)))
	keep(AppendReply(nil, pinReply(64)))
	return l
}

func (l *liar) frame() []byte { return bytes.Clone(l.frames[l.IntN(len(l.frames))]) }

// stream returns a few frames with something wrong.
func (l *liar) stream() []byte {
	var b []byte
	for range 1 + l.IntN(4) {
		f := l.frame()
		for range l.IntN(4) {
			f = l.spoil(f)
		}
		b = append(b, f...)
	}
	if l.IntN(4) == 0 {
		b = b[:l.IntN(len(b)+1)]
	}
	return b
}

// spoil returns a frame that is wrong in one way more. The length is right afterwards more often than not, so
// that the body is looked at.
func (l *liar) spoil(f []byte) []byte {
	if len(f) <= header {
		return append(f, l.noise(1+l.IntN(20))...)
	}
	body := f[header:]
	at := l.IntN(len(body))
	switch l.IntN(14) {
	case 0:
		body[at] ^= 1 << l.IntN(8)
	case 1:
		body[at] = byte(l.Uint32())
	case 2:
		body = append(body[:at:at], append(l.noise(1+l.IntN(8)), body[at:]...)...)
	case 3:
		body = body[:at]
	case 4: // a piece of another one
		other := l.frame()[header:]
		body = append(body[:at:at], other[l.IntN(len(other)):]...)
	case 5: // a piece of it twice
		end := at + l.IntN(len(body)-at+1)
		body = append(body[:end:end], body[at:]...)
	case 6: // a header that announces much
		bombs := [][]byte{{0xdd, 255, 255, 255, 255}, {0xdf, 0, 255, 255, 255}, {0xdb, 255, 255, 255, 255}, {0xc6, 0, 15, 255, 255}, {0xdc, 255, 255}, {0xde, 4, 1}, {0xdc, 4, 1}}
		body = append(body[:at:at], append(bytes.Clone(bombs[l.IntN(len(bombs))]), body[at:]...)...)
	case 7: // deep
		body = append(body[:at:at], append(bytes.Repeat([]byte{[]byte{0x91, 0x81}[l.IntN(2)]}, l.IntN(200)), body[at:]...)...)
	case 8: // a pair more, or fewer
		if body[0] >= 0x80 && body[0] < 0x8f {
			body[0] += byte(l.IntN(3)) - 1
		}
	case 9: // a list of as little as possible, under a key where one may be
		key := []string{"names", "leases", "objects", "items", "levels"}[l.IntN(5)]
		n := l.IntN(1500)
		body = msgp.AppendString(append([]byte{0x83}, "\xa2id\x07"...), key)
		body = msgp.AppendArrayHeader(body, uint32(n))
		body = append(body, bytes.Repeat([]byte{[]byte{0xa0, 0x80, 0x90, 0x00}[l.IntN(4)]}, n)...)
		body = append(body, "\xa2op\xa3pin"...)
	case 10: // a length that is wrong
		length := []uint32{0, l.Uint32(), uint32(l.IntN(MaxRequest + 2)), MaxRequest, MaxReply, MaxReply + 1}[l.IntN(6)]
		return append(binary.LittleEndian.AppendUint32(nil, length), body...)
	case 11: // bytes only
		body = l.noise(1 + l.IntN(100))
	case 12: // another op
		ops := [][]byte{[]byte("\xa3pin"), []byte("\xa3get"), []byte("\xa4stat"), []byte("\xa5abort"), []byte("\xa5clear"), []byte("\xa5hello"), []byte("\xa6commit")}
		for _, o := range ops {
			body = bytes.Replace(body, o, ops[l.IntN(len(ops))], 1)
		}
	case 13: // extremes in place of a number
		values := [][]byte{{0xcf, 255, 255, 255, 255, 255, 255, 255, 255}, {0xd3, 128, 0, 0, 0, 0, 0, 0, 0}, {0xff}, {0xce, 255, 255, 255, 255}, {0xca, 0x7f, 0xc0, 0, 0}, {0xc0}}
		body = append(body[:at:at], append(bytes.Clone(values[l.IntN(len(values))]), body[min(at+1, len(body)):]...)...)
	}
	return frameOf(body)
}

func (l *liar) noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(l.Uint32())
	}
	return b
}

// TestLies: whatever arrives is read or refused, in memory that is in proportion to its bytes, and without
// waiting for what does not come.
func TestLies(t *testing.T) {
	l := newLiar(t, *liesSeed)
	const batch = 500
	var q Request
	var p Reply
	var accepted, refused, cut int
	streams := make([][]byte, 0, batch)
	for done := 0; done < *lies; done += batch {
		streams = streams[:0]
		var sent, bodies uint64
		for range batch {
			s := l.stream()
			streams = append(streams, s)
			sent += uint64(len(s))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for _, s := range streams {
			r := NewReader(bytes.NewReader(s), MaxRequest)
			for {
				body, err := r.Next()
				var bad *Error
				switch {
				case errors.As(err, &bad):
					refused++
				case errors.Is(err, io.ErrUnexpectedEOF):
					cut++
				case err != nil && err != io.EOF: //nolint:errorlint // Next returns io.EOF itself
					t.Fatalf("%x: %v", s, err)
				}
				if err != nil {
					break
				}
				bodies++
				for _, err := range []error{DecodeRequest(body, &q), DecodeReply(body, &p)} {
					if err == nil {
						accepted++
					} else {
						refused++
					}
				}
			}
		}
		runtime.ReadMemStats(&after)
		// A reader takes its first room, each refusal its text, and what is read a multiple of its bytes.
		most := batch*2*firstRoom + 4096*bodies + 64*sent
		require.Less(t, after.TotalAlloc-before.TotalAlloc, most, "bytes for %d streams of %d bytes, seed %d, after %d", batch, sent, *liesSeed, done)
		if done%(50*batch) == 0 {
			for _, s := range streams {
				r := NewReader(bytes.NewReader(s), MaxRequest)
				for body, err := r.Next(); err == nil; body, err = r.Next() {
					checkRequest(t, body)
					checkReply(t, body)
				}
			}
		}
	}
	t.Logf("%d streams: %d bodies read, %d refused, %d streams cut short", *lies, accepted, refused, cut)
	require.Greater(t, accepted, *lies/20, "some of it is right, or nothing but the beginning was tested")
	require.Greater(t, refused, *lies/2)
	require.Greater(t, cut, *lies/20)
}
