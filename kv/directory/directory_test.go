package directory

import (
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/kv"
)

func admitted(keys ...uint64) (all []Report) {
	for _, k := range keys {
		all = append(all, Report{Key: NumberKey(k), Number: -1})
	}
	return all
}

func keys(numbers ...uint64) (all []Key) {
	for _, n := range numbers {
		all = append(all, NumberKey(n))
	}
	return all
}

// TestEveryWorker: an instance holds what all its workers hold, wherever each has it.
func TestEveryWorker(t *testing.T) {
	d := New(Options{})
	for _, id := range []ID{{"a", 0}, {"a", 1}, {"b", 0}} {
		require.NoError(t, d.Register(Worker{ID: id}))
	}
	require.NoError(t, d.Apply(ID{"a", 0}, "cpu", admitted(1, 2, 3)))
	require.NoError(t, d.Apply(ID{"a", 1}, "cpu", admitted(1)))
	require.NoError(t, d.Apply(ID{"a", 1}, "disk", admitted(2)))
	require.NoError(t, d.Apply(ID{"b", 0}, "cpu", admitted(1, 3)))
	require.Equal(t, []Prefix{
		{Instance: "a", Chunks: 2, Places: []Place{{"cpu", 2}, {"disk", 1}}, Last: "cpu"},
		{Instance: "b", Chunks: 1, Places: []Place{{"cpu", 1}}, Last: "cpu"},
	}, d.Find(keys(1, 2, 3), Query{}))
	require.Empty(t, d.Find(keys(2, 1), Query{Exclude: "a"}))
	require.Empty(t, d.Find(nil, Query{}))
	d.Lost(ID{"a", 1})
	require.True(t, d.Find(keys(1, 2), Query{Exclude: "b"})[0].Stale)
	require.False(t, d.Find(keys(1), Query{Exclude: "a"})[0].Stale)
	d.Clear(ID{"a", 1}, func(string) bool { return true })
	require.Empty(t, d.Find(keys(1), Query{Exclude: "b"}))
	validate(t, d)
}

// TestGap: a report that is lost is noticed, whether it is the first one or a later one, and a synchronisation heals.
func TestGap(t *testing.T) {
	d := New(Options{})
	id := ID{"a", 0}
	require.NoError(t, d.Register(Worker{ID: id}))
	apply := func(n int64) { require.NoError(t, d.Apply(id, "cpu", []Report{{Key: NumberKey(1), Number: n}})) }
	reason := func() string {
		r, err := d.Heartbeat(Worker{ID: id})
		require.NoError(t, err)
		return r
	}
	apply(0)
	apply(1)
	require.Empty(t, reason())
	apply(3)
	require.Equal(t, "reports_lost", reason())
	require.True(t, d.Find(keys(1), Query{})[0].Stale)
	require.NoError(t, d.StartSync(id, "cpu", "s", 2))
	require.Empty(t, reason(), "it is under way")
	require.ErrorIs(t, d.StartSync(id, "cpu", "other", 1), ErrSyncing)
	require.NoError(t, d.SyncBatch(id, "cpu", "s", 1, keys(7)))
	require.NoError(t, d.EndSync(id, "s"))
	require.Equal(t, SyncStatus{Missing: []int{0}}, d.SyncStatus(id, "s"))
	require.NoError(t, d.SyncBatch(id, "cpu", "s", 0, keys(8)))
	require.NoError(t, d.EndSync(id, "s"))
	require.Equal(t, SyncStatus{Complete: true, Progress: 1, Release: true}, d.SyncStatus(id, "s"))
	apply(4)
	require.Empty(t, reason())
	require.False(t, d.Find(keys(7, 8), Query{})[0].Stale)

	require.NoError(t, d.Register(Worker{ID: id})) // it begins anew
	apply(1)
	require.Equal(t, "reports_lost", reason(), "the first report is number 0")
	validate(t, d)
}

// TestSyncOfOneLocationLeavesOthersWanted: a full synchronisation of one location heals that one. Another one that has
// lost reports, or of which nothing was known, is wanted until it is told, too.
func TestSyncOfOneLocationLeavesOthersWanted(t *testing.T) {
	d := New(Options{})
	id := ID{"a", 0}
	reason := func() string {
		r, err := d.Heartbeat(Worker{ID: id})
		require.NoError(t, err)
		return r
	}
	syncs := 0
	sync := func(at string) {
		syncs++
		name := fmt.Sprint(syncs)
		require.NoError(t, d.StartSync(id, at, name, 1))
		require.Empty(t, reason(), "it is under way")
		require.NoError(t, d.SyncBatch(id, at, name, 0, keys(1)))
		require.NoError(t, d.EndSync(id, name))
	}
	require.NoError(t, d.Register(Worker{ID: id}))
	for _, at := range []string{"cpu", "disk"} {
		require.NoError(t, d.Apply(id, at, []Report{{Key: NumberKey(1), Number: 1}}))
	}
	require.Equal(t, reportsLost, reason())
	sync("cpu")
	require.Equal(t, reportsLost, reason(), "the disk has lost reports still")
	sync("disk")
	require.Empty(t, reason())

	d.Deregister(id) // it comes to a directory that does not know it
	require.NotEmpty(t, reason())
	sync("cpu")
	require.Empty(t, reason(), "nothing is known of a disk")
	require.NoError(t, d.Apply(id, "disk", admitted(1)))
	require.Equal(t, reportsLost, reason(), "what the disk had before is not known")
	sync("disk")
	require.Empty(t, reason())
	require.False(t, d.Find(keys(1), Query{})[0].Stale)
	validate(t, d)
}

// TestWorkerThatTellsOfOneLocationOnly: LMCache's workers tell what is in their memory, whatever was lost, and store
// nothing meanwhile. One that tells again of a location which has lost nothing is not asked any more.
func TestWorkerThatTellsOfOneLocationOnly(t *testing.T) {
	d := New(Options{})
	id := ID{"a", 0}
	require.NoError(t, d.Register(Worker{ID: id}))
	for _, at := range []string{"cpu", "disk"} {
		require.NoError(t, d.Apply(id, at, []Report{{Key: NumberKey(1), Number: 1}}))
	}
	asked := 0
	for reason := reportsLost; reason != ""; asked++ {
		require.Less(t, asked, 3)
		require.NoError(t, d.StartSync(id, "cpu", fmt.Sprint(asked), 0))
		require.NoError(t, d.EndSync(id, fmt.Sprint(asked)))
		var err error
		reason, err = d.Heartbeat(Worker{ID: id})
		require.NoError(t, err)
	}
	require.Equal(t, 2, asked)
	require.True(t, d.Find(keys(1), Query{})[0].Stale)
	require.NoError(t, d.Apply(id, "disk", []Report{{Key: NumberKey(2), Number: 7}}))
	reason, err := d.Heartbeat(Worker{ID: id})
	require.NoError(t, err)
	require.Equal(t, reportsLost, reason, "more is lost")
	validate(t, d)
}

// TestStartOfASyncThatComesAgain: a worker that got no answer begins its full synchronisation again. What was evicted
// since the first time is not admitted by its batches, and nothing else may take its name meanwhile.
func TestStartOfASyncThatComesAgain(t *testing.T) {
	d := New(Options{})
	id := ID{"a", 0}
	require.NoError(t, d.Register(Worker{ID: id}))
	d.Lost(id)
	require.NoError(t, d.Apply(id, "disk", admitted(1)))
	require.NoError(t, d.StartSync(id, "cpu", "s", 1))
	require.NoError(t, d.Apply(id, "cpu", []Report{{Evicted: true, Key: NumberKey(1), Number: -1}}))
	require.NoError(t, d.StartSync(id, "cpu", "s", 1))
	require.ErrorIs(t, d.StartSync(id, "cpu", "s", 2), ErrSyncing)
	require.ErrorIs(t, d.StartSync(id, "disk", "s", 1), ErrSyncing)
	require.NoError(t, d.SyncBatch(id, "cpu", "s", 0, keys(1, 2)))
	require.NoError(t, d.EndSync(id, "s"))
	require.False(t, d.Holds(id, "cpu", NumberKey(1)))
	require.True(t, d.Holds(id, "cpu", NumberKey(2)))
	reason, err := d.Heartbeat(Worker{ID: id})
	require.NoError(t, err)
	require.Equal(t, reportsLost, reason, "of the disk")
	validate(t, d)
}

// TestSyncOfManyChanges: what is evicted meanwhile is remembered up to a bound, and then another one is wanted.
func TestSyncOfManyChanges(t *testing.T) {
	d := New(Options{})
	id := ID{"a", 0}
	require.NoError(t, d.Register(Worker{ID: id}))
	require.NoError(t, d.StartSync(id, "cpu", "s", 1))
	for i := range uint64(maxEvicted) {
		require.NoError(t, d.Apply(id, "cpu", []Report{{Evicted: true, Key: NumberKey(i), Number: -1}}))
	}
	require.NoError(t, d.SyncBatch(id, "cpu", "s", 0, keys(1, maxEvicted)))
	require.False(t, d.Holds(id, "cpu", NumberKey(1)), "it was evicted meanwhile")
	require.True(t, d.Holds(id, "cpu", NumberKey(maxEvicted)))
	require.NoError(t, d.Apply(id, "cpu", []Report{{Evicted: true, Key: NumberKey(maxEvicted), Number: -1}}))
	require.ErrorIs(t, d.EndSync(id, "s"), fs.ErrInvalid)
	reason, err := d.Heartbeat(Worker{ID: id})
	require.NoError(t, err)
	require.Equal(t, "sync_failed_retry", reason)
}

// TestBounds: workers, names, locations, batches and entries have bounds, and what is refused changes nothing.
func TestBounds(t *testing.T) {
	now := time.Unix(0, 0)
	d := New(Options{MaxWorkers: 10, MaxEntries: 100, Timeout: time.Second, Now: func() time.Time { return now }})
	for i := range 10_000 { // without end
		err := d.Register(Worker{ID: ID{fmt.Sprint(i), 0}})
		if i < 10 {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, ErrFull)
		}
	}
	require.ErrorIs(t, d.Register(Worker{}), fs.ErrInvalid)
	require.ErrorIs(t, d.Register(Worker{ID: ID{strings.Repeat("x", maxName+1), 0}}), fs.ErrInvalid)
	id := ID{"0", 0}
	for i := range 20 {
		err := d.Apply(id, fmt.Sprint(i), admitted(1))
		require.Equal(t, i >= maxLocations, err != nil, err)
	}
	require.ErrorIs(t, d.Apply(ID{"1", 0}, strings.Repeat("x", maxName+1), admitted(1)), fs.ErrInvalid)
	require.ErrorIs(t, d.StartSync(id, "0", "s", maxBatches+1), fs.ErrInvalid)
	require.ErrorIs(t, d.SyncBatch(id, "0", "s", 0, nil), fs.ErrInvalid)
	require.ErrorIs(t, d.Apply(ID{"none", 0}, "cpu", admitted(1)), ErrUnknown)

	var many []uint64
	for i := range uint64(200) {
		many = append(many, i)
	}
	require.ErrorIs(t, d.Apply(ID{"1", 0}, "cpu", admitted(many...)), ErrFull)
	require.Equal(t, 100, d.Counts().Entries)
	require.True(t, d.Find(keys(5), Query{})[0].Stale, "a report could not be kept")
	for range 1000 { // what has ended gives its room to what begins, also if nobody calls Expire
		require.NoError(t, d.Register(Worker{ID: ID{"1", 0}}))
		require.NoError(t, d.Apply(ID{"1", 0}, "cpu", admitted(many[:80]...)))
	}
	validate(t, d)
	require.Less(t, len(d.locations), 1000)

	require.NoError(t, d.Register(Worker{ID: ID{"1", 0}, Lasting: true}))
	now = now.Add(time.Minute)
	require.Equal(t, 9, d.Expire())
	require.True(t, d.Deregister(ID{"1", 0}))
	d.Expire()
	require.Equal(t, Counts{Admitted: d.counts.Admitted, Gaps: d.counts.Gaps, Refused: 1, Expired: 9}, d.Counts())
	validate(t, d)
}

// TestKeys: numbers, hashes and spaces never share a key, and a chain's keys are those of its hashes.
func TestKeys(t *testing.T) {
	hash := []byte{0, 0, 0, 0, 0, 0, 0, 7}
	require.Equal(t, NumberKey(7), KeyOf("", hash))
	all := map[Key]bool{}
	for _, k := range []Key{KeyOf("", hash), KeyOf("a", hash), KeyOf("b", hash), KeyOf("ab", hash),
		KeyOf("a", append([]byte("b"), hash...)), KeyOf("", hash[1:])} {
		require.False(t, all[k])
		all[k] = true
	}
	h, err := kv.NewHasher(kv.Scheme{ChunkTokens: 2})
	require.NoError(t, err)
	c := h.NewChain()
	require.NoError(t, c.SetTokens([]int64{1, 2, 3, 4}))
	require.Equal(t, []Key{KeyOf("m", c.Hash(0)), KeyOf("m", c.Hash(1))}, AppendKeys(nil, "m", c))
}

// TestParallel: reports, look-ups, restarts and sweeps at once, for the race detector.
func TestParallel(t *testing.T) {
	d := New(Options{})
	var work sync.WaitGroup
	for i := range 4 {
		id := ID{fmt.Sprint(i), 0}
		work.Go(func() {
			for round := range 50 {
				_ = d.Register(Worker{ID: id})
				var reports []Report
				for n := range uint64(600) {
					reports = append(reports, Report{Key: NumberKey(n), Number: int64(n)})
				}
				_ = d.Apply(id, "cpu", reports)
				_ = d.StartSync(id, "cpu", "s", 1)
				_ = d.SyncBatch(id, "cpu", "s", 0, keys(1, 2, 3))
				_ = d.EndSync(id, "s")
				if round%8 == 0 {
					d.Expire()
				}
			}
		})
		work.Go(func() {
			for range 200 {
				d.Find(keys(1, 2, 3, 4), Query{})
				d.Workers("")
				d.Counts()
				d.SyncStatus(id, "s")
			}
		})
	}
	work.Wait()
	d.Expire()
	require.Len(t, d.Find(keys(1, 2, 3), Query{}), 4)
	require.Equal(t, 12, d.Counts().Entries)
	validate(t, d)
}

// TestLostBeforeTheFirstReport: a source that comes late has lost reports, though nothing is known of any location yet;
// once all is cleared, it is known from then on.
func TestLostBeforeTheFirstReport(t *testing.T) {
	d := New(Options{})
	id := ID{"a", 0}
	d.Lost(id) // of nobody
	require.NoError(t, d.Register(Worker{ID: id, Lasting: true}))
	d.Lost(id)
	require.NoError(t, d.Apply(id, "GPU", admitted(1)))
	require.True(t, d.Find(keys(1), Query{})[0].Stale)
	require.NoError(t, d.Apply(id, "CPU", admitted(2)))
	require.True(t, d.Find(keys(2), Query{})[0].Stale, "a location that is new since")
	require.Equal(t, 1, d.Clear(id, func(at string) bool { return at == "GPU" }))
	require.NoError(t, d.Apply(id, "disk", admitted(3)))
	require.True(t, d.Find(keys(3), Query{})[0].Stale, "the CPU is not known yet")
	require.Zero(t, d.Clear(id, func(string) bool { return true }))
	require.NoError(t, d.Apply(id, "other", admitted(1)))
	require.False(t, d.Find(keys(1), Query{})[0].Stale)
	validate(t, d)
}

// TestAway: an instance of which a worker is away is not found, and what it holds is when the worker is back.
func TestAway(t *testing.T) {
	d := New(Options{})
	for _, id := range []ID{{"a", 0}, {"a", 1}} {
		require.NoError(t, d.Register(Worker{ID: id}))
		require.NoError(t, d.Apply(id, "disk", admitted(1)))
	}
	d.Away(ID{"a", 1}, true)
	d.Away(ID{"b", 0}, true)
	require.Empty(t, d.Find(keys(1), Query{}))
	d.Away(ID{"a", 1}, false)
	require.Len(t, d.Find(keys(1), Query{}), 1)
	validate(t, d)
}

// TestEvictionsOfManySyncs: what all full synchronisations remember has one bound, and comes back when they end.
func TestEvictionsOfManySyncs(t *testing.T) {
	d := New(Options{})
	var reports []Report
	for n := range uint64(maxEvicted) {
		reports = append(reports, Report{Evicted: true, Key: NumberKey(n), Number: -1})
	}
	const workers = maxAllEvicted/maxEvicted + 3
	for n := range int64(workers) {
		require.NoError(t, d.Register(Worker{ID: ID{"a", n}}))
		require.NoError(t, d.StartSync(ID{"a", n}, "cpu", "s", 1))
		require.NoError(t, d.Apply(ID{"a", n}, "cpu", reports))
		require.NoError(t, d.Apply(ID{"a", n}, "cpu", admitted(1)))
	}
	validate(t, d)
	require.Equal(t, maxAllEvicted, d.evicted)
	reason, err := d.Heartbeat(Worker{ID: ID{"a", workers - 1}})
	require.NoError(t, err)
	require.Equal(t, retry, reason, "the last ones failed, and are wanted again")
	for n := range int64(workers) {
		d.Deregister(ID{"a", n})
	}
	require.Zero(t, d.evicted)
	validate(t, d)
}
