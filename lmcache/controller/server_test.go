package controller

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"strings"
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

var lies = flag.Int("controller.lies", 20_000, "TestLies: messages")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// bed is a server with its three sockets.
type bed struct {
	t     testing.TB
	d     *directory.Directory
	s     *Server
	addrs [3]string // pull, reply, heartbeat
}

func newBed(t testing.TB, o Options) *bed {
	b := &bed{t: t, d: directory.New(directory.Options{MaxWorkers: 100, MaxEntries: 100_000})}
	o.Directory = b.d
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	var err error
	b.s, err = New(o)
	require.NoError(t, err)
	ended := make(chan error, 3)
	for i, serve := range []func(net.Listener) error{b.s.ServePull, b.s.ServeReply, b.s.ServeHeartbeat} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		b.addrs[i] = l.Addr().String()
		if i == 2 {
			b.s.mu.Lock()
			b.s.heartbeat = b.addrs[i]
			b.s.mu.Unlock()
		}
		go func() { ended <- serve(l) }()
	}
	t.Cleanup(func() {
		b.s.Close()
		for range 3 {
			require.NoError(t, <-ended)
		}
	})
	return b
}

// dial connects to a socket: 0 is pull, 1 reply, 2 heartbeat.
func (b *bed) dial(socket int) *zmtp.Conn {
	raw, err := net.Dial("tcp", b.addrs[socket])
	require.NoError(b.t, err)
	b.t.Cleanup(func() { raw.Close() })
	c := zmtp.New(raw, zmtp.Options{MaxMessage: 16 << 20, SendTimeout: time.Minute})
	kind := zmq4.Dealer
	if socket == 0 {
		kind = zmq4.Push
	}
	_, err = c.Greet(kind, time.Minute)
	require.NoError(b.t, err)
	return c
}

func ask(t testing.TB, c *zmtp.Conn, message []byte) []byte {
	require.NoError(t, c.Send([][]byte{{}, message}))
	frames, err := c.Receive()
	require.NoError(t, err)
	require.Len(t, frames, 2)
	require.Empty(t, frames[0])
	return bytes.Clone(frames[1])
}

func worker(class, instance string, n int64, port int64, peer string) []byte {
	return begin(class, 5).text("instance_id", instance).number("worker_id", n).
		text("ip", "127.0.0.1").number("port", port).textOrNil("peer_init_url", peer).b
}

func operations(instance string, n int64, location string, first int64, keys ...int64) []byte {
	f := begin("BatchedKVOperationMsg", 4).text("instance_id", instance).number("worker_id", n).
		text("location", location).list("operations", len(keys))
	for i, k := range keys {
		op := "admit"
		f.b = msgp.AppendMapHeader(f.b, 3)
		f.text("op_type", op).number("key", k).number("seq_num", first+int64(i))
	}
	return f.b
}

// TestController: a worker registers, reports, loses a report, and is asked for all; a router asks who holds what.
func TestController(t *testing.T) {
	b := newBed(t, Options{})
	push, reply, beat := b.dial(0), b.dial(1), b.dial(2)
	require.Equal(t, begin("RegisterRetMsg", 1).dict("extra_config", 1).text("heartbeat_url", b.addrs[2]).b,
		ask(t, reply, worker("RegisterMsg", "a", 0, 1, "10.0.0.1:9")))
	require.Equal(t, begin("HeartbeatRetMsg", 1).list("commands", 0).b,
		ask(t, beat, worker("HeartbeatMsg", "a", 0, 1, "")))
	tokens := make([]int64, 300)
	for i := range tokens {
		tokens[i] = int64(i)
	}
	hasher, err := kv.NewHasher(kv.Scheme{Algorithm: kv.Builtin, Seed: "0", Legacy: true, KeepTail: true})
	require.NoError(t, err)
	chain := hasher.NewChain()
	require.NoError(t, chain.SetTokens(tokens))
	first, second := msgpInt(chain.Hash(0)), msgpInt(chain.Hash(1))
	require.NoError(t, push.Send([][]byte{[]byte("nonsense"), operations("a", 0, "LocalCPUBackend", 0, first, second)}))
	lookup := begin("LookupMsg", 2).text("event_id", "e").numbers("tokens", tokens).b
	found := func(n int64) []byte {
		f := begin("LookupRetMsg", 2).text("event_id", "e").dict("layout_info", 1)
		f.b = msgp.AppendString(msgp.AppendArrayHeader(msgp.AppendString(f.b, "a"), 2), "LocalCPUBackend")
		return appendInt(f.b, n)
	}
	require.Eventually(t, func() bool { return bytes.Equal(found(300), ask(t, reply, lookup)) }, time.Minute,
		time.Millisecond)
	peer := func(by string) []byte {
		f := begin("BatchedP2PLookupMsg", 3).list("hashes", 2)
		f.b = appendInt(appendInt(f.b, first), second)
		return ask(t, reply, f.text("instance_id", by).number("worker_id", 0).b)
	}
	f := begin("BatchedP2PLookupRetMsg", 1).list("layout_info", 1)
	f.b = msgp.AppendArrayHeader(f.b, 4)
	f.b = msgp.AppendString(msgp.AppendString(f.b, "a"), "LocalCPUBackend")
	f.b = msgp.AppendString(appendInt(f.b, 2), "10.0.0.1:9")
	require.Equal(t, f.b, peer("b"))
	require.Contains(t, string(peer("a")), "\x94\xa0\xa0\x00\xa0", "nobody else has them")

	require.NoError(t, push.Send([][]byte{operations("a", 0, "LocalCPUBackend", 7, 1)}))
	require.Eventually(t, func() bool {
		return bytes.Contains(ask(t, beat, worker("HeartbeatMsg", "a", 0, 1, "")), []byte("full_sync"))
	}, time.Minute, time.Millisecond)
	start := begin("FullSyncStartMsg", 6).text("instance_id", "a").number("worker_id", 0).
		text("location", "LocalCPUBackend").text("sync_id", "s").number("total_keys", 1).number("batch_count", 2).b
	accepted := begin("FullSyncStartRetMsg", 3).text("sync_id", "s").truth("accepted", true).
		textOrNil("error_msg", "").b
	require.Equal(t, accepted, ask(t, reply, start))
	batch := func(n int64, keys ...int64) []byte {
		return begin("FullSyncBatchMsg", 6).text("instance_id", "a").number("worker_id", 0).
			text("location", "LocalCPUBackend").text("sync_id", "s").number("batch_id", n).numbers("keys", keys).b
	}
	end := begin("FullSyncEndMsg", 5).text("instance_id", "a").number("worker_id", 0).
		text("location", "LocalCPUBackend").text("sync_id", "s").number("actual_total_keys", 1).b
	status := begin("FullSyncStatusMsg", 3).text("instance_id", "a").number("worker_id", 0).text("sync_id", "s").b
	answer := func(complete bool, missing ...int64) []byte {
		progress := 0.0
		if complete {
			progress = 1
		}
		return begin("FullSyncStatusRetMsg", 5).text("sync_id", "s").truth("is_complete", complete).
			float("global_progress", progress).truth("can_exit_freeze", complete).numbers("missing_batches", missing).b
	}
	require.NoError(t, push.Send([][]byte{batch(1), end}))
	require.Eventually(t, func() bool { return bytes.Equal(answer(false, 0), ask(t, reply, status)) }, time.Minute,
		time.Millisecond)
	require.NoError(t, push.Send([][]byte{batch(0, first), end}))
	require.Eventually(t, func() bool { return bytes.Equal(answer(true), ask(t, reply, status)) }, time.Minute,
		time.Millisecond)
	require.Equal(t, found(256), ask(t, reply, lookup))

	require.Contains(t, string(ask(t, beat, worker("HeartbeatMsg", "b", 0, 1, ""))), "worker_re_registered")
	info := begin("QueryWorkerInfoMsg", 3).text("event_id", "e").text("instance_id", "all")
	info.b = msgp.AppendNil(msgp.AppendString(info.b, "worker_ids"))
	all := string(ask(t, reply, info.b))
	require.Contains(t, all, "\xabinstance_id\xa1a")
	require.Contains(t, all, "\xabinstance_id\xa1b")
	require.Equal(t, begin("QueryInstRetMsg", 2).text("event_id", "e").text("instance_id", "a").b,
		ask(t, reply, begin("QueryInstMsg", 2).text("event_id", "e").text("ip", "127.0.0.1").b))
	require.Contains(t, string(ask(t, reply, begin("CheckFinishMsg", 1).text("event_id", "e").b)), "ErrorMsg")
	require.Contains(t, string(ask(t, reply, end)), "ErrorMsg")
	require.Contains(t, string(ask(t, beat, lookup)), "ErrorMsg")

	leave := begin("DeRegisterMsg", 4).text("instance_id", "a").number("worker_id", 0).
		text("ip", "").number("port", 0).b
	require.NoError(t, push.Send([][]byte{leave}))
	require.Eventually(t, func() bool { return len(b.d.Workers("a")) == 0 }, time.Minute, time.Millisecond)
}

// msgpInt is a hash as a worker reports it.
func msgpInt(hash []byte) int64 {
	var n uint64
	for _, x := range hash {
		n = n<<8 | uint64(x)
	}
	return int64(n)
}

// TestCommands: a command goes to every worker of an instance, at the address with which each has registered.
func TestCommands(t *testing.T) {
	b := newBed(t, Options{})
	reply := b.dial(1)
	for i := range int64(2) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		_, port, _ := net.SplitHostPort(l.Addr().String())
		n, _ := strconv.ParseInt(port, 10, 64)
		ask(t, reply, worker("RegisterMsg", "a", i, n, ""))
		go func() {
			for {
				raw, err := l.Accept()
				if err != nil {
					return
				}
				c := zmtp.New(raw, zmtp.Options{MaxMessage: 1 << 20, SendTimeout: time.Minute})
				if _, err := c.Greet(zmq4.Rep, time.Minute); err == nil {
					if frames, err := c.Receive(); err == nil {
						m := frames[1]
						answer := begin("HealthWorkerRetMsg", 1).number("error_code", -i).b
						if bytes.Contains(m, []byte("ClearWorkerMsg")) {
							answer = begin("ClearWorkerRetMsg", 1).number("num_tokens", 512).b
						} else if bytes.Contains(m, []byte("PinWorkerMsg")) {
							answer = begin("PinWorkerRetMsg", 1).number("num_tokens", i).b
						}
						_ = c.Send([][]byte{{}, answer})
					}
				}
				raw.Close()
			}
		}()
	}
	command := func(class string, tokens bool) []byte {
		n := uint32(3)
		if tokens {
			n++
		}
		f := begin(class, n).text("event_id", "e").text("instance_id", "a").text("location", "LocalCPUBackend")
		if tokens {
			f.numbers("tokens", []int64{1})
		}
		return f.b
	}
	require.Equal(t, begin("ClearRetMsg", 2).text("event_id", "e").number("num_tokens", 512).b,
		ask(t, reply, command("ClearMsg", false)))
	require.Contains(t, string(ask(t, reply, command("PinMsg", true))), "do not agree")
	f := begin("HealthRetMsg", 2).text("event_id", "e").dict("error_codes", 2)
	f.b = appendInt(appendInt(appendInt(appendInt(f.b, 0), 0), 1), -1)
	require.Equal(t, f.b, ask(t, reply, command("HealthMsg", false)))

	dead, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, _ := net.SplitHostPort(dead.Addr().String())
	dead.Close()
	n, _ := strconv.ParseInt(port, 10, 64)
	ask(t, reply, worker("RegisterMsg", "a", 1, n, ""))
	f = begin("HealthRetMsg", 2).text("event_id", "e").dict("error_codes", 2)
	f.b = appendInt(appendInt(appendInt(appendInt(f.b, 0), 0), 1), notReached)
	require.Equal(t, f.b, ask(t, reply, command("HealthMsg", false)))
	require.Contains(t, string(ask(t, reply, command("ClearMsg", false))), "ErrorMsg")
}

// TestLies: peers that send anything get errors or lose their connection, and others are served; memory stays bounded,
// and the log has a line, not one for each.
func TestLies(t *testing.T) {
	var log bytes.Buffer
	b := newBed(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	honest := b.dial(1)
	register := worker("RegisterMsg", "honest", 0, 1, "")
	ask(t, honest, register)
	rng := rand.New(rand.NewPCG(3, 4))
	all := goldens(t)
	var conns [3]*zmtp.Conn
	for n := range *lies {
		socket := rng.IntN(3)
		if conns[socket] == nil || rng.IntN(1000) == 0 {
			conns[socket] = b.dial(socket)
		}
		message := all[rng.IntN(len(all))].bytes(t)
		switch rng.IntN(4) {
		case 0:
			message = message[:rng.IntN(len(message)+1)]
		case 1:
			for range 1 + rng.IntN(4) {
				message[rng.IntN(len(message))] = byte(rng.Uint32())
			}
		case 2: // instances without end
			message = worker("RegisterMsg", "liar"+strconv.Itoa(rng.IntN(1<<30)), int64(rng.Uint64()),
				int64(rng.Uint64()), "x")
		}
		frames := [][]byte{{}, message}
		switch {
		case rng.IntN(500) == 0:
			frames = frames[:1] // no message
		case socket == 0:
			frames = [][]byte{message, message}
		}
		err := conns[socket].Send(frames)
		if err == nil && socket > 0 {
			if err = conns[socket].SetReadDeadline(time.Now().Add(time.Minute)); err == nil {
				_, err = conns[socket].Receive()
			}
		}
		if err != nil {
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			if e := net.Error(nil); asNet(err, &e) {
				require.False(t, e.Timeout(), "message %d has no answer", n)
			}
			conns[socket].Close()
			conns[socket] = nil
		}
	}
	require.NotContains(t, string(ask(t, honest, register)), "ErrorMsg")
	require.LessOrEqual(t, b.d.Counts().Workers, 100)
	require.NotZero(t, b.s.Counts().Refused)
	b.s.Close()
	require.Less(t, bytes.Count(log.Bytes(), []byte("\n")), 100)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	require.Less(t, m.HeapAlloc, uint64(256<<20))
}

func asNet(err error, e *net.Error) bool {
	x, ok := err.(net.Error)
	*e = x
	return ok
}

// TestBigAnnouncement: a peer that announces too much is disconnected.
func TestBigAnnouncement(t *testing.T) {
	b := newBed(t, Options{})
	c := b.dial(1)
	_, err := c.Conn.Write([]byte("\x02\x00\x00\x00\x00\x7f\xff\xff\xff"))
	require.NoError(t, err)
	_, err = c.Receive()
	require.ErrorIs(t, err, io.EOF, "2 GiB are too much")
}

// TestConnections: beyond the bound nobody is served, and who is served goes on.
func TestConnections(t *testing.T) {
	b := newBed(t, Options{MaxConnections: 2})
	first := b.dial(1)
	b.dial(1)
	raw, err := net.Dial("tcp", b.addrs[1])
	require.NoError(t, err)
	defer raw.Close()
	_, err = raw.Read(make([]byte, 1))
	require.Error(t, err)
	ask(t, first, worker("RegisterMsg", "a", 0, 1, ""))
	require.EqualValues(t, 2, b.s.Counts().Connections)
}

// TestListsOfNothing: a message of 1 MiB whose list has a million elements of one byte takes no 40 bytes for each.
func TestListsOfNothing(t *testing.T) {
	for class, name := range map[string]string{"BatchedKVOperationMsg": "operations", "PinMsg": "tokens"} {
		f := begin(class, 4).text("instance_id", "a").number("worker_id", 0).text("location", "x").list(name, 4<<20)
		f.b = append(f.b, make([]byte, 4<<20)...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := parse(f.b)
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	}
	_, err := parse(append([]byte(`{"type": "`), bytes.Repeat([]byte(" "), maxJSON)...))
	require.ErrorContains(t, err, "bytes of JSON")
}

// TestTextOfALiar: an instance whose name is no UTF-8 is refused: with it in an answer, no client could read
// who else is there.
func TestTextOfALiar(t *testing.T) {
	b := newBed(t, Options{})
	reply := b.dial(1)
	for _, m := range [][]byte{worker("RegisterMsg", "a\xff", 0, 1, ""), worker("RegisterMsg", "a", 0, 1, "\xff")} {
		require.Contains(t, string(ask(t, reply, m)), "no UTF-8")
	}
	require.Empty(t, b.d.Workers(""))
	_, err := parse(errorMsg(errors.New(strings.Repeat("ä", math.MaxUint16))))
	require.NoError(t, err, "what is cut is text, too")
}

// TestUnreadAnswers: answers that nobody reads share the memory for messages; who reads is served.
func TestUnreadAnswers(t *testing.T) {
	b := newBed(t, Options{MaxMemory: maxMessage})
	long := strings.Repeat("x", 250)
	reply := b.dial(1)
	for n := range int64(100) {
		ask(t, reply, worker("RegisterMsg", long, n, 1, long))
	}
	f := begin("QueryWorkerInfoMsg", 3).text("event_id", "e").text("instance_id", "all")
	f.b = msgp.AppendNil(msgp.AppendString(f.b, "worker_ids"))
	require.Greater(t, len(ask(t, reply, f.b)), smallAnswer)
	require.Eventually(t, func() bool { return b.s.memory.TryAcquire(maxMessage) }, time.Minute, time.Millisecond,
		"it is given back")
	require.NoError(t, reply.Send([][]byte{{}, f.b}))
	_, err := reply.Receive()
	require.Error(t, err, "there is no memory")
	require.NotContains(t, string(ask(t, b.dial(1), worker("RegisterMsg", long, 1, 1, ""))), "ErrorMsg",
		"small answers need none")
	b.s.memory.Release(maxMessage)
}

// TestCommandsAtOnce: workers that do not answer keep a bounded number of connections, and a command ends.
func TestCommandsAtOnce(t *testing.T) {
	b := newBed(t, Options{Timeout: 100 * time.Millisecond})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	n, err := strconv.ParseInt(port, 10, 64)
	require.NoError(t, err)
	reply := b.dial(1)
	for i := range int64(3) {
		ask(t, reply, worker("RegisterMsg", "a", i, n, "")) // the kernel accepts, and nobody greets
	}
	health := begin("HealthMsg", 2).text("event_id", "e").text("instance_id", "a").b
	for range maxAtOnce {
		b.s.commands <- struct{}{}
	}
	require.Contains(t, string(ask(t, reply, health)), "commands are under way")
	for range maxAtOnce {
		<-b.s.commands
	}
	require.Contains(t, string(ask(t, reply, health)), "HealthRetMsg")
	require.Empty(t, b.s.commands)
}
