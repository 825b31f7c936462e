package zmq

import (
	"bytes"
	"encoding/binary"
	"io/fs"
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
				b := bytes.Repeat([]byte{byte(i)}, i*i) // above what is kept, in the end
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
