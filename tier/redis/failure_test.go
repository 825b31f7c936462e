package redis

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/redistest"
	"github.com/ringcache/ringcache/tier"
)

var stopped = flag.Duration("stopped", time.Second, "how long TestStoppedServer stops the server")

// load puts and gets objects all the time, in some goroutines, and counts answers. A wrong byte fails the
// test.
type load struct {
	hits, misses, full, away, other atomic.Int64
	slowest                         atomic.Int64 // nanoseconds of a call
	sometimes                       sync.Map     // texts of other errors
	stop                            context.CancelFunc
	wg                              sync.WaitGroup
}

func startLoad(t *testing.T, l *Level, names, size int) *load {
	ctx, cancel := context.WithCancel(t.Context())
	d := &load{stop: cancel}
	for range 6 {
		d.wg.Go(func() {
			for ctx.Err() == nil {
				var errs []error
				first, n := rand.IntN(names), 1+rand.IntN(8)
				began := time.Now()
				if rand.IntN(2) == 0 {
					var objects []tier.Object
					for i := range n {
						objects = append(objects, object(fmt.Sprint("load ", (first+i)%names), size))
					}
					errs = tryPut(ctx, l, objects...)
				} else {
					gets := make([]tier.Get, n)
					for i := range gets {
						gets[i].Key = keyOf(fmt.Sprint("load ", (first+i)%names))
					}
					l.Get(ctx, gets)
					for _, g := range gets {
						errs = append(errs, g.Err)
						if g.Err == nil && !bytes.Equal(content(g.Key.Name, size), g.Bytes) {
							t.Errorf("wrong bytes of %v", g.Key)
						}
					}
				}
				took := time.Since(began).Nanoseconds()
				for old := d.slowest.Load(); took > old && !d.slowest.CompareAndSwap(old, took); old = d.slowest.Load() {
				}
				for _, err := range errs {
					d.count(err)
				}
			}
		})
	}
	return d
}

func (d *load) count(err error) {
	switch {
	case err == nil:
		d.hits.Add(1)
	case errors.Is(err, tier.ErrCorrupt):
		d.other.Add(1)
		d.sometimes.Store(err.Error(), true)
	case errors.Is(err, tier.ErrNotFound), errors.Is(err, tier.ErrPending):
		d.misses.Add(1)
	case errors.Is(err, tier.ErrFull):
		d.full.Add(1)
	case errors.Is(err, tier.ErrUnavailable):
		d.away.Add(1)
	case errors.Is(err, context.Canceled):
	default:
		d.other.Add(1)
		d.sometimes.Store(err.Error(), true)
	}
}

// end stops the load. Only misses, full and unavailable are allowed.
func (d *load) end(t *testing.T) {
	t.Helper()
	d.stop()
	d.wg.Wait()
	d.sometimes.Range(func(text, _ any) bool { t.Error(text); return true })
	require.Zero(t, d.other.Load())
	t.Logf("%d done, %d misses, %d full, %d unavailable, the slowest call %v", d.hits.Load(), d.misses.Load(),
		d.full.Load(), d.away.Load(), time.Duration(d.slowest.Load()))
}

// more waits until a counter has grown by so much.
func more(t *testing.T, c *atomic.Int64, by int64) {
	t.Helper()
	require.Eventually(t, func() bool { return by <= 0 || c.Load() >= by }, 2*time.Minute, time.Millisecond)
}

func moreThanNow(t *testing.T, c *atomic.Int64, by int64) { t.Helper(); more(t, c, c.Load()+by) }

// A server that evicts has never a wrong byte, nor half an object.
func TestEvictingServer(t *testing.T) {
	t.Parallel()
	for _, layout := range []string{"objects", "lmcache", "resp"} {
		t.Run(layout, func(t *testing.T) {
			s := redistest.Start(t, "--maxmemory", "24mb", "--maxmemory-policy", "allkeys-lru", "--maxmemory-samples",
				"3")
			l := open(t, Options{URL: "redis://" + s.Addr() + "?layout=" + layout})
			space, metadata := "space", []byte(nil)
			if layout != "objects" {
				space = ""
			}
			const size = 100_000
			if layout == "lmcache" {
				metadata = metadataOf(size)
			}
			hits, misses := 0, 0
			for i := range 1500 {
				name := fmt.Sprint("n", rand.IntN(500))
				o := tier.Object{Key: tier.Key{Space: space, Name: name}, Size: size, Note: metadata}
				if i%2 == 0 {
					p := []tier.Put{{Object: o, Bytes: content(name, size)}}
					l.Put(t.Context(), p)
					require.NoError(t, p[0].Err)
					continue
				}
				g := []tier.Get{{Key: o.Key}}
				l.Get(t.Context(), g)
				if g[0].Err != nil {
					require.ErrorIs(t, g[0].Err, tier.ErrNotFound)
					misses++
					continue
				}
				hits++
				require.True(t, bytes.Equal(content(name, size), g[0].Bytes))
			}
			t.Logf("%d hits, %d misses, %d half-evicted", hits, misses, l.Usage().Corrupt)
			require.Positive(t, hits)
			require.Positive(t, misses)
			require.NotContains(t, s.Do("info", "stats"), "evicted_keys:0\r")
			if layout != "lmcache" {
				require.Zero(t, l.Usage().Corrupt)
			} else {
				require.Positive(t, l.Usage().Corrupt)
			}
		})
	}
}

// A full server that does not evict answers ErrFull, and serves what it has.
func TestFullServer(t *testing.T) {
	s, l := start(t, "--maxmemory", "8mb")
	var full error
	n := 0
	for ; full == nil && n < 100; n++ {
		full = tryPut(t.Context(), l, object(fmt.Sprint(n), 500_000))[0]
	}
	require.ErrorIs(t, full, tier.ErrFull)
	require.ErrorContains(t, full, "allkeys-lru")
	mustGet(t, l, "0")
	require.ErrorIs(t, get(t, l, fmt.Sprint(n-1)).Err, tier.ErrNotFound)
	require.NoError(t, l.Delete(t.Context(), []tier.Key{keyOf("0")})[0])
	require.Equal(t, "OK", s.Do("config", "set", "maxmemory", "0"))
	put(t, l, object("0", 500_000))
}

// LMCache's two keys when there is room for the bytes only: nothing stays.
func TestFullBetweenBytesAndMetadata(t *testing.T) {
	s := redistest.Start(t)
	l := open(t, Options{URL: "redis://" + s.Addr() + "?layout=lmcache"})
	// The metadata can't be written, as a user who may not.
	s.Do("acl", "setuser", "half", "on", ">pw", "+@all", "%RW~*kv_bytes", "%R~*metadata")
	h := open(t, Options{URL: "redis://half:pw@" + s.Addr() + "?layout=lmcache"})
	o := tier.Object{Key: tier.Key{Name: "a"}, Size: 512, Note: metadataOf(512)}
	p := []tier.Put{{Object: o, Bytes: make([]byte, 512)}}
	h.Put(t.Context(), p)
	require.ErrorIs(t, p[0].Err, tier.ErrUnavailable)
	require.ErrorIs(t, p[0].Err, fs.ErrPermission)
	require.Equal(t, "0", s.Do("dbsize"))
	// The bytes can't be written, which come first.
	s.Do("acl", "setuser", "other", "on", ">pw", "+@all", "%R~*kv_bytes", "%RW~*metadata")
	open(t, Options{URL: "redis://other:pw@" + s.Addr() + "?layout=lmcache"}).Put(t.Context(), p)
	require.ErrorIs(t, p[0].Err, fs.ErrPermission)
	require.Equal(t, "0", s.Do("dbsize"))
	l.Put(t.Context(), p)
	require.NoError(t, p[0].Err)
	require.Equal(t, "2", s.Do("dbsize"))
}

// A server that is killed and started again, under load: calls answer ErrUnavailable while it is away, at
// once, and go on afterwards. With an append-only file the objects are back.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{false, true} {
		t.Run(fmt.Sprint("persistent ", keeps), func(t *testing.T) {
			var args []string
			if keeps {
				args = []string{"--appendonly", "yes", "--appendfsync", "always"}
			}
			s := redistest.Start(t, args...)
			l := open(t, Options{URL: "redis://" + s.Addr(), Retry: 10 * time.Millisecond, Timeout: 20 * time.Second})
			put(t, l, object("kept", 1000))
			d := startLoad(t, l, 100, 20_000)
			for range 3 {
				moreThanNow(t, &d.hits, 500)
				s.Kill()
				moreThanNow(t, &d.away, 500)
				require.ErrorIs(t, get(t, l, "kept").Err, tier.ErrUnavailable)
				s.Start()
				moreThanNow(t, &d.hits, 500)
			}
			d.end(t)
			if keeps {
				mustGet(t, l, "kept")
			} else {
				require.ErrorIs(t, get(t, l, "kept").Err, tier.ErrNotFound)
			}
		})
	}
}

// A stopped server takes connections and does not answer. One time limit later all calls answer at once.
func TestStoppedServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const limit = 300 * time.Millisecond
	l := open(t, Options{URL: "redis://" + s.Addr(), Retry: 50 * time.Millisecond, Timeout: limit})
	put(t, l, object("kept", 1000))
	d := startLoad(t, l, 100, 20_000)
	moreThanNow(t, &d.hits, 1000)
	s.Stop()
	moreThanNow(t, &d.away, 1)
	began, calls := time.Now(), 0
	for time.Since(began) < *stopped {
		require.ErrorIs(t, get(t, l, "kept").Err, tier.ErrUnavailable)
		calls++
	}
	// While it is left alone nobody waits.
	require.Greater(t, calls, 2*int(*stopped/limit))
	moreThanNow(t, &d.away, 100)
	s.Continue()
	moreThanNow(t, &d.hits, 1000)
	d.end(t)
	mustGet(t, l, "kept")
	t.Logf("%d calls in %v of a stopped server", calls, *stopped)
}

// A caller whose time is short does not make others believe that the server is away, but has it asked.
func TestHurriedCaller(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := open(t, Options{URL: "redis://" + s.Addr(), Retry: 10 * time.Millisecond, Timeout: 10 * time.Second})
	put(t, l, object("a", 8<<20))
	late := 0
	for range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(3000))*time.Microsecond)
		g := []tier.Get{{Key: keyOf("a")}}
		l.Get(ctx, g)
		cancel()
		if g[0].Err != nil {
			require.ErrorIs(t, g[0].Err, context.DeadlineExceeded)
			late++
		}
	}
	require.Positive(t, late)
	mustGet(t, l, "a")

	// All callers are in a hurry, and the server is stopped: the question of the level finds out.
	h := open(t, Options{URL: "redis://" + s.Addr(), Retry: 10 * time.Millisecond, Timeout: 100 * time.Millisecond})
	mustGet(t, h, "a")
	s.Stop()
	for calls := 0; ; calls++ {
		// Later than that the server's queue of connections is full, which shows by itself.
		require.Less(t, calls, 300, "nobody asks")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		g := []tier.Get{{Key: keyOf("a")}}
		h.Get(ctx, g)
		cancel()
		if errors.Is(g[0].Err, tier.ErrUnavailable) {
			break
		}
	}
	s.Continue()
}

// Close does not wait for a stopped server longer than its calls do, and leaves nothing behind.
func TestCloseBesideAStoppedServer(t *testing.T) {
	s := redistest.Start(t)
	l, err := Open(t.Context(), Options{URL: "redis://" + s.Addr(), Timeout: 100 * time.Millisecond, Retry: time.Hour})
	require.NoError(t, err)
	s.Stop()
	require.ErrorIs(t, get(t, l, "a").Err, tier.ErrUnavailable)
	require.NoError(t, l.Close())
}

// A level may be opened before its server is there.
func TestServerComesLater(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	l := open(t, Options{URL: "redis://" + s.Addr(), Retry: 10 * time.Millisecond})
	require.ErrorIs(t, l.Ping(t.Context()), tier.ErrUnavailable)
	require.ErrorContains(t, l.Ping(t.Context()), "connection refused")
	require.ErrorIs(t, tryPut(t.Context(), l, object("a", 1))[0], tier.ErrUnavailable)
	s.Start()
	require.Eventually(t, func() bool { return l.Ping(t.Context()) == nil }, 2*time.Minute, time.Millisecond)
	put(t, l, object("a", 1))
}

func TestWrongUse(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	t.Run("passwords", func(t *testing.T) {
		s := redistest.Start(t, "--requirepass", "secret")
		for _, o := range []Options{{URL: "redis://" + s.Addr()}, {URL: "redis://:geheim@" + s.Addr()},
			{URL: "redis://" + s.Addr(), User: "no", Password: "one"}} {
			_, err := Open(ctx, o)
			require.ErrorIs(t, err, fs.ErrPermission)
			require.ErrorIs(t, err, tier.ErrUnavailable)
			require.ErrorContains(t, err, "Password")
			require.NotContains(t, err.Error(), "geheim")
		}
		l := open(t, Options{URL: "redis://:secret@" + s.Addr()})
		put(t, l, object("a", 1))
		l = open(t, Options{URL: "redis://" + s.Addr(), User: "default", Password: "secret"})
		mustGet(t, l, "a")
	})
	t.Run("password that changes", func(t *testing.T) {
		s := redistest.Start(t)
		l := open(t, Options{URL: "redis://" + s.Addr(), Retry: time.Millisecond})
		put(t, l, object("a", 1))
		s.Do("config", "set", "requirepass", "secret")
		s.CLI("-a", "secret", "--no-auth-warning")
		s.Do("client", "kill", "type", "normal")
		err := get(t, l, "a").Err
		require.ErrorIs(t, err, fs.ErrPermission)
		s.Do("config", "set", "requirepass", "")
		require.Eventually(t, func() bool { return get(t, l, "a").Err == nil }, time.Minute, time.Millisecond)
	})
	t.Run("database", func(t *testing.T) {
		s := redistest.Start(t)
		_, err := Open(ctx, Options{URL: "redis://" + s.Addr() + "/99"})
		require.ErrorIs(t, err, fs.ErrInvalid)
		a, b := open(t, Options{URL: "redis://" + s.Addr() + "/3"}),
			open(t, Options{URL: "unix://" + s.Socket() + "?db=3"})
		put(t, a, object("a", 1))
		mustGet(t, b, "a")
		require.Equal(t, "0", s.Do("dbsize"))
	})
	t.Run("a single server as a cluster", func(t *testing.T) {
		s := redistest.Start(t)
		_, err := Open(ctx, Options{URL: "redis+cluster://" + s.Addr()})
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.ErrorContains(t, err, "redis://")
	})
	t.Run("replica", func(t *testing.T) {
		s := redistest.Start(t)
		s.Do("replicaof", "127.0.0.1", "1")
		l := open(t, Options{URL: "redis://" + s.Addr()})
		err := tryPut(ctx, l, object("a", 1))[0]
		require.ErrorIs(t, err, tier.ErrUnavailable)
		require.ErrorContains(t, err, "master")
	})
	t.Run("TLS with a server without it", func(t *testing.T) {
		s := redistest.Start(t)
		// the server waits for the end of a line
		l := open(t, Options{URL: "rediss://" + s.Addr(), Timeout: 50 * time.Millisecond})
		require.ErrorIs(t, l.Ping(ctx), tier.ErrUnavailable)
	})
	t.Run("too large for the server", func(t *testing.T) {
		_, l := start(t, "--proto-max-bulk-len", "1mb")
		// The server closes the connection before it has read the value, so that its answer is often lost.
		require.Error(t, tryPut(ctx, l, object("a", 2<<20))[0])
		require.Eventually(t, func() bool {
			return tryPut(ctx, l, object("b", 100))[0] == nil
		}, time.Minute, time.Millisecond)
	})
}

// A user who may do no more than the package page lists.
func TestACL(t *testing.T) {
	s := redistest.Start(t)
	require.Equal(t, "OK", s.Do("acl", "setuser", "tiers", "on", ">pw", "~ringcache:*", "+@read", "+@write",
		"+@transaction", "+@connection", "+cluster|slots"))
	l := open(t, Options{URL: "redis://" + s.Addr(), User: "tiers", Password: "pw"})
	put(t, l, object("a", 100_000))
	mustGet(t, l, "a")
	n := 0
	for _, err := range l.List(t.Context(), "") {
		require.NoError(t, err)
		n++
	}
	require.Equal(t, 1, n)
	s.Do("setrange", "ringcache:space:a", "50000", "xyz")
	require.ErrorIs(t, get(t, l, "a").Err, tier.ErrCorrupt)
	require.Equal(t, "0", s.Do("exists", "ringcache:space:a"))
	put(t, l, object("a", 1))
	require.NoError(t, l.Delete(t.Context(), []tier.Key{keyOf("a")})[0])

	other := open(t, Options{URL: "redis://tiers:pw@" + s.Addr() + "?prefix=other:"})
	err := tryPut(t.Context(), other, object("a", 1))[0]
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, "ACL")
}
