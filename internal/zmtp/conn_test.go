package zmtp

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTornMessage: a peer that goes in the midst of a message has not just left.
func TestTornMessage(t *testing.T) {
	for torn, want := range map[string]error{
		"": io.EOF, "\x00": io.ErrUnexpectedEOF, "\x00\x01": io.ErrUnexpectedEOF, "\x02\x00": io.ErrUnexpectedEOF,
		"\x02\x00\x00\x00": io.ErrUnexpectedEOF, "\x00\x02a": io.ErrUnexpectedEOF, "\x01\x01a": io.ErrUnexpectedEOF,
	} {
		c := talk(t, torn)
		_, err := c.Receive()
		require.Equal(t, want, err, "%x", torn)
	}
}

// TestReceiveAllocates: steps of an engine take no memory once there is room for one.
func TestReceiveAllocates(t *testing.T) {
	step := "\x01\x02ab\x02\x00\x00\x00\x00\x00\x00\x10\x00" + string(make([]byte, 4096))
	c := talk(t, string(bytes.Repeat([]byte(step), 203)))
	_, err := c.Receive() // what the room has to be
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(200, func() {
		if f, err := c.Receive(); err != nil || len(f) != 2 || len(f[1]) != 4096 {
			t.Fatal(len(f), err)
		}
	}))
}

// talk is the connection of a peer that has greeted, and sends text.
func talk(t *testing.T, text string) *Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close() })
	go func() {
		_, _ = theirs.Write([]byte(text)) // the test may have ended
		theirs.Close()
	}()
	c := New(ours, Options{MaxMessage: 256 << 20})
	c.sizes.greeted, c.sizes.ready = greetingSize, true
	return c
}

// TestLargeFrame: it comes whole, and what is only announced takes no memory.
func TestLargeFrame(t *testing.T) {
	large := bytes.Repeat([]byte("0123456"), 1<<20)
	head := "\x02" + string(binary.BigEndian.AppendUint64(nil, uint64(len(large))))
	c := talk(t, "\x01\x01a"+head+string(large))
	frames, err := c.Receive()
	require.NoError(t, err)
	require.Len(t, frames, 2)
	require.True(t, bytes.Equal(large, frames[1]))
	require.Len(t, large, cap(frames[1]))

	c = talk(t, "\x02\x00\x00\x00\x00\x0f\xff\xff\xc0"+string(large[:3<<20]))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = c.Receive()
	runtime.ReadMemStats(&after)
	require.Equal(t, io.ErrUnexpectedEOF, err)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20), "256 MiB were announced")
}

// TestSizesSplit: the place where the stream is cut makes no difference.
func TestSizesSplit(t *testing.T) {
	stream := append(make([]byte, 64), "\x01\x03abc\x02\x00\x00\x00\x00\x00\x00\x00\x02de\x00\x00"...)
	for cut := range stream {
		s := sizes{limit: 1000}
		require.NoError(t, s.pass(stream[:cut]))
		require.NoError(t, s.pass(stream[cut:]))
		require.Zero(t, s.body)
		require.Empty(t, s.header)
		require.Zero(t, s.total)
		bad := sizes{limit: 68} // two frames of 32 and five bytes
		err := bad.pass(stream[:cut])
		if err == nil {
			err = bad.pass(stream[cut:])
		}
		require.ErrorIs(t, err, errTooLarge, cut)
	}
}

// TestSteadyPeer: a peer that takes something in all the time is not disconnected,
// however long a whole message takes: the deadline is set anew for each piece.
func TestSteadyPeer(t *testing.T) {
	c := &pieces{}
	n, err := patient{c, time.Second}.Write(make([]byte, 48<<20+1))
	require.NoError(t, err)
	require.Equal(t, 48<<20+1, n)
	require.Equal(t, 48<<20/(64<<10)+1, c.writes)
	require.Equal(t, c.writes, c.deadlines)
}

// pieces is a connection that counts.
type pieces struct {
	net.Conn
	writes, deadlines int
}

func (c *pieces) SetWriteDeadline(time.Time) error {
	c.deadlines++
	return nil
}

func (c *pieces) Write(p []byte) (int, error) {
	c.writes++
	return len(p), nil
}
