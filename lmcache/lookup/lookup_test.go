package lookup

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/internal/zmtp"
	"github.com/ringcache/ringcache/kv"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(workerVariable); path != "" {
		serveUntilKilled(path)
		return
	}
	goleak.VerifyTestMain(m)
}

// chunksOf4 is the scheme of most tests.
var chunksOf4 = kv.Scheme{Algorithm: kv.SHA256CBOR, ChunkTokens: 4}

// finds is a look-up that finds n tokens, whatever it is asked for.
func finds(n int) func(context.Context, Request) (int, error) {
	return func(context.Context, Request) (int, error) { return n, nil }
}

func newHasher(t testing.TB, s kv.Scheme) *kv.Hasher {
	t.Helper()
	s.Legacy = true
	h, err := kv.NewHasher(s)
	require.NoError(t, err)
	return h
}

func newDatabase(t testing.TB, s kv.Scheme) *kv.TokenDatabase {
	t.Helper()
	d, err := kv.NewTokenDatabase(newHasher(t, s), kv.EngineKey{Model: "org/m", World: 1, DType: "bfloat16"})
	require.NoError(t, err)
	return d
}

// log collects lines.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// serve starts a server, and returns its path.
func serve(t testing.TB, o ServerOptions) (*Server, string) {
	t.Helper()
	s, err := NewServer(o)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, <-served)
	})
	return s, path
}

func connect(t testing.TB, o ClientOptions) *Client {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	c, err := NewClient(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func tokens(n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(i)
	}
	return out
}

func TestGoldenFrames(t *testing.T) {
	raw, err := os.ReadFile("testdata/frames.json")
	require.NoError(t, err)
	var golden struct {
		Rows []struct {
			Algorithm      kv.Algorithm
			Chunk, Hit     int
			Tail, Blending bool
			Tokens         []int64
			ID, Options    string
			Frames         []string
		}
		Paths []struct {
			Base, Engine, Name, Path string
			Port, Rank               int
		}
	}
	require.NoError(t, json.Unmarshal(raw, &golden))
	require.Greater(t, len(golden.Rows), 20)
	for i, row := range golden.Rows {
		r := Request{ID: row.ID, Tokens: row.Tokens, Options: row.Options}
		if !row.Blending {
			r.Tokens = nil
			scheme := kv.Scheme{Algorithm: row.Algorithm, ChunkTokens: row.Chunk, Seed: "0", KeepTail: row.Tail}
			chunks, err := newDatabase(t, scheme).Chunks(row.Tokens, 0, nil)
			require.NoError(t, err)
			for _, c := range chunks {
				r.Hashes, r.Lengths = append(r.Hashes, c.Key.Hash), append(r.Lengths, c.End-c.Start)
			}
			if len(chunks) == 0 {
				require.Empty(t, row.Frames, "row %d: LMCache asks nobody", i)
				continue
			}
		}
		frames, err := appendQuestion(r, row.Blending)
		require.NoError(t, err)
		var got []string
		for _, f := range frames[1:] {
			got = append(got, hex.EncodeToString(f))
		}
		require.Equal(t, row.Frames, got, "row %d", i)
		back, err := readQuestion(frames[1:], row.Blending)
		require.NoError(t, err)
		require.Equal(t, r, back)
		require.Equal(t, 5, row.Hit, "the bytes 0, 0, 0, 5")
	}
	for _, p := range golden.Paths {
		got, err := Address{Base: p.Base, Engine: p.Engine, Port: p.Port, PortName: p.Name}.Path(p.Rank)
		require.Equal(t, p.Path, got, "%+v", p)
		require.Equal(t, p.Path == "", err != nil)
	}
	n, err := readAnswer(appendAnswer(5))
	require.NoError(t, err)
	require.Equal(t, 5, n)
	require.Equal(t, []byte{0, 0, 0, 5}, appendAnswer(5)[1])
}

// TestLookup: a client takes the least number of all workers, whose requests are whole.
func TestLookup(t *testing.T) {
	asked := make(chan Request, 2)
	answering := func(n int) ServerOptions {
		return ServerOptions{Lookup: func(_ context.Context, r Request) (int, error) {
			asked <- r
			return n, nil
		}}
	}
	_, one := serve(t, answering(8))
	_, two := serve(t, answering(4))
	var lines log
	s := kv.Scheme{Algorithm: kv.Builtin, Seed: "0", ChunkTokens: 4}
	c := connect(t, ClientOptions{
		Paths: []string{one, two}, Database: newDatabase(t, s),
		Logger: slog.New(slog.NewTextHandler(&lines, nil)),
	})
	for range 3 { // on the same connections
		n, err := c.Lookup(t.Context(), "r", tokens(11), `{"lmcache.tag.a":"b"}`)
		require.NoError(t, err)
		require.Equal(t, 4, n)
		for range 2 {
			r := <-asked
			require.Equal(t, []int{4, 4}, r.Lengths)
			require.Len(t, r.Hashes, 2)
			require.JSONEq(t, `{"lmcache.tag.a":"b"}`, r.Options)
		}
	}
	require.Equal(t, 1, strings.Count(lines.String(), "workers have different numbers"))
	n, err := c.Lookup(t.Context(), "r", tokens(3), "")
	require.NoError(t, err)
	require.Zero(t, n, "without a chunk nobody is asked")
	require.Empty(t, asked)
	_, err = c.Lookup(t.Context(), "r", []int64{-1}, "")
	require.ErrorIs(t, err, fs.ErrInvalid)
}

func TestLookupOfTokens(t *testing.T) {
	_, path := serve(t, ServerOptions{
		Blending: true,
		Lookup:   func(_ context.Context, r Request) (int, error) { return len(r.Tokens), nil },
	})
	c := connect(t, ClientOptions{Paths: []string{path}})
	n, err := c.Lookup(t.Context(), "r", tokens(100_000), "")
	require.NoError(t, err)
	require.Equal(t, 100_000, n)
}

// TestLateAnswers: an answer that comes too late is never one to the next question, and is told to the worker.
func TestLateAnswers(t *testing.T) {
	began, going := make(chan struct{}), make(chan struct{})
	undelivered := make(chan Request, 1)
	_, path := serve(t, ServerOptions{
		Lookup: func(ctx context.Context, r Request) (int, error) {
			if r.ID == "late" {
				began <- struct{}{}
				select {
				case <-going:
				case <-ctx.Done(): // the test has failed
				}
				return 8, nil
			}
			return 4, nil
		},
		Undelivered: func(r Request) { undelivered <- r },
	})
	c := connect(t, ClientOptions{Paths: []string{path}, Database: newDatabase(t, chunksOf4)})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-began
		cancel()
	}()
	_, err := c.Lookup(ctx, "late", tokens(8), "")
	require.ErrorIs(t, err, context.Canceled)
	n, err := c.Lookup(t.Context(), "next", tokens(8), "")
	require.NoError(t, err)
	require.Equal(t, 4, n)
	close(going)
	require.Equal(t, "late", (<-undelivered).ID)
}

// TestTimeout: a worker that does not answer, or does not even greet, costs the timeout.
func TestTimeout(t *testing.T) {
	_, mute := serve(t, ServerOptions{Lookup: func(ctx context.Context, _ Request) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}})
	silent := filepath.Join(t.TempDir(), "silent")
	l, err := Listen(silent)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	d := newDatabase(t, chunksOf4)
	for _, path := range []string{mute, silent} {
		c := connect(t, ClientOptions{Paths: []string{path}, Database: d, Timeout: 10 * time.Millisecond})
		_, err := c.Lookup(t.Context(), "r", tokens(8), "")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	c := connect(t, ClientOptions{Paths: []string{filepath.Join(t.TempDir(), "nobody")}, Database: d})
	_, err = c.Lookup(t.Context(), "r", tokens(8), "")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestWorkerThatComesBack: after a failure the next look-up connects again.
func TestWorkerThatComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	c := connect(t, ClientOptions{Paths: []string{path}, Database: newDatabase(t, chunksOf4)})
	for round := range 3 {
		s, err := NewServer(ServerOptions{Lookup: finds(4)})
		require.NoError(t, err)
		l, err := Listen(path)
		require.NoError(t, err)
		if round == 1 { // as after a kill
			l.(*net.UnixListener).SetUnlinkOnClose(false)
		}
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		n, err := c.Lookup(t.Context(), "r", tokens(8), "")
		if round > 0 && err != nil {
			n, err = c.Lookup(t.Context(), "r", tokens(8), "")
		}
		require.NoError(t, err)
		require.Equal(t, 4, n)
		_, err = Listen(path)
		require.ErrorContains(t, err, "somebody listens")
		require.NoError(t, s.Close())
		require.NoError(t, <-served)
		_, err = c.Lookup(t.Context(), "r", tokens(8), "")
		require.Error(t, err)
	}
}

// TestCloseEndsALookup: and nothing is asked any more.
func TestCloseEndsALookup(t *testing.T) {
	began := make(chan struct{})
	_, path := serve(t, ServerOptions{Lookup: func(ctx context.Context, _ Request) (int, error) {
		close(began)
		<-ctx.Done()
		return 0, ctx.Err()
	}})
	c := connect(t, ClientOptions{Paths: []string{path}, Database: newDatabase(t, chunksOf4)})
	go func() {
		<-began
		_ = c.Close()
	}()
	_, err := c.Lookup(t.Context(), "r", tokens(8), "")
	require.Error(t, err)
	_, err = c.Lookup(t.Context(), "r", tokens(8), "")
	require.ErrorIs(t, err, fs.ErrClosed)
}

// greeted returns a connection of a REQ socket.
func greeted(t testing.TB, path string) *zmtp.Conn {
	t.Helper()
	c, err := dialGreeted(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestMessagesThatLie: what can't be read is answered with 0, where LMCache's scheduler would wait for 3 s, and the
// connection goes on; what is no question of a REQ socket ends it.
func TestMessagesThatLie(t *testing.T) {
	var lines log
	_, path := serve(t, ServerOptions{
		Lookup: func(_ context.Context, r Request) (int, error) {
			switch r.ID {
			case "fails":
				return 9, errors.New("it failed")
			case "odd":
				return -1, nil
			}
			return 7, nil
		},
		MaxConns: 2, MaxMessage: 4096, Logger: slog.New(slog.NewTextHandler(&lines, nil)),
	})
	good, err := appendQuestion(Request{ID: "r", Hashes: []string{"a"}, Lengths: []int{4}}, false)
	require.NoError(t, err)
	with := func(i int, frame string) [][]byte {
		out := append([][]byte{}, good...)
		out[i] = []byte(frame)
		return out
	}
	c := greeted(t, path)
	ask := func(frames [][]byte) int {
		require.NoError(t, c.Send(frames))
		answer, err := c.Receive()
		require.NoError(t, err)
		n, err := readAnswer(answer)
		require.NoError(t, err)
		return n
	}
	require.Equal(t, 7, ask(good))
	for name, frames := range map[string][][]byte{
		"short":    good[:4],
		"hashes":   with(1, "\xc0"),
		"many":     with(1, "\xdd\xff\xff\xff\xff\x01"),
		"float":    with(1, "\x91\xca\x00\x00\x00\x00"),
		"behind":   with(1, "\x91\x01\x01"),
		"lengths":  with(2, "\x92\x01\x01"),
		"negative": with(2, "\x91\xff"),
		"ID":       with(3, "\x01"),
		"UTF-8":    with(3, "\xa1\xff"),
		"long ID":  with(3, "\xda\x0f\x00"+strings.Repeat("x", 0xf00)+"y"),
		"options":  with(4, "\xc0"),
		"empty":    with(4, ""),
		"fails":    with(3, "\xa5fails"),
		"odd":      with(3, "\xa3odd"),
	} {
		require.Zero(t, ask(frames), name)
	}
	require.Equal(t, 7, ask(good))
	require.Equal(t, 7, ask(with(3, "\xc4\x01r")), "LMCache takes bytes for a text, too")
	require.Equal(t, 1, strings.Count(lines.String(), "\n"), "one line a minute")

	second := greeted(t, path)
	third, err := net.Dial("unix", path)
	require.NoError(t, err)
	_, err = third.Read(make([]byte, 1))
	require.Error(t, err, "there are too many connections")
	require.NoError(t, third.Close())
	for i, frames := range [][][]byte{{[]byte("x"), []byte("y")}, {{}}, {{}, make([]byte, 4097)}} {
		if i > 0 {
			require.Eventually(t, func() bool { // the place of the one before has to be free
				second, err = dialGreeted(path)
				return err == nil
			}, time.Minute, time.Millisecond)
		}
		_ = second.Send(frames) // it may be closed before all of it is written
		_, err := second.Receive()
		require.Error(t, err, "%d", i)
		_ = second.Close()
	}
	require.Equal(t, 7, ask(good), "others go on")
}

func dialGreeted(path string) (*zmtp.Conn, error) {
	raw, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	c := zmtp.New(raw, zmtp.Options{MaxMessage: 1 << 20, SendTimeout: time.Minute})
	if _, err := c.Greet(zmq4.Req, time.Minute); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return c, nil
}

// TestAnswersThatLie: a client believes no worker that has more than was asked for, or answers otherwise.
func TestAnswersThatLie(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	require.NoError(t, err)
	answers := [][][]byte{
		{{}, {0, 0, 0, 9}}, {{}, {0, 0, 0, 0, 0}}, {{0, 0, 0, 8}}, {{1}, {0, 0, 0, 8}},
		{{}, make([]byte, 8192)}, {{}, {}, {}},
		{{}, {0, 0, 0, 8}}, // the right one
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, a := range answers {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			c := zmtp.New(raw, zmtp.Options{MaxMessage: 1 << 20, SendTimeout: time.Minute})
			if _, err := c.Greet(zmq4.Router, time.Minute); err == nil {
				_, _ = c.Receive()
				_ = c.Send(a)
				_, _ = io.ReadAll(raw)
			}
			_ = raw.Close()
		}
	}()
	c := connect(t, ClientOptions{Paths: []string{path}, Database: newDatabase(t, chunksOf4)})
	for i := range answers {
		n, err := c.Lookup(t.Context(), "r", tokens(8), "")
		if i < len(answers)-1 {
			require.Error(t, err, "%d", i)
			require.Zero(t, n)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, 8, n)
	}
	require.NoError(t, c.Close())
	require.NoError(t, l.Close())
	<-done
}

// TestPeersThatHashOtherwise: the cause of look-ups that never find anything is named.
func TestPeersThatHashOtherwise(t *testing.T) {
	for name, c := range map[string]struct {
		scheme kv.Scheme
		logged string // at the look-up
		stored string // by Stored
	}{
		"same": {scheme: chunksOf4},
		"seed": {
			scheme: kv.Scheme{Algorithm: kv.SHA256CBOR, ChunkTokens: 4, Seed: "0"},
			stored: "a peer hashes with sha256_cbor with PYTHONHASHSEED=0",
		},
		"random": {
			scheme: kv.Scheme{Algorithm: kv.SHA256CBOR, ChunkTokens: 4, Seed: "918"},
			stored: "is PYTHONHASHSEED not set there",
		},
		"other": {
			scheme: kv.Scheme{Algorithm: kv.Builtin, ChunkTokens: 4, Seed: "0"},
			logged: "is negative: it is of builtin",
		},
		"chunk":  {scheme: kv.Scheme{Algorithm: kv.SHA256CBOR, ChunkTokens: 8}, logged: "chunks of another length"},
		"chunks": {scheme: kv.Scheme{Algorithm: kv.SHA256CBOR, ChunkTokens: 2}, logged: "chunks of another length"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHasher(t, chunksOf4)
			var lines log
			s, path := serve(t, ServerOptions{
				Lookup: finds(0), Hasher: h, Logger: slog.New(slog.NewTextHandler(&lines, nil)),
			})
			client := connect(t, ClientOptions{Paths: []string{path}, Database: newDatabase(t, c.scheme)})
			_, err := client.Lookup(t.Context(), "r", tokens(64), "")
			require.NoError(t, err)
			if c.logged != "" {
				require.Contains(t, lines.String(), c.logged)
				return
			}
			require.Empty(t, lines.String())
			require.NoError(t, s.Stored("another", tokens(64)))
			require.NoError(t, s.Stored("r", nil), "of fewer tokens than a chunk nothing is known")
			_, err = client.Lookup(t.Context(), "r", tokens(64), "")
			require.NoError(t, err)
			err = s.Stored("r", tokens(64))
			if c.stored == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.stored)
			require.Contains(t, lines.String(), "hashes otherwise")
			require.NoError(t, s.Stored("r", tokens(64)), "once for each request")
		})
	}
}

// TestRemembersFewRequests: what a server keeps of requests is bounded.
func TestRemembersFewRequests(t *testing.T) {
	s, err := NewServer(ServerOptions{Lookup: finds(0), Hasher: newHasher(t, chunksOf4)})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	for i := range 3 * maxRecent {
		id := string(binary.BigEndian.AppendUint32(nil, uint32(i)))
		_, err := s.answer(Request{ID: id, Hashes: []string{"1"}, Lengths: []int{4}})
		require.NoError(t, err)
		if i%3 == 0 {
			require.Error(t, s.Stored(id, tokens(4)))
		}
	}
	require.LessOrEqual(t, len(s.recent), maxRecent)
	_, err = s.answer(Request{ID: strings.Repeat("x", maxRecentID+1), Hashes: []string{"1"}, Lengths: []int{4}})
	require.NoError(t, err)
	require.NoError(t, s.Stored(strings.Repeat("x", maxRecentID+1), tokens(4)))
}

func TestRefusedOptions(t *testing.T) {
	for _, o := range []ServerOptions{{}, {Lookup: finds(0), MaxConns: -1}, {Lookup: finds(0), MaxMessage: -1}} {
		_, err := NewServer(o)
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
	for _, o := range []ClientOptions{
		{}, {Paths: []string{""}}, {Paths: make([]string, maxWorkers+1)}, {Paths: []string{"x"}, Timeout: -1},
	} {
		_, err := NewClient(o)
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
	for _, a := range []Address{{}, {Base: "x"}, {Engine: "x"}} {
		_, err := a.Path(0)
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
	_, err := Address{Base: "x", Engine: "x"}.Path(-1)
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, err = appendQuestion(Request{Hashes: []string{"10000000000000000"}}, false)
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, err = Listen(filepath.Join(t.TempDir(), "no", "folder"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestServerThatEnds: Serve after Close serves nobody.
func TestServerThatEnds(t *testing.T) {
	s, err := NewServer(ServerOptions{Lookup: finds(0)})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	l, err := Listen(filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	require.NoError(t, s.Serve(l))
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

// TestMemoryOfQuestions: a question takes a small multiple of its bytes.
func TestMemoryOfQuestions(t *testing.T) {
	list := append([]byte{0xdd, 0, 0x0f, 0xff, 0x00}, make([]byte, 0x0fff00)...)
	frames := [][]byte{list, list, {0xa1, 'r'}, {0xa0}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := readQuestion(frames, false)
	require.NoError(t, err)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16*(len(frames[0])+len(frames[1]))))
}

// TestRequestThatIsAskedAgainIsRemembered: for as long as others, whatever place it had before.
func TestRequestThatIsAskedAgainIsRemembered(t *testing.T) {
	s, err := NewServer(ServerOptions{Lookup: finds(0), Hasher: newHasher(t, chunksOf4)})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	ask := func(id string) {
		_, err := s.answer(Request{ID: id, Hashes: []string{"1"}, Lengths: []int{4}})
		require.NoError(t, err)
	}
	ask("r")
	require.Error(t, s.Stored("r", tokens(4)))
	ask("r")
	for i := range maxRecent - 1 {
		ask(string(binary.BigEndian.AppendUint32(nil, uint32(i))))
	}
	require.Error(t, s.Stored("r", tokens(4)))
	require.LessOrEqual(t, len(s.recent), maxRecent)
}

// TestListenRemovesNoFile: only sockets at which nobody listens.
func TestListenRemovesNoFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes")
	require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	_, err := Listen(path)
	require.Error(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "mine", string(text))
}

// crowd is a listener to which clients come and go all the time.
type crowd struct {
	net.Listener
	came chan struct{} // closed with the first one
	once sync.Once
	ends atomic.Bool
}

func (c *crowd) Accept() (net.Conn, error) {
	if c.ends.Load() {
		return nil, net.ErrClosed
	}
	c.once.Do(func() { close(c.came) })
	server, client := net.Pipe()
	return server, client.Close()
}

func (c *crowd) Close() error { c.ends.Store(true); return nil }

// TestCloseWaitsForClientsThatJustCame: nobody is served any more when it returns.
func TestCloseWaitsForClientsThatJustCame(t *testing.T) {
	for range 500 {
		s, err := NewServer(ServerOptions{MaxConns: 2, Lookup: finds(0)})
		require.NoError(t, err)
		l := &crowd{came: make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		<-l.came
		require.NoError(t, s.Close())
		s.mu.Lock()
		require.Zero(t, s.conns)
		s.mu.Unlock()
		require.NoError(t, <-served)
	}
}

func FuzzQuestion(f *testing.F) {
	for _, r := range []Request{{ID: "r", Hashes: []string{"-1", "ff"}, Lengths: []int{4, 1}, Options: "{}"}, {}} {
		frames, err := appendQuestion(r, false)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frames[1], frames[2], frames[3], frames[4])
	}
	f.Fuzz(func(t *testing.T, a, b, c, d []byte) {
		for _, frames := range [][][]byte{{a, b, c, d}, {a, c, d}} {
			r, err := readQuestion(frames, len(frames) == 3)
			if err != nil {
				require.ErrorIs(t, err, errQuestion)
				continue
			}
			again, err := appendQuestion(r, len(frames) == 3)
			require.NoError(t, err)
			back, err := readQuestion(again[1:], len(frames) == 3)
			require.NoError(t, err)
			require.Equal(t, r, back)
		}
	})
}

// TestCloseWhileAClientComes: Close waits for a connection that is accepted at that moment, too.
func TestCloseWhileAClientComes(t *testing.T) {
	for range 200 {
		s, err := NewServer(ServerOptions{Lookup: finds(0)})
		require.NoError(t, err)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		raw, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.Empty(t, s.open, "nothing is left when Close returns")
		require.NoError(t, <-served)
		require.NoError(t, raw.Close())
	}
}
