package zmq

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/enginetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func router(t *testing.T, tr Transport, endpoint string) engine.Socket {
	t.Helper()
	s, err := tr.Router(endpoint, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func endpoints(t *testing.T) []string {
	return []string{"tcp://127.0.0.1:0", "ipc://" + filepath.Join(t.TempDir(), "s")}
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func recv(t *testing.T, s engine.Socket) engine.Message {
	t.Helper()
	m, err := s.Recv(deadline(t))
	require.NoError(t, err)
	return m
}

func dealer(t *testing.T, s engine.Socket, id string) *enginetest.Peer {
	t.Helper()
	d, err := enginetest.Dealer(deadline(t), s.Endpoint(), id)
	require.NoError(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

func TestRouter(t *testing.T) {
	for _, ep := range endpoints(t) {
		t.Run(ep[:3], func(t *testing.T) {
			s := router(t, Transport{}, ep)
			a, b := dealer(t, s, "\x00\x00"), dealer(t, s, "\x01\x00")
			for range 3 {
				require.NoError(t, a.Send([]byte("one"), nil, bytes.Repeat([]byte{7}, 70_000)))
				m := recv(t, s)
				require.Equal(t, "\x00\x00", m.Identity)
				require.Equal(t, [][]byte{[]byte("one"), {}, bytes.Repeat([]byte{7}, 70_000)}, m.Frames)
			}
			require.NoError(t, b.Send([]byte("hello")))
			m := recv(t, s)
			require.Equal(t, "\x01\x00", m.Identity)
			name := m.Peer
			for i := range 20 {
				body := bytes.Repeat([]byte{byte(i)}, i*10_000)
				require.NoError(t, s.Send(name, []byte{byte(i)}, body))
				m, err := b.Recv()
				require.NoError(t, err)
				require.Equal(t, [][]byte{{byte(i)}, append([]byte{}, body...)}, m)
			}
		})
	}
}

// TestUnroutable: a message to nobody is an error, and so is one to a peer that
// has gone, which is reported.
func TestUnroutable(t *testing.T) {
	for _, ep := range endpoints(t) {
		t.Run(ep[:3], func(t *testing.T) {
			s := router(t, Transport{}, ep)
			require.ErrorIs(t, s.Send("x", []byte("y")), errNoPeer)
			d := dealer(t, s, "x")
			require.NoError(t, d.Send([]byte("hello")))
			name := recv(t, s).Peer
			require.NoError(t, s.Send(name, []byte("y")))
			require.NoError(t, d.Close())
			m := recv(t, s)
			require.True(t, m.Gone)
			require.Equal(t, name, m.Peer)
			require.ErrorIs(t, s.Send(name, []byte("y")), errNoPeer)
		})
	}
}

func TestPull(t *testing.T) {
	s, err := Transport{}.Pull("tcp://127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	p, err := enginetest.Push(deadline(t), s.Endpoint())
	require.NoError(t, err)
	for i := range 1000 { // more than wait
		go func() { _ = p.Send(binary.LittleEndian.AppendUint32(nil, uint32(i))) }()
	}
	seen := map[uint32]bool{}
	for range 1000 {
		seen[binary.LittleEndian.Uint32(recv(t, s).Frames[0])] = true
	}
	require.Len(t, seen, 1000)
	require.Error(t, s.Send("x", []byte("y")))
	require.NoError(t, p.Close())
	require.True(t, recv(t, s).Gone)
}

// TestManySenders: messages of several goroutines arrive whole.
func TestManySenders(t *testing.T) {
	s := router(t, Transport{}, "tcp://127.0.0.1:0")
	d := dealer(t, s, "x")
	require.NoError(t, d.Send([]byte("hello")))
	name := recv(t, s).Peer
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			for i := range 100 {
				b := bytes.Repeat([]byte{byte(g)}, i*300)
				if err := s.Send(name, []byte{byte(g), byte(i)}, b, b); err != nil {
					t.Error(err)
				}
			}
		})
	}
	next := map[byte]int{}
	for range 800 {
		m, err := d.Recv()
		require.NoError(t, err)
		g := m[0][0]
		require.Equal(t, next[g], int(m[0][1]), "in order")
		next[g]++
		require.Equal(t, bytes.Repeat([]byte{g}, int(m[0][1])*300), m[1])
		require.Equal(t, m[1], m[2])
	}
	wait.Wait()
}

// TestHostilePeers: whatever a peer sends, it is turned away, and others are
// served.
func TestHostilePeers(t *testing.T) {
	s := router(t, Transport{MaxMessage: 1 << 20}, "tcp://127.0.0.1:0")
	greeting := make([]byte, 64)
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:], "NULL")
	prop := func(k, v string) string {
		return string(rune(len(k))) + k + string(binary.BigEndian.AppendUint32(nil, uint32(len(v)))) + v
	}
	ready := "\x05READY" + prop("Socket-Type", "DEALER") + prop("Identity", "bad")
	hello := string(greeting) + "\x04" + string(rune(len(ready))) + ready
	long := func(n uint64) string { return "\x02" + string(binary.BigEndian.AppendUint64(nil, n)) }
	for name, in := range map[string]string{
		"nothing":       "",
		"no greeting":   strings.Repeat("x", 64),
		"short":         string(greeting[:20]),
		"wrong type":    string(greeting) + "\x04\x1a\x05READY" + prop("Socket-Type", "PUB"),
		"bad property":  string(greeting) + "\x04\x08\x05READY\xffx",
		"bad property2": string(greeting) + "\x04\x07\x05READY\x00",
		"no command":    string(greeting) + "\x00\x01x",
		"huge ready":    string(greeting) + "\x06" + long(1 << 62)[1:],
		"huge":          hello + long(1<<62),
		"negative":      hello + long(1<<64-1),
		"large":         hello + long(2<<20),
		"many frames":   hello + strings.Repeat("\x01\x00", 1<<16),
		"ping":          hello + "\x04\x07\x04PING\x00\x00",
		"torn":          hello + "\x00\x09abc",
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", strings.TrimPrefix(s.Endpoint(), "tcp://"))
			require.NoError(t, err)
			_, _ = c.Write([]byte(in)) // may be cut off on the way
			if tc, ok := c.(*net.TCPConn); ok {
				_ = tc.CloseWrite()
			}
			require.NoError(t, c.SetReadDeadline(time.Now().Add(2*time.Minute)))
			buf := make([]byte, 1<<10)
			for err == nil {
				_, err = c.Read(buf)
			}
			require.False(t, os.IsTimeout(err), "still connected")
			require.NoError(t, c.Close())
		})
	}
	d := dealer(t, s, "good")
	require.NoError(t, d.Send([]byte("hello")))
	for {
		m := recv(t, s)
		if m.Identity == "good" {
			break
		}
		require.True(t, m.Gone, "%x", m.Frames)
	}
}

func TestBindErrors(t *testing.T) {
	for _, ep := range []string{"", "tcp", "tcp://", "udp://127.0.0.1:1", "ipc:///nowhere/at/all", "tcp://127.0.0.1:99999"} {
		t.Run(ep, func(t *testing.T) {
			_, err := Transport{}.Router(ep, 0)
			require.ErrorContains(t, err, "zmq: ", ep)
			require.ErrorContains(t, err, ep)
			_, err = Transport{}.Pull(ep)
			require.ErrorContains(t, err, ep)
		})
	}
	for _, tr := range []Transport{{MaxMessage: -1}, {SendTimeout: -1}} {
		_, err := tr.Router("tcp://127.0.0.1:0", 0)
		require.ErrorContains(t, err, "they can't be below 0")
	}
	_, err := Transport{}.Router("tcp://127.0.0.1:0", -1)
	require.ErrorContains(t, err, "limit -1; they can't be below 0")
}

// TestClose: it ends Recv and everything else, and removes the socket's file.
func TestClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s, err := Transport{}.Router("ipc://"+path, 0)
	require.NoError(t, err)
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, "-rw-------", fmt.Sprint(st.Mode().Perm()))
	d := dealer(t, s, "x")
	require.NoError(t, d.Send([]byte("hello")))
	recv(t, s)
	ended := make(chan error)
	go func() {
		_, err := s.Recv(context.Background())
		ended <- err
	}()
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-ended, fs.ErrClosed)
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Send("x", []byte("y")), fs.ErrClosed)
	require.NoFileExists(t, path)
}
