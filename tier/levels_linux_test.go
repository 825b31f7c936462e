package tier_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/internal/redistest"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/memory"
	"github.com/ringcache/ringcache/tier/redis"
)

// Tests of a store over the levels of the subpackages.

func openMemory(t testing.TB, dir string, size int64) *memory.Level {
	t.Helper()
	m, err := memory.Open(memory.Options{Name: "level", Dir: dir, Size: size})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	return m
}

// openFewPins opens a memory level whose table of leases has five records.
func openFewPins(t *testing.T) *memory.Level {
	t.Helper()
	m, err := memory.Open(memory.Options{Name: "level", Dir: t.TempDir(), Size: 1 << 20, MaxPins: 5})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	return m
}

func openDisk(t testing.TB, dir string) *disk.Level {
	t.Helper()
	d, err := disk.Open(filepath.Join(dir, "disk"), disk.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	return d
}

func openStore(t testing.TB, o tier.Options) *tier.Store {
	t.Helper()
	s, err := tier.Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, s.Close())
		assert.Empty(t, tier.Check(s))
	})
	return s
}

// pinAll asks until nothing is pending, and checks the bytes of what it got.
func pinAll(t testing.TB, l *tier.StoreLease, names []string) []error {
	t.Helper()
	errs := make([]error, len(names))
	for ask := true; ask; time.Sleep(100 * time.Microsecond) { // an engine's turn
		ask = false
		for i, p := range l.Pin(keys(names...)) {
			if errs[i] = p.Err; p.Err == nil {
				require.Equal(t, content(names[i], p.Object.Size), p.Bytes)
			}
			ask = ask || isPending(p.Err)
		}
	}
	return errs
}

func TestMemoryAndDisk(t *testing.T) {
	dir := t.TempDir()
	m, d := openMemory(t, dir, 1<<20), openDisk(t, dir)
	s := openStore(t, tier.Options{Memory: m, Lower: []tier.Lower{{Level: d}}})
	names := make([]string, 60)
	for i := range names {
		names[i] = fmt.Sprint("object ", i)
		require.NoError(t, put(s, names[i], "", 50_000), "three times what memory has room for")
	}
	_, err := s.Drain(t.Context())
	require.NoError(t, err)
	for _, name := range names {
		g := []tier.Get{{Key: key(name)}}
		s.Get(t.Context(), g)
		require.NoError(t, g[0].Err)
		require.Equal(t, content(name, 50_000), g[0].Bytes)
	}
	l, err := s.Lease(t.Context(), tier.LeaseOptions{ID: "engine", Owner: "test"})
	require.NoError(t, err)
	for _, err := range pinAll(t, l, names[:15]) {
		require.NoError(t, err)
	}
	full := func(err error) bool { return errors.Is(err, tier.ErrFull) }
	require.True(t, slices.ContainsFunc(pinAll(t, l, names[15:30]), full), "all memory is pinned; which object has no room is by chance")
	l.Release()
	require.NoError(t, s.Delete(t.Context(), keys(names[3]))[0])
	require.ErrorIs(t, s.Stat(t.Context(), keys(names[3]))[0].Err, tier.ErrNotFound)
	require.Eventually(t, func() bool { return m.Usage().Held == 0 }, time.Minute, time.Millisecond)
	require.NoError(t, m.CheckStructure())
}

const killedVariable = "RINGCACHE_TEST_TIER_STORE"

// TestKilledProcessLeavesPendingWrites: what a process that was killed had stored is written by the next one.
func TestKilledProcessLeavesPendingWrites(t *testing.T) {
	if dir := os.Getenv(killedVariable); dir != "" {
		storeUntilKilled(t, dir)
	}
	dir := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^TestKilledProcessLeavesPendingWrites$")
	child.Env = append(os.Environ(), killedVariable+"="+dir)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "stored" {
	}
	require.NoError(t, child.Process.Kill())
	_, _ = io.Copy(io.Discard, out)
	require.Error(t, child.Wait())

	m, d := openMemory(t, dir, 1<<20), openDisk(t, dir)
	require.NotZero(t, m.Usage().Held)
	s := openStore(t, tier.Options{Memory: m, Lower: []tier.Lower{{Level: d}}})
	_, err = s.Drain(t.Context())
	require.NoError(t, err)
	for i := range 10 {
		name := fmt.Sprint("object ", i)
		g := []tier.Get{{Key: key(name)}}
		d.Get(t.Context(), g)
		require.NoError(t, g[0].Err)
		require.Equal(t, content(name, 10_000), g[0].Bytes)
	}
	l, err := s.Lease(t.Context(), tier.LeaseOptions{ID: "engine", Owner: "test"})
	require.NoError(t, err)
	require.Len(t, l.State().Pinned, 5, "what was promised is kept")
	require.Len(t, l.State().Reserved, 1)
	l.Release()
	require.Zero(t, m.Usage().Held)
}

// storeUnder stores an object under a lease, as a client does.
func storeUnder(t *testing.T, l tier.Lease, name string, size int64) {
	t.Helper()
	placed := l.Reserve([]tier.Object{object(name, "", size)})
	require.NoError(t, placed[0].Err)
	copy(placed[0].Bytes, content(name, size))
	require.NoError(t, l.Commit(keys(name))[0])
}

// TestKilledBetweenCommitAndPendingWrite: a process that is killed when memory has committed an object, and
// the store has not noted the pending write, has left it pinned. The next store writes it to the lower
// levels.
func TestKilledBetweenCommitAndPendingWrite(t *testing.T) {
	dir := t.TempDir()
	before := openMemory(t, dir, 1<<20)
	l, err := before.Lease(t.Context(), tier.LeaseOptions{ID: "engine", Owner: "test"})
	require.NoError(t, err)
	storeUnder(t, l, "committed", 10_000)
	require.NoError(t, before.Close())

	m, d := openMemory(t, dir, 1<<20), openDisk(t, dir)
	s := openStore(t, tier.Options{Memory: m, Lower: []tier.Lower{{Level: d}}})
	_, err = s.Drain(t.Context())
	require.NoError(t, err)
	g := []tier.Get{{Key: key("committed")}}
	d.Get(t.Context(), g)
	require.NoError(t, g[0].Err)
	require.Equal(t, content("committed", 10_000), g[0].Bytes)
	again, err := s.Lease(t.Context(), tier.LeaseOptions{ID: "engine", Owner: "test"})
	require.NoError(t, err)
	require.Len(t, again.State().Pinned, 1)
	again.Release()
	require.Zero(t, m.Usage().Held)
	require.NoError(t, m.CheckStructure())
}

// TestPendingWriteWithoutARecord: when the table of leases had no record for the pin of a pending write, no level got
// the object, and Drain did not say so.
func TestPendingWriteWithoutARecord(t *testing.T) {
	m := openFewPins(t)
	below := tiertest.NewMap(tiertest.MapOptions{})
	away := tiertest.NewFault(below)
	away.Fail(tier.ErrUnavailable)
	s := openStore(t, tier.Options{Memory: m, Lower: []tier.Lower{{Level: away}}})
	l, err := s.Lease(t.Context(), tier.LeaseOptions{ID: "engine", Owner: "test"})
	require.NoError(t, err)
	for i := range 5 {
		name := fmt.Sprint(i)
		storeUnder(t, l, name, 1000)
		l.Unpin(keys(name))
	}
	require.Equal(t, 5, s.State().Backlog)
	away.Do(nil)
	_, err = s.Drain(t.Context())
	require.NoError(t, err)
	for i := range 5 {
		require.NoError(t, below.Stat(t.Context(), keys(fmt.Sprint(i)))[0].Err)
	}
	l.Release()
	require.NoError(t, m.CheckStructure())
}

// TestWrittenWhileTheTableIsFull: an object that memory had was given up, though its level was there, since the table of
// leases had no record for a pin when it was its turn.
func TestWrittenWhileTheTableIsFull(t *testing.T) {
	m := openFewPins(t)
	below := tiertest.NewMap(tiertest.MapOptions{})
	s := openStore(t, tier.Options{Memory: m, Lower: []tier.Lower{{Level: below}}})
	l, err := s.Lease(t.Context(), tier.LeaseOptions{ID: "engine", Owner: "test"})
	require.NoError(t, err)
	placed := l.Reserve([]tier.Object{
		object("0", "", 1000), object("1", "0", 1000), object("2", "1", 1000), object("3", "2", 1000), object("4", "3", 1000),
	})
	names := make([]string, len(placed))
	for i, p := range placed {
		require.NoError(t, p.Err)
		names[i] = p.Object.Name
		copy(p.Bytes, content(p.Object.Name, 1000))
	}
	for _, err := range l.Commit(keys(names...)) {
		require.NoError(t, err)
	}
	_, err = s.Drain(t.Context())
	require.NoError(t, err)
	for _, name := range names {
		g := []tier.Get{{Key: key(name)}}
		below.Get(t.Context(), g)
		require.NoError(t, g[0].Err)
		require.Equal(t, content(name, 1000), g[0].Bytes)
	}
	require.Empty(t, tier.Check(s))
	l.Release()
	require.NoError(t, m.CheckStructure())
}

// TestAdoptedWithoutARecord: what a client had committed before a kill was in memory alone for ever, if the table of
// leases had no record for the pin of its pending write when the next store began.
func TestAdoptedWithoutARecord(t *testing.T) {
	o := memory.Options{Name: "level", Dir: t.TempDir(), Size: 1 << 20, MaxPins: 5}
	before, err := memory.Open(o)
	require.NoError(t, err)
	l, err := before.Lease(t.Context(), tier.LeaseOptions{ID: "engine", Owner: "test"})
	require.NoError(t, err)
	for i := range 5 {
		storeUnder(t, l, fmt.Sprint(i), 1000)
	}
	require.NoError(t, before.Close())

	m, err := memory.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	below := tiertest.NewMap(tiertest.MapOptions{})
	away := tiertest.NewFault(below)
	away.Fail(tier.ErrUnavailable)
	s := openStore(t, tier.Options{Memory: m, Lower: []tier.Lower{{Level: away}}})
	require.Equal(t, 5, s.State().Backlog)
	require.Empty(t, tier.Check(s))
	again, err := s.Lease(t.Context(), tier.LeaseOptions{ID: "engine", Owner: "test"})
	require.NoError(t, err)
	again.Release()
	away.Do(nil)
	_, err = s.Drain(t.Context())
	require.NoError(t, err)
	for i := range 5 {
		require.NoError(t, below.Stat(t.Context(), keys(fmt.Sprint(i)))[0].Err)
	}
	require.NoError(t, m.CheckStructure())
}

func storeUntilKilled(t *testing.T, dir string) {
	m := openMemory(t, dir, 1<<20)
	away := tiertest.NewFault(openDisk(t, dir))
	away.Fail(tier.ErrUnavailable)
	s := openStore(t, tier.Options{Memory: m, Lower: []tier.Lower{{Level: away}}})
	l, err := s.Lease(t.Context(), tier.LeaseOptions{ID: "engine", Owner: "test"})
	require.NoError(t, err)
	for i := range 10 {
		name := fmt.Sprint("object ", i)
		if i%2 == 0 {
			require.NoError(t, put(s, name, "", 10_000))
			continue
		}
		storeUnder(t, l, name, 10_000)
	}
	require.NoError(t, l.Reserve([]tier.Object{object("half", "", 10)})[0].Err)
	fmt.Println("stored")
	select {} // until it is killed
}

var (
	stopped = flag.Duration("stopped", 300*time.Millisecond, "how long TestStoppedRedis stops the server")
	readers = flag.Int("readers", 4, "readers in TestStoppedRedis")
)

// TestStoppedRedis: the server is stopped under load. No read fails that memory or disk can serve, none
// returns other bytes, and afterwards the server gets the backlog. go test -run TestStoppedRedis -stopped 10s
func TestStoppedRedis(t *testing.T) {
	server := redistest.Start(t)
	dir := t.TempDir()
	m, d := openMemory(t, dir, 1<<20), openDisk(t, dir)
	r, err := redis.Open(t.Context(), redis.Options{URL: "redis://" + server.Addr()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	s := openStore(t, tier.Options{Memory: m, Lower: []tier.Lower{
		{Level: d, PromoteAfter: -1}, {Level: r, Timeout: time.Second},
	}})
	const size = 20_000
	var onDisk, onRedis []string
	for i := range 50 {
		onDisk = append(onDisk, fmt.Sprint("disk ", i))
		require.NoError(t, put(s, onDisk[i], "", size))
		onRedis = append(onRedis, fmt.Sprint("redis ", i))
		// On a busy machine even a server that works may miss the level's time limit.
		require.Eventually(t, func() bool { return put(r, onRedis[i], "", size) == nil }, 5*time.Minute, 100*time.Millisecond)
	}
	_, err = s.Drain(t.Context())
	require.NoError(t, err)

	var reads, misses, stores, longest atomic.Int64
	stop := make(chan struct{})
	var work sync.WaitGroup
	for c := range *readers {
		work.Go(func() {
			random := rand.New(rand.NewPCG(uint64(c), 7))
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				names, mayMiss := onDisk, false
				if random.IntN(4) == 0 {
					names, mayMiss = onRedis, true
				}
				name := names[random.IntN(50)]
				g := []tier.Get{{Key: key(name)}}
				begin := time.Now()
				s.Get(context.Background(), g)
				switch {
				case g[0].Err == nil:
					if !assert.Equal(t, content(name, size), g[0].Bytes) {
						return
					}
				case mayMiss && errors.Is(g[0].Err, tier.ErrNotFound):
					misses.Add(1)
				default:
					assert.NoError(t, g[0].Err, name)
					return
				}
				reads.Add(1)
				longest.Store(max(longest.Load(), int64(time.Since(begin))))
				if i%10 == 0 {
					assert.NoError(t, put(s, fmt.Sprint("new ", c, " ", i%500), "", 2000))
					stores.Add(1)
				}
			}
		})
	}
	time.Sleep(*stopped) // load beside a server that works, as long as beside one that does not
	server.Signal(syscall.SIGSTOP)
	time.Sleep(*stopped)
	server.Signal(syscall.SIGCONT)
	time.Sleep(*stopped)
	close(stop)
	work.Wait()
	t.Logf("stopped for %v: %d reads, %d misses of what only Redis has, %d stores, longest read %v", *stopped, reads.Load(),
		misses.Load(), stores.Load(), time.Duration(longest.Load()))
	_, err = s.Drain(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		g := []tier.Get{{Key: key(onRedis[0])}}
		s.Get(t.Context(), g)
		return g[0].Err == nil && !s.State().Levels[2].Away
	}, time.Minute, 10*time.Millisecond)
	require.Eventually(t, func() bool { return m.Usage().Held == 0 && s.State().Fetches == 0 }, time.Minute, time.Millisecond)
	for i, f := range r.Stat(t.Context(), keys("new 0 0", "new 1 10")) {
		if *readers > i {
			require.NoError(t, f.Err)
		}
	}
	require.NoError(t, m.CheckStructure())
}

// TestDrainReachesARedisThatIsNew: objects are in memory and on the disk. They are put again after a Redis
// was added. What memory had then must be in the Redis, too.
func TestDrainReachesARedisThatIsNew(t *testing.T) {
	server := redistest.Start(t)
	dir := t.TempDir()
	m, d := openMemory(t, dir, 1<<20), openDisk(t, dir)
	const count, size = 200, 20_000 // memory has room for a quarter
	names := make([]string, count)
	putAll := func(s *tier.Store) {
		for i := range names {
			names[i] = fmt.Sprint("object ", i)
			require.NoError(t, put(s, names[i], "", size))
		}
		_, err := s.Drain(t.Context())
		require.NoError(t, err)
	}
	before := openStore(t, tier.Options{Memory: m, Lower: []tier.Lower{{Level: d}}})
	putAll(before)
	require.NoError(t, before.Close())

	r, err := redis.Open(t.Context(), redis.Options{URL: "redis://" + server.Addr() + "?timeout=1m"})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	s := openStore(t, tier.Options{Memory: m, Lower: []tier.Lower{{Level: d}, {Level: r, Timeout: time.Minute}}})
	putAll(s)
	there := 0
	for _, f := range r.Stat(t.Context(), keys(names...)) {
		if f.Err == nil {
			there++
		}
	}
	require.Equal(t, count, there)
	require.NoError(t, m.CheckStructure())
}
