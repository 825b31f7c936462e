package zmq

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
)

// peer connects as a DEALER of that identity, and says hello.
func peer(t *testing.T, s engine.Socket, id string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.Endpoint(), "tcp://"))
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	greeting := make([]byte, 64)
	greeting[0], greeting[8], greeting[9], greeting[10] = 0xff, 1, 0x7f, 3
	copy(greeting[12:], "NULL")
	ready := "\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00" + string(rune(len(id))) + id
	_, err = c.Write(append(append(greeting, 4, byte(len(ready))), ready...))
	require.NoError(t, err)
	_, err = c.Write([]byte("\x00\x05hello"))
	require.NoError(t, err)
	require.Equal(t, id, recv(t, s).Peer)
	return c
}

// TestDisplacedPeer: a second connection of an identity takes the place of the first,
// which is dropped, as libzmq does with ROUTER_HANDOVER.
func TestDisplacedPeer(t *testing.T) {
	s := bind(t, Transport{}, engine.Router, "tcp://127.0.0.1:0")
	older := peer(t, s, "x")
	peer(t, s, "x")
	require.NoError(t, older.SetReadDeadline(time.Now().Add(2*time.Second)))
	_, err := io.Copy(io.Discard, older)
	require.NoError(t, err, "it was not dropped")
}

// TestSteadyPeer: a peer that takes something in all the time is not disconnected,
// however long a whole message takes.
func TestSteadyPeer(t *testing.T) {
	s := bind(t, Transport{SendTimeout: 300 * time.Millisecond}, engine.Router, "tcp://127.0.0.1:0")
	c := peer(t, s, "x")
	stop := make(chan struct{})
	defer close(stop)
	go func() { // about 25 MB/s, never idle for long
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			if _, err := io.CopyN(io.Discard, c, 256<<10); err != nil {
				return
			}
		}
	}()
	require.NoError(t, s.Send("x", make([]byte, 48<<20)))
}
