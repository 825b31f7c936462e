package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/internal/alloctest"
)

func frameOf(body []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// chunks is a stream that returns at most so many bytes at a time, and sometimes an error in between that is
// not its end.
type chunks struct {
	b     []byte
	sizes func() int // 0 is an error
}

func (c *chunks) Read(b []byte) (int, error) {
	if len(c.b) == 0 {
		return 0, io.EOF
	}
	n := min(c.sizes(), len(c.b), len(b))
	if n == 0 {
		return 0, os.ErrDeadlineExceeded
	}
	copy(b, c.b[:n])
	c.b = c.b[n:]
	return n, nil
}

// TestFramesInAnyPieces: how a stream is cut, and timeouts in between, change nothing.
func TestFramesInAnyPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream []byte
		var bodies [][]byte
		for range rapid.IntRange(0, 6).Draw(t, "frames") {
			size := rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(firstRoom-8, firstRoom+8), rapid.IntRange(1, 3*keptRoom)).Draw(t, "size")
			body := bytes.Repeat([]byte{byte(len(bodies) + 1)}, size)
			bodies = append(bodies, body)
			stream = append(stream, frameOf(body)...)
		}
		cut := rapid.IntRange(0, len(stream)).Draw(t, "cut")
		whole, at := 0, 0
		for _, b := range bodies {
			if at += header + len(b); at <= cut {
				whole++
			}
		}
		sizes := rapid.OneOf(rapid.IntRange(0, 10), rapid.IntRange(0, 2*keptRoom))
		r := NewReader(&chunks{stream[:cut], func() int { return sizes.Draw(t, "read") }}, MaxRequest)
		for i := 0; ; {
			got, err := r.Next()
			switch {
			case errors.Is(err, os.ErrDeadlineExceeded):
				continue
			case err != nil:
				require.Equal(t, whole, i)
				end := 0
				for _, b := range bodies[:whole] {
					end += header + len(b)
				}
				if cut > end {
					require.ErrorIs(t, err, io.ErrUnexpectedEOF)
					require.True(t, r.Partial())
				} else {
					require.Equal(t, io.EOF, err)
					require.False(t, r.Partial())
				}
				return
			}
			require.Equal(t, bodies[i], got)
			require.Equal(t, len(got), cap(got), "a caller that appends spoils nothing")
			i++
		}
	})
}

func TestFrameLengths(t *testing.T) {
	for _, n := range []uint32{0, MaxRequest + 1, 1 << 31, 1<<32 - 1} {
		r := NewReader(bytes.NewReader(binary.LittleEndian.AppendUint32(nil, n)), MaxRequest)
		_, err := r.Next()
		var bad *Error
		require.ErrorAs(t, err, &bad)
		require.Equal(t, KindInvalid, bad.Kind)
	}
	body := make([]byte, MaxRequest)
	got, err := NewReader(bytes.NewReader(frameOf(body)), MaxRequest).Next()
	require.NoError(t, err)
	require.Len(t, got, MaxRequest)
}

// TestAnnouncedBytesTakeNoMemory: what a peer announces and does not send costs nothing, and what it sends
// slowly costs about twice its bytes.
func TestAnnouncedBytesTakeNoMemory(t *testing.T) {
	stream := binary.LittleEndian.AppendUint32(nil, MaxRequest)
	read := func(b []byte) func() {
		return func() {
			_, err := NewReader(iotest.OneByteReader(bytes.NewReader(b)), MaxRequest).Next()
			if err == nil {
				panic("a frame that is not there")
			}
		}
	}
	require.Less(t, alloctest.Bytes(read(append(stream, 1, 2, 3))), uint64(2*firstRoom))
	big := append(stream, make([]byte, 100<<10)...)
	require.Less(t, alloctest.Bytes(read(big)), uint64(4*len(big)), "all buffers together, dead or alive")
}

// TestLargeFramesAreForgotten: a connection that once sent much does not hold it for ever.
func TestLargeFramesAreForgotten(t *testing.T) {
	stream := append(frameOf(make([]byte, MaxRequest)), frameOf([]byte{1})...)
	r := NewReader(bytes.NewReader(stream), MaxRequest)
	_, err := r.Next()
	require.NoError(t, err)
	_, err = r.Next()
	require.NoError(t, err)
	_, err = r.Next()
	require.Equal(t, io.EOF, err)
	require.LessOrEqual(t, len(r.buf), keptRoom)
}

// TestLargeFramesAreAdmitted: a reader asks before it takes memory for a large frame, once, and again after a
// refusal; and forgets what was large.
func TestLargeFramesAreAdmitted(t *testing.T) {
	var stream []byte
	sizes := []int{100, 101, 50, 200 << 10, 1}
	for _, n := range sizes {
		stream = append(stream, frameOf(make([]byte, n))...)
	}
	refusal := errors.New("not now")
	var asked []int
	refused := false
	r := NewReader(iotest.HalfReader(bytes.NewReader(stream)), MaxRequest)
	r.Admit(100, func(n int) error {
		asked = append(asked, n)
		if refused = !refused; refused {
			return refusal
		}
		require.LessOrEqual(t, len(r.buf), firstRoom)
		return nil
	})
	for _, n := range sizes {
		body, err := r.Next()
		if n > 100 {
			require.ErrorIs(t, err, refusal)
			body, err = r.Next()
		}
		require.NoError(t, err)
		require.Len(t, body, n)
		r.Forget()
		require.LessOrEqual(t, len(r.buf), firstRoom)
	}
	require.Equal(t, []int{101, 101, 200 << 10, 200 << 10}, asked)
}

type badStream int

func (n badStream) Read([]byte) (int, error) { return int(n), nil }

func TestBadStreams(t *testing.T) {
	_, err := NewReader(badStream(-1), 100).Next()
	require.Error(t, err)
	_, err = NewReader(badStream(1<<30), 100).Next()
	require.Error(t, err)
	_, err = NewReader(badStream(0), 100).Next()
	require.ErrorIs(t, err, io.ErrNoProgress)
}
