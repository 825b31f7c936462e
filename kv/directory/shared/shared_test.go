package shared

import (
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/internal/redistest"
	"github.com/ringcache/ringcache/kv/directory"
	"github.com/ringcache/ringcache/tier/redis"
)

var (
	large = flag.Bool("shared.large", false, "TestFleet with 10 million entries of 1,000 workers")
	lies  = flag.Int("shared.lies", 500, "TestLies: exchanges with a server that lies")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func id(n int) directory.ID { return directory.ID{Instance: fmt.Sprint("engine-", n)} }

func reports(first int64, keys ...uint64) (all []directory.Report) {
	for i, k := range keys {
		all = append(all, directory.Report{Key: directory.NumberKey(k), Number: first + int64(i)})
	}
	return all
}

// pair is two directories and a Redis.
func pair(t *testing.T, options directory.Options, o Options) (a, b *host, server *redistest.Server) {
	server = redistest.Start(t)
	hosts := make([]*host, 2)
	for i := range hosts {
		options.Shared = true
		o := o
		o.URL, o.Face, o.Directory = "redis://"+server.Addr(), "test", directory.New(options)
		s, err := Open(t.Context(), o)
		require.NoError(t, err)
		hosts[i] = &host{d: o.Directory, s: s}
		t.Cleanup(func() { require.NoError(t, s.level.Close()) })
	}
	return hosts[0], hosts[1], server
}

func (h *host) round(t *testing.T) {
	t.Helper()
	h.s.beaten = time.Time{}
	require.NoError(t, h.s.try(t.Context(), h.s.round))
	require.NoError(t, h.d.Validate())
}

// do runs a command. The keys of workers have bytes that no argument of a program has.
func (h *host) do(t *testing.T, args ...any) string {
	t.Helper()
	answer, err := h.s.client.Do(t.Context(), args...).Result()
	require.NoError(t, err)
	return fmt.Sprint(answer)
}

// TestMove: a worker that comes to another directory goes on with its numbers, and no full synchronisation is wanted;
// the one that it has left follows. What one says of a prefix the other says, too.
func TestMove(t *testing.T) {
	a, b, _ := pair(t, directory.Options{}, Options{})
	w := directory.Worker{ID: id(1), IP: "10.0.0.1", Port: 7, PeerURL: "here:1"}
	require.NoError(t, a.d.Register(w))
	require.NoError(t, a.d.Apply(w.ID, "cpu", reports(0, 1, 2, 3)))
	chain := []directory.Key{directory.NumberKey(1), directory.NumberKey(2), directory.NumberKey(4)}
	for n, from := range []*host{a, b, a, b} {
		to := map[*host]*host{a: b, b: a}[from]
		from.round(t)
		to.round(t)
		require.Equal(t, from.d.Find(chain, directory.Query{}), to.d.Find(chain, directory.Query{}))
		known, _ := to.d.Worker(w.ID)
		require.Equal(t, w.PeerURL, known.PeerURL)
		reason, err := to.d.Heartbeat(w)
		require.NoError(t, err)
		require.Empty(t, reason)
		require.NoError(t, to.d.Apply(w.ID, "cpu", reports(int64(n)+3, 4)))
		require.False(t, to.d.Find(chain, directory.Query{})[0].Stale)
	}
	require.Zero(t, a.d.Counts().Gaps+b.d.Counts().Gaps)
	a.round(t)
	b.round(t)
	require.True(t, b.d.Deregister(w.ID))
	b.round(t)
	a.round(t)
	require.Empty(t, a.d.Workers(""))
	require.Zero(t, a.d.Counts().Entries)
}

// TestMoveInTheMidstOfASync: a directory that takes a worker over asks for the full synchronisation that was under way.
func TestMoveInTheMidstOfASync(t *testing.T) {
	a, b, _ := pair(t, directory.Options{}, Options{})
	w := directory.Worker{ID: id(1)}
	_, err := a.d.Heartbeat(w) // of one that is older than the directory
	require.NoError(t, err)
	require.NoError(t, a.d.StartSync(w.ID, "cpu", "s", 2))
	require.NoError(t, a.d.SyncBatch(w.ID, "cpu", "s", 0, []directory.Key{directory.NumberKey(1)}))
	a.round(t)
	b.round(t)
	require.True(t, b.d.Find([]directory.Key{directory.NumberKey(1)}, directory.Query{})[0].Stale)
	reason, err := b.d.Heartbeat(w)
	require.NoError(t, err)
	require.NotEmpty(t, reason)
	require.True(t, b.d.SyncStatus(w.ID, "s").Release, "the worker may go on")
}

// TestNewsOfTwo: if two directories have news of a worker at a time, it is stale at both until it has told everything.
func TestNewsOfTwo(t *testing.T) {
	a, b, _ := pair(t, directory.Options{}, Options{})
	w := directory.Worker{ID: id(1)}
	require.NoError(t, a.d.Register(w))
	require.NoError(t, a.d.Apply(w.ID, "cpu", reports(0, 1)))
	a.round(t)
	b.round(t)
	require.NoError(t, a.d.Apply(w.ID, "cpu", reports(1, 2))) // not told before it moves
	require.NoError(t, b.d.Apply(w.ID, "cpu", reports(2, 3)))
	b.round(t)
	a.round(t)
	b.round(t)
	for _, h := range []*host{a, b} {
		require.True(t, h.d.Find([]directory.Key{directory.NumberKey(1)}, directory.Query{})[0].Stale)
	}
	require.Positive(t, a.s.Counts().Conflicts)
	reason, err := b.d.Heartbeat(w)
	require.NoError(t, err)
	require.Equal(t, "reports_lost", reason)
	require.NoError(t, b.d.StartSync(w.ID, "cpu", "s", 1))
	require.NoError(t, b.d.SyncBatch(w.ID, "cpu", "s", 0, []directory.Key{directory.NumberKey(1)}))
	require.NoError(t, b.d.EndSync(w.ID, "s"))
	b.round(t)
	a.round(t)
	for _, h := range []*host{a, b} {
		require.False(t, h.d.Find([]directory.Key{directory.NumberKey(1)}, directory.Query{})[0].Stale)
		require.Equal(t, 1, h.d.Counts().Entries)
	}
}

// TestClocks: a worker that lives is dropped by no directory, however its clock differs; one that does not is, by
// the clock of its own, and the others hear of it.
func TestClocks(t *testing.T) {
	now := time.Now()
	a, b, _ := pair(t, directory.Options{Timeout: time.Minute, Now: func() time.Time { return now }}, Options{})
	w := directory.Worker{ID: id(1)}
	require.NoError(t, a.d.Register(w))
	a.round(t)
	b.round(t)
	now = now.Add(time.Hour) // b's, so to say
	require.Zero(t, b.d.Expire())
	require.NoError(t, b.d.Apply(w.ID, "cpu", reports(0, 1))) // it moves
	require.Zero(t, b.d.Expire(), "what b has heard is of now")
	b.round(t)
	a.round(t)
	now = now.Add(time.Hour)
	require.Zero(t, a.d.Expire())
	require.Equal(t, 1, b.d.Expire())
	b.round(t)
	a.round(t)
	require.Empty(t, a.d.Workers(""))
}

// TestOrphans: workers of a directory that has ended are dropped after a time, and not those that have moved.
func TestOrphans(t *testing.T) {
	a, b, server := pair(t, directory.Options{}, Options{Timeout: time.Millisecond})
	for n := range 2 {
		require.NoError(t, a.d.Register(directory.Worker{ID: id(n)}))
		require.NoError(t, a.d.Apply(id(n), "cpu", reports(0, 1)))
	}
	a.round(t)
	b.round(t)
	b.round(t)
	require.Len(t, b.d.Workers(""), 2, "the directory of both lives")
	server.Do("del", b.s.prefix+"lease:"+a.s.me) // as after its time
	b.round(t)
	_, err := b.d.Heartbeat(directory.Worker{ID: id(1)})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		b.round(t)
		return len(b.d.Workers("")) == 1
	}, time.Minute, time.Millisecond)
	require.Equal(t, id(1), b.d.Workers("")[0].ID)
	require.Equal(t, "1", server.Do("scard", b.s.prefix+"workers"))
	a.round(t) // it had only lost its way to Redis, and had one of the two still
	b.round(t)
	require.Len(t, a.d.Workers(""), 2)
	require.Len(t, b.d.Workers(""), 2, "who hears of a worker knows better")
}

// TestAway: while Redis does not answer nothing waits for it, and when it is back it is told what has changed: nothing
// more, if it has lost nothing.
func TestAway(t *testing.T) {
	a, b, server := pair(t, directory.Options{}, Options{})
	require.NoError(t, a.d.Register(directory.Worker{ID: id(1)}))
	require.NoError(t, a.d.Apply(id(1), "cpu", reports(0, 1)))
	a.round(t)
	b.round(t)
	server.Stop()
	require.NoError(t, a.d.Apply(id(1), "cpu", reports(1, 2)))
	require.Error(t, a.s.try(t.Context(), a.s.round))
	a.s.report(t.Context(), context.DeadlineExceeded)
	require.False(t, a.s.Counts().Up)
	require.NoError(t, a.d.Apply(id(1), "cpu", reports(2, 3)))
	server.Continue()
	for _, h := range []*host{a, b} {
		require.Eventually(t, func() bool { return h.s.try(t.Context(), h.s.round) == nil }, time.Minute, 10*time.Millisecond)
	}
	require.True(t, b.d.Holds(id(1), "cpu", directory.NumberKey(3)))
	require.False(t, b.d.Find([]directory.Key{directory.NumberKey(1)}, directory.Query{})[0].Stale)
	require.EqualValues(t, 1, a.s.Counts().Loads, "it is the same Redis")
	require.Zero(t, a.s.Counts().Conflicts+b.s.Counts().Conflicts)
}

// TestACL: what the package page says is enough for a user.
func TestACL(t *testing.T) {
	server := redistest.Start(t)
	server.Do("acl", "setuser", "dir", "on", ">secret", "~directory:*", "+@read", "+@write", "+@scripting", "+@connection", "+info")
	d := directory.New(directory.Options{Shared: true})
	s, err := Open(t.Context(), Options{
		Directory: d, Face: "test", URL: "redis://" + server.Addr(), User: "dir", Password: "secret",
	})
	require.NoError(t, err)
	h := &host{d: d, s: s}
	defer func() { require.NoError(t, s.level.Close()) }()
	require.NoError(t, d.Register(directory.Worker{ID: id(1)}))
	require.NoError(t, d.Apply(id(1), "cpu", reports(0, 1)))
	h.round(t)
	require.EqualValues(t, 1, s.Counts().Told)
	s.server = "" // it loads all
	h.round(t)

	_, err = Open(t.Context(), Options{
		Directory: d, Face: "test", URL: "redis://" + server.Addr(), User: "dir", Password: "other",
	})
	require.ErrorIs(t, err, fs.ErrPermission)
	_, err = Open(t.Context(), Options{Directory: d, Face: "test", URL: "redis+cluster://" + server.Addr()})
	require.ErrorIs(t, err, fs.ErrInvalid)
}

// TestOldRedis: a Redis that has forgotten the last changes, as after a failover, is told them again.
func TestOldRedis(t *testing.T) {
	a, b, _ := pair(t, directory.Options{}, Options{})
	require.NoError(t, a.d.Register(directory.Worker{ID: id(1)}))
	for n := range uint64(4) {
		require.NoError(t, a.d.Apply(id(1), "cpu", reports(int64(n), n)))
		a.round(t)
	}
	b.round(t)
	p := a.s.prefix
	a.do(t, "set", p+"count", "2")
	a.do(t, "xtrim", p+"log", "maxlen", "0")
	a.do(t, "xsetid", p+"log", "2-0")
	a.do(t, "hset", p+"worker:"+encodeID(id(1)), "at", "2")
	a.do(t, "del", p+"chunks:0:"+encodeID(id(1)))
	b.round(t)
	a.round(t)
	b.round(t)
	for n := range uint64(4) {
		require.True(t, b.d.Holds(id(1), "cpu", directory.NumberKey(n)))
	}
	require.EqualValues(t, "4", a.do(t, "scard", p+"chunks:0:"+encodeID(id(1))))
}

// TestGarbage: what can't be read is skipped and counted, and the rest is shared.
func TestGarbage(t *testing.T) {
	a, b, _ := pair(t, directory.Options{}, Options{})
	p := a.s.prefix
	for n := range 2 {
		require.NoError(t, a.d.Register(directory.Worker{ID: id(n)}))
		require.NoError(t, a.d.Apply(id(n), "cpu", reports(0, 1)))
	}
	a.round(t)
	a.do(t, "sadd", p+"workers", "x", encodeID(id(7)), encodeID(id(8)), encodeID(id(9)))
	a.do(t, "hset", p+"worker:"+encodeID(id(7)), "at", "-1", "by", "x", "state", "y")
	a.do(t, "hset", p+"worker:"+encodeID(id(8)), "at", "1", "by", "x", "state", "y")
	a.do(t, "sadd", p+"chunks:0:"+encodeID(id(1)), "short")
	b.s.server = "" // it loads all
	b.round(t)
	require.Len(t, b.d.Workers(""), 2)
	require.EqualValues(t, 4, b.s.Counts().Unreadable)

	next := func(fields ...any) {
		a.do(t, "incr", p+"count")
		n := a.do(t, "get", p+"count")
		a.do(t, append([]any{"xadd", p + "log", n + "-0"}, fields...)...)
	}
	next("a", "b")
	next("by", "x", "c", "garbage")
	next("by", "x", "c", "\x96")
	require.NoError(t, a.d.Apply(id(1), "cpu", reports(1, 2)))
	a.round(t)
	b.round(t)
	require.True(t, b.d.Holds(id(1), "cpu", directory.NumberKey(2)))
	require.EqualValues(t, 7, b.s.Counts().Unreadable)

	for _, key := range []string{"log", "count", "epoch", "workers", "chunks:0:" + encodeID(id(1)), "worker:" + encodeID(id(1))} {
		a.do(t, "del", p+key)
		if key == "epoch" || key == "count" {
			a.do(t, "sadd", p+key, "x")
		} else {
			a.do(t, "set", p+key, "x")
		}
		require.NoError(t, a.d.Apply(id(1), "cpu", reports(a.next(), 3)))
		a.s.beaten, b.s.server = time.Time{}, ""
		err := a.s.try(t.Context(), a.s.round)
		if err == nil {
			err = b.s.try(t.Context(), b.s.round)
		}
		require.Error(t, err, key)
		require.NotContains(t, err.Error(), "panic", key)
		a.do(t, "flushall")
		a.round(t)
		b.round(t)
		require.True(t, b.d.Holds(id(1), "cpu", directory.NumberKey(3)), key)
	}
}

// next is the number of the next report of worker 1.
func (h *host) next() int64 { return h.d.Counts().Admitted + h.d.Counts().Evicted - 1 }

// lie is a text that means something in one of the places where it may come.
func lie(rng *rand.Rand) []byte {
	text := ""
	switch rng.IntN(6) {
	case 0:
		text = strconv.Itoa(rng.IntN(5))
	case 1:
		text = strconv.Itoa(rng.IntN(5)) + "-0"
	case 2:
		text = encodeID(id(rng.IntN(4)))
	case 3:
		c := directory.Change{
			Worker: directory.Worker{ID: id(rng.IntN(4))}, Reset: rng.IntN(2) == 0, Gone: rng.IntN(4) == 0,
			Places: []directory.ChangedPlace{{Location: "cpu", Held: []directory.Key{directory.NumberKey(rng.Uint64N(9))}}},
		}
		b := appendChange(nil, c, rng.Int64N(5))
		if rng.IntN(2) == 0 {
			b[rng.IntN(len(b))] = byte(rng.Uint32())
		}
		text = string(b[:len(b)-rng.IntN(2)])
	case 4:
		text = string(encodeState(directory.Change{Places: make([]directory.ChangedPlace, rng.IntN(20))}))
	case 5:
		return fmt.Appendf(nil, ":%d\r\n", rng.Int64()-rng.Int64())
	}
	return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(text), text)
}

func liesOf(rng *rand.Rand, n int) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", n)
	for range n {
		b = append(b, lie(rng)...)
	}
	return b
}

// TestLies: a server that answers anything does no more than keep the state from being in use.
func TestLies(t *testing.T) {
	fake := redistest.NewFake(t)
	d := directory.New(directory.Options{Shared: true, MaxWorkers: 64, MaxEntries: 1 << 10})
	level, err := redis.Open(t.Context(), redis.Options{URL: fake.URL(), Retry: time.Millisecond})
	require.NoError(t, err)
	s, err := begin(t.Context(), Options{Directory: d, Face: "test"}, level)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.level.Close()) }()
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(3, 4))
	entries := 0
	fake.Do(func(conn io.Writer, command []string, truth []byte) error {
		mu.Lock()
		defer mu.Unlock()
		answer := lie(rng)
		switch name := strings.ToUpper(command[0]); {
		case name == "PING" || name == "HELLO":
			answer = truth
		case rng.IntN(30) == 0:
			answer = liesOf(rng, rng.IntN(9))
		case rng.IntN(30) == 0:
			answer = []byte("-WRONGTYPE no\r\n")
		case name == "SETNX" || name == "SET" && slices.Contains(command, "nx"):
			answer = []byte(":0\r\n")
		case name == "GET" && strings.HasSuffix(command[1], "epoch"):
			answer = []byte("$1\r\ne\r\n")
		case name == "GET":
			answer = []byte("$1\r\n3\r\n")
		case name == "SET" || name == "INFO":
			answer = []byte("$10\r\nrun_id:1\r\n\r\n")
		case name == "EXISTS":
			answer = []byte(":1\r\n")
		case name == "SSCAN":
			answer = append([]byte("*2\r\n$1\r\n0\r\n"), liesOf(rng, rng.IntN(9))...)
		case name == "HMGET":
			answer = append([]byte("*3\r\n$1\r\n3\r\n$1\r\nx\r\n"), lie(rng)...)
		case name == "EVALSHA":
			answer = liesOf(rng, rng.IntN(4))
		case name == "XRANGE" && rng.IntN(2) == 0: // what could be the next entry
			entries++
			answer = fmt.Appendf(nil, "*1\r\n*2\r\n$%d\r\n%s\r\n*4\r\n$2\r\nby\r\n$1\r\nx\r\n$1\r\nc\r\n%s",
				len(command[2]), command[2], lie(rng))
		case name == "XRANGE":
			answer = []byte("*0\r\n")
		}
		_, err := conn.Write(answer)
		return err
	})
	before := heapSize()
	for n := range *lies {
		_ = d.Register(directory.Worker{ID: id(n % 4)})
		_ = d.Apply(id(n%4), "cpu", reports(0, uint64(n%64)))
		if err := s.try(t.Context(), s.round); err != nil {
			require.NotContains(t, err.Error(), "panic")
			for level.Ping(t.Context()) != nil { // it is down for a moment
				time.Sleep(100 * time.Microsecond)
			}
		}
		require.NoError(t, d.Validate())
	}
	require.Less(t, heapSize(), before+(16<<20))
	require.Positive(t, entries)
	t.Logf("%d entries, %+v", entries, s.Counts())
}

func heapSize() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestRun: directories that run agree with what workers report to them all at a time, while workers move; how long a
// report takes to the other one.
func TestRun(t *testing.T) {
	server := redistest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running, work sync.WaitGroup
	hosts := make([]*host, 3)
	for i := range hosts {
		d := directory.New(directory.Options{Shared: true})
		s, err := Open(ctx, Options{Directory: d, URL: "redis://" + server.Addr(), Face: "test", Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		hosts[i] = &host{d: d, s: s}
		running.Go(func() { s.Run(ctx) })
	}
	const workers, keys = 12, 40
	truth := make([]map[uint64]bool, workers)
	for n := range workers {
		work.Go(func() {
			rng := rand.New(rand.NewPCG(5, uint64(n)))
			held := map[uint64]bool{}
			truth[n] = held
			w := directory.Worker{ID: id(n)}
			_ = hosts[0].d.Register(w)
			for number := range int64(3000) {
				k := rng.Uint64N(keys)
				evicted := held[k]
				if held[k] = !evicted; evicted {
					delete(held, k)
				}
				h := hosts[0]
				if number > 2000 {
					h = hosts[n%3]
				}
				_ = h.d.Apply(w.ID, "cpu", []directory.Report{{Evicted: evicted, Key: directory.NumberKey(k), Number: number}})
			}
		})
	}
	work.Wait()
	beat := func(n int) { // what two had news of is told again
		h := hosts[n%3]
		if reason, _ := h.d.Heartbeat(directory.Worker{ID: id(n)}); reason != "" {
			all := make([]directory.Key, 0, keys)
			for k := range truth[n] {
				all = append(all, directory.NumberKey(k))
			}
			_ = h.d.StartSync(id(n), "cpu", reason, 1)
			_ = h.d.SyncBatch(id(n), "cpu", reason, 0, all)
			_ = h.d.EndSync(id(n), reason)
		}
	}
	for _, h := range hosts {
		require.Eventually(t, func() bool {
			for n := range truth {
				beat(n)
			}
			entries := 0
			for n, held := range truth {
				entries += len(held)
				for k := range uint64(keys) {
					if h.d.Holds(id(n), "cpu", directory.NumberKey(k)) != held[k] {
						return false
					}
				}
			}
			return h.d.Counts().Entries == entries
		}, time.Minute, 10*time.Millisecond)
	}
	var lags []time.Duration
	for n := range 50 {
		k := directory.NumberKey(uint64(1000 + n))
		at := time.Now()
		require.NoError(t, hosts[0].d.Apply(id(0), "cpu", []directory.Report{{Key: k, Number: -1}}))
		for !hosts[1].d.Holds(id(0), "cpu", k) {
			time.Sleep(time.Millisecond)
		}
		lags = append(lags, time.Since(at))
	}
	slices.Sort(lags)
	t.Logf("a report is at another directory after %v, %v at most, with exchanges each %v", lags[len(lags)/2],
		lags[len(lags)-1], hosts[0].s.o.Interval)
	cancel()
	running.Wait()
	for _, h := range hosts {
		require.NoError(t, h.d.Validate())
	}
}

// TestFleet: what an entry takes in Redis, and how long it takes to tell and to load all.
func TestFleet(t *testing.T) {
	workers, chunks := 20, 1000
	if *large {
		workers, chunks = 1000, 10_000
	}
	a, b, server := pair(t, directory.Options{}, Options{})
	used := func() (n int) {
		for line := range strings.SplitSeq(server.Do("info", "memory"), "\n") {
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
				n, _ = strconv.Atoi(text)
			}
		}
		return n
	}
	before := used()
	for w := range workers {
		require.NoError(t, a.d.Register(directory.Worker{ID: id(w)}))
		all := make([]directory.Report, chunks)
		for i := range all {
			hash := uint64(w*chunks+i+1) * 0x9e3779b97f4a7c15
			all[i] = directory.Report{Key: directory.NumberKey(hash), Number: int64(i)}
		}
		require.NoError(t, a.d.Apply(id(w), "LocalCPUBackend", all))
		if w%50 == 49 { // as many as are kept for Redis
			a.round(t)
		}
	}
	began := time.Now()
	a.round(t)
	told := time.Since(began)
	require.Equal(t, workers*chunks, a.d.Counts().Entries)
	whole := used() - before
	server.Do("xtrim", a.s.prefix+"log", "maxlen", "0")
	records := used() - before
	began = time.Now()
	b.round(t)
	loaded := time.Since(began)
	require.Equal(t, workers*chunks, b.d.Counts().Entries)
	t.Logf("%d chunks of %d workers: %.1f bytes each in records, and %d MiB of log; the last were told in %v, all were loaded in %v",
		workers*chunks, workers, float64(records)/float64(workers*chunks), (whole-records)>>20, told, loaded)
	require.Less(t, records/(workers*chunks), 128)

	server.Do("flushall")
	began = time.Now()
	a.round(t)
	again := time.Since(began)
	b.round(t)
	require.Equal(t, workers*chunks, b.d.Counts().Entries)
	t.Logf("all were told again to an empty Redis in %v", again)
}

// FuzzChange: no entry of the log makes a directory fail, or keep what it would refuse.
func FuzzChange(f *testing.F) {
	c := directory.Change{Worker: directory.Worker{ID: id(1), IP: "10.0.0.1"}, Reset: true, Places: []directory.ChangedPlace{
		{Location: "cpu", Held: []directory.Key{directory.NumberKey(1)}, Evicted: []directory.Key{directory.KeyOf("m", []byte("h"))}},
	}}
	f.Add(appendChange(appendChange(nil, c, 1), directory.Change{Worker: c.Worker, Gone: true}, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := directory.New(directory.Options{Shared: true, MaxWorkers: 4, MaxEntries: 64})
		for len(b) > 0 {
			c, rest, err := decodeChange(b)
			if err != nil {
				return
			}
			_, _ = d.Follow(c)
			b = rest
		}
		require.NoError(t, d.Validate())
	})
}
