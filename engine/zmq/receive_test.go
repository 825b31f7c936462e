package zmq

import (
	"bytes"
	"encoding/binary"
	"io"
	"io/fs"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/enginetest"
)

// TestReceive: messages that came before Receive, and all behind them, are taken whole, one
// at a time, and in the order of each peer; Close ends it.
func TestReceive(t *testing.T) {
	const peers, messages = 3, 400 // the first of them are more than wait
	k, err := Transport{}.Pull("tcp://127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.Close()) })
	var senders sync.WaitGroup
	for p := range peers {
		d, err := enginetest.Push(deadline(t), k.Endpoint())
		require.NoError(t, err)
		senders.Go(func() {
			for i := range messages {
				b := bytes.Repeat([]byte{byte(i)}, i*i) // above mostRoom in the end
				if err := d.Send([]byte{byte(p)}, binary.LittleEndian.AppendUint32(nil, uint32(i)), nil, b); err != nil {
					t.Error(err)
				}
			}
			d.Close()
		})
	}
	s := k.(*socket)
	require.NoError(t, enginetest.Wait(deadline(t), func() bool {
		s.taking.Lock()
		defer s.taking.Unlock()
		return s.queued > backlog
	}))
	next, gone := map[string]int{}, make(chan string, peers)
	var wrong []int
	ended := make(chan error)
	go func() {
		ended <- k.(engine.Receiver).Receive(func(m engine.Message) {
			if m.Gone {
				gone <- m.Peer
				return
			}
			i := next[m.Peer]
			next[m.Peer]++
			ok := len(m.Frames) == 4 && int(binary.LittleEndian.Uint32(m.Frames[1])) == i && len(m.Frames[2]) == 0 &&
				bytes.Equal(m.Frames[3], bytes.Repeat([]byte{byte(i)}, i*i))
			if !ok {
				wrong = append(wrong, i)
			}
		})
	}()
	for range peers {
		<-gone
	}
	senders.Wait()
	require.NoError(t, k.Close())
	require.ErrorIs(t, <-ended, fs.ErrClosed)
	require.Empty(t, wrong)
	require.Len(t, next, peers)
	for _, n := range next {
		require.Equal(t, messages, n)
	}
}

// TestReceivedFramesStay: a message that waits for Recv is not overwritten by the next one.
func TestReceivedFramesStay(t *testing.T) {
	s := router(t, Transport{}, "tcp://127.0.0.1:0")
	d := dealer(t, s, "x")
	for i := range 100 {
		require.NoError(t, d.Send([]byte{byte(i)}, bytes.Repeat([]byte{byte(i)}, 3000)))
	}
	var all []engine.Message
	for range 100 {
		all = append(all, recv(t, s))
	}
	for i, m := range all {
		require.Equal(t, [][]byte{{byte(i)}, bytes.Repeat([]byte{byte(i)}, 3000)}, m.Frames)
	}
}

// TestTornMessage: a peer that goes in the midst of a message has not just left.
func TestTornMessage(t *testing.T) {
	for torn, want := range map[string]error{
		"": io.EOF, "\x00": io.ErrUnexpectedEOF, "\x00\x01": io.ErrUnexpectedEOF, "\x02\x00": io.ErrUnexpectedEOF,
		"\x02\x00\x00\x00": io.ErrUnexpectedEOF, "\x00\x02a": io.ErrUnexpectedEOF, "\x01\x01a": io.ErrUnexpectedEOF,
	} {
		c := talk(t, torn)
		_, err := c.recv()
		require.Equal(t, want, err, "%x", torn)
	}
}

// TestRecvAllocates: steps of an engine take no memory once there is room for one.
func TestRecvAllocates(t *testing.T) {
	step := "\x01\x02ab\x02\x00\x00\x00\x00\x00\x00\x10\x00" + string(make([]byte, 4096))
	c := talk(t, string(bytes.Repeat([]byte(step), 203)))
	_, err := c.recv() // what the room has to be
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(200, func() {
		if f, err := c.recv(); err != nil || len(f) != 2 || len(f[1]) != 4096 {
			t.Fatal(len(f), err)
		}
	}))
}

// talk is the connection of a peer that has greeted, and sends text.
func talk(t *testing.T, text string) *conn {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close() })
	go func() {
		_, _ = theirs.Write([]byte(text)) // the test may have ended
		theirs.Close()
	}()
	c := newConn(ours, Transport{MaxMessage: defaultMaxMessage})
	c.sizes.greeted, c.sizes.ready = greetingSize, true
	return c
}
