package engine_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/enginetest"
	"github.com/ringcache/ringcache/engine/enginetest/wire"
	"github.com/ringcache/ringcache/engine/zmq"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// TestDataParallel: an engine that is one of several reports to a coordinator when
// it begins to work. Here is none, and its output thread ends with an
// AssertionError (core.py, process_output_sockets).
func TestDataParallel(t *testing.T) {
	r := newRig(t, setup{idle: true, engine: func(o *enginetest.Options) {
		o.Ready = func(r *enginecore.Ready) { r.DataParallelSize = 2 }
	}})
	var m *engine.MismatchError
	require.ErrorAs(t, r.start(), &m)
	require.Contains(t, m.What, "data parallel")
}

// hostile is an engine of which a test has the sockets.
func hostile(t testing.TB, r *rig, identity string) (in, out *enginetest.Peer) {
	t.Helper()
	in, out, err := dialHostile(t, r, identity, func(*enginetest.Peer, *enginecore.Ready) {})
	require.NoError(t, err)
	return in, out
}

// dialHostile starts the client with an engine of which a test has the sockets, and
// returns what Start does. change comes before the engine reports that it is ready.
func dialHostile(t testing.TB, r *rig, identity string, change func(out *enginetest.Peer, r *enginecore.Ready)) (in, out *enginetest.Peer, err error) {
	t.Helper()
	hs := dealer(t, r, r.Address().Handshake, identity)
	started := make(chan error, 1)
	go func() { started <- r.Start(r.ctx) }()
	say(t, hs, "HELLO")
	m, err := hs.Recv()
	require.NoError(t, err)
	init, err := wire.DecodeInit(m[0])
	require.NoError(t, err)
	in = dealer(t, r, init.Inputs[0], identity)
	out, err = enginetest.Push(r.ctx, init.Outputs[0])
	require.NoError(t, err)
	t.Cleanup(func() { out.Close() })
	g := pycompat.Newest()
	ready := &enginecore.Ready{VLLMVersion: g.Version, WorldSize: 1, MaxModelLen: 4096}
	change(out, ready)
	b, err := newestWire(t).EncodeReady(ready)
	require.NoError(t, err)
	require.NoError(t, in.Send(b))
	say(t, hs, "READY")
	return in, out, <-started
}

// dealer connects to a socket of the client.
func dealer(t testing.TB, r *rig, endpoint, identity string) *enginetest.Peer {
	t.Helper()
	p, err := enginetest.Dealer(r.ctx, endpoint, identity)
	require.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// say sends a message of the handshake.
func say(t testing.TB, p *enginetest.Peer, status string) {
	t.Helper()
	b, err := wire.EncodeHandshake(&enginecore.Handshake{Status: status, Headless: true})
	require.NoError(t, err)
	require.NoError(t, p.Send(b))
}

// TestMissOfTextRequest: an engine that claims to lack items of a request that has
// none must not crash the frontend. In a process of its own, since it did.
func TestMissOfTextRequest(t *testing.T) {
	const env = "RINGCACHE_TEST_MISS"
	if os.Getenv(env) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMissOfTextRequest$", "-test.v")
		cmd.Env = append(os.Environ(), env+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%.1500s", out)
		return
	}
	c, err := engine.New(engine.Options{Transport: zmq.Transport{}, Model: model()}) // nothing to leave behind
	require.NoError(t, err)
	defer c.Close(t.Context())
	r := &rig{Client: c, t: t, ctx: t.Context()}
	_, out := hostile(t, r, "\x00\x00")
	s, err := c.Generate(r.ctx, r.request(1))
	require.NoError(t, err)
	reason := enginecore.FinishError
	f, err := newestWire(t).EncodeOutputs(&enginecore.Outputs{Outputs: []enginecore.Output{{
		RequestID: "r-1", NewTokenIDs: []uint32{}, FinishReason: &reason, MMCacheMissHashes: []string{"x"},
	}}})
	require.NoError(t, err)
	require.NoError(t, out.Send(f...))
	_, err = s.Collect()
	var failed *engine.RequestError
	require.ErrorAs(t, err, &failed)
}

// TestSquatter: whoever stays connected to the handshake port (any process of the
// machine may) does not keep the client's own engine from starting.
func TestSquatter(t *testing.T) {
	r := newRig(t, setup{idle: true})
	say(t, dealer(t, r, r.Address().Handshake, "who?"), "HELLO")
	require.Eventually(t, func() bool { return engine.Greeted(r.Client) }, testTimeout, testTick)
	require.NoError(t, r.start())
}

// TestHandshakeMemory: a peer without an identity announces frames that no handshake
// has; no memory is taken for them.
func TestHandshakeMemory(t *testing.T) {
	r := newRig(t, setup{idle: true})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const peers, size = 8, 200 << 20
	var conns []net.Conn
	for range peers {
		d := net.Dialer{}
		c, err := d.DialContext(r.ctx, "tcp", strings.TrimPrefix(r.Address().Handshake, "tcp://"))
		require.NoError(t, err)
		defer c.Close()
		greeting := make([]byte, 64)
		greeting[0], greeting[8], greeting[9], greeting[10] = 0xff, 1, 0x7f, 3
		copy(greeting[12:], "NULL")
		ready := "\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
		_, err = c.Write(append(append(greeting, 4, byte(len(ready))), ready...))
		require.NoError(t, err)
		_, err = c.Write(binary.BigEndian.AppendUint64([]byte{2}, size))
		require.NoError(t, err)
		conns = append(conns, c)
	}
	for _, c := range conns {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(testTimeout)))
		_, err := io.Copy(io.Discard, c)
		require.False(t, os.IsTimeout(err), "still connected")
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20), "a handshake is less than a kilobyte")
}

// TestStaleSocket: a frontend that was killed left its sockets in Options.Dir, and
// the next one starts all the same.
func TestStaleSocket(t *testing.T) {
	dir := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "in1"), Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	r := newRig(t, setup{idle: true, client: func(o *engine.Options) { o.Dir = dir }})
	require.NoError(t, r.start())
}

// TestSharedDir: two clients of one folder.
func TestSharedDir(t *testing.T) {
	dir := t.TempDir()
	share := func(o *engine.Options) { o.Dir = dir }
	newRig(t, setup{client: share})
	r := newRig(t, setup{idle: true, client: share})
	require.NoError(t, r.start())
}

// TestLongTempDir: the path of a socket has at most 107 bytes, and a TMPDIR may be
// longer.
func TestLongTempDir(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	require.NoError(t, os.Mkdir(long, 0o700))
	t.Setenv("TMPDIR", long)
	r := newRig(t, setup{idle: true})
	require.NoError(t, r.start())
}

// TestProbeOfOutput: with Options.Bind the output socket is a port. Who looks in and
// leaves does not count as the engine's end.
func TestProbeOfOutput(t *testing.T) {
	output := &spy{Transport: zmq.Transport{}, seen: make(chan struct{})}
	r := newRig(t, setup{idle: true, client: func(o *engine.Options) { o.Bind, o.Transport = "127.0.0.1", output }})
	require.NoError(t, r.start())
	probe, err := enginetest.Push(r.ctx, output.Endpoint())
	require.NoError(t, err)
	require.NoError(t, probe.Close())
	select {
	case <-output.seen:
	case <-r.ctx.Done():
		t.Fatal("nobody noticed the end of the probe")
	}
	gone, why := r.Gone()
	select {
	case <-gone:
		require.NoError(t, why(), "the engine has not gone")
	default:
	}
	r.ask(1)
}

// spy watches the output socket.
type spy struct {
	engine.Transport
	engine.Socket
	gone bool
	seen chan struct{} // closed when the first end of a peer has been dealt with
}

func (s *spy) Pull(endpoint string) (engine.Socket, error) {
	k, err := s.Transport.Pull(endpoint)
	s.Socket = k
	return s, err
}

func (s *spy) Recv(ctx context.Context) (engine.Message, error) {
	if s.gone {
		s.gone = false
		close(s.seen)
	}
	m, err := s.Socket.Recv(ctx)
	select {
	case <-s.seen:
	default:
		s.gone = m.Gone
	}
	return m, err
}

// TestUnreadableAnswer: an answer to a call that can't be read is a failure, and a
// fence does not pass by it.
func TestUnreadableAnswer(t *testing.T) {
	r := newRig(t, setup{mode: "shm", idle: true, client: func(o *engine.Options) { o.Grace = time.Second }})
	in, out := hostile(t, r, "\x00\x00")
	done := make(chan error, 1)
	go func() { done <- r.Check(r.ctx) }()
	_, err := in.Recv()
	require.NoError(t, err)
	// EngineCoreOutputs whose utility_output is [1, nil, 5]: a pair belongs there.
	b := []byte{0x99, 0, 0x90, 0xc0, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x93, 1, 0xc0, 5, 0xc0, 0xc0, 0xc0, 0xc0}
	require.NoError(t, out.Send(b))
	var failed *engine.CallError
	require.ErrorAs(t, <-done, &failed)
	require.ErrorContains(t, failed, "can't be read")
}

// TestOutputBeforeReady: an output may come while the client still meets the engine. The
// codec that reads it was changed at the same time; the race detector shows it.
func TestOutputBeforeReady(t *testing.T) {
	r := newRig(t, setup{idle: true})
	_, _, err := dialHostile(t, r, "\x00\x00", func(out *enginetest.Peer, _ *enginecore.Ready) {
		f, err := newestWire(t).EncodeOutputs(&enginecore.Outputs{})
		require.NoError(t, err)
		require.NoError(t, out.Send(f...))
	})
	require.NoError(t, err)
}
