package mmcache_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/shmring/memory"
)

// shmRequest makes a request with one item and commits it; the handles are what
// an engine got.
func shmRequest(t *testing.T, c mmcache.Cache, id, key string, n, children int) (*mmcache.Request, mmcache.Batch) {
	t.Helper()
	r, err := c.Begin(ctx, id, want(n, key)...)
	require.NoError(t, err)
	_, err = r.Item(ctx, key, produceItem(key, n))
	require.NoError(t, err)
	r.SetChildren(children)
	var sent mmcache.Batch
	require.NoError(t, r.Commit(ctx, func(b mmcache.Batch) error { sent = b; return nil }))
	return r, sent
}

// evictOthers puts items that need the place of everything else.
func evictOthers(t *testing.T, c mmcache.Cache, n int) {
	t.Helper()
	for i := range 3 {
		r, _ := shmRequest(t, c, "filler", fmt.Sprint("filler", i), n, 1)
		r.Finish()
	}
}

func cached(c mmcache.Cache, key string) bool {
	for k := range c.Keys() {
		if k == key {
			return true
		}
	}
	return false
}

func TestAbortedItemStaysUntilAFence(t *testing.T) {
	c := openShared(t, mmcache.Options{Capacity: 8 << 10, Shared: mmcache.SharedOptions{MaxObject: 8 << 10}})
	r, _ := shmRequest(t, c, "r", "a", 1000, 1)
	r.Abort()
	require.Equal(t, int64(1), c.Stats().Quarantined)
	f := c.Fence()
	evictOthers(t, c, 7000)
	require.True(t, cached(c, "a"), "a worker may still read it")
	f.Passed()
	require.Zero(t, c.Stats().Quarantined)
	evictOthers(t, c, 7000)
	require.False(t, cached(c, "a"))
}

func TestFinishedItemGoesThoughNobodyRead(t *testing.T) {
	c := openShared(t, mmcache.Options{Capacity: 8 << 10, Shared: mmcache.SharedOptions{MaxObject: 8 << 10}})
	r, _ := shmRequest(t, c, "r", "a", 1000, 1)
	evictOthers(t, c, 7000)
	require.True(t, cached(c, "a"))
	r.Finish()
	evictOthers(t, c, 7000)
	require.False(t, cached(c, "a"))
}

// Every child of a request counts, so that the counts of 0.32 tell the truth.
func TestChildrenCount(t *testing.T) {
	release, err := pycompat.Lookup("0.32.0")
	require.NoError(t, err)
	own := *release
	own.Rereads = false // so that counts end the quarantine
	gen := &own
	o := mmcache.Options{Generation: gen, Capacity: 8 << 10, Shared: mmcache.SharedOptions{MaxObject: 4 << 10, Readers: 2}}
	c := openShared(t, o)
	r, sent := shmRequest(t, c, "r", "a", 1000, 3)
	r.Abort()
	reader, err := objstore.Open(c.Name(), objstore.ReaderOptions{Dir: segmentDir(t), RingSize: 8 << 10, Readers: 2, Generation: gen, Lock: make(mutex, 1)})
	require.NoError(t, err)
	defer func() { require.NoError(t, reader.Close()) }()
	for i := range 6 { // three children at two workers
		require.Equal(t, int64(1), c.Stats().Quarantined, "after %d reads", i)
		v, err := reader.Get("a", *sent.Items[0].Handle)
		require.NoError(t, err)
		assertContent(t, "a", v.Item())
		require.NoError(t, v.Release())
	}
	require.Zero(t, c.Stats().Quarantined)
}

func TestAdoptKeepsItemsWarm(t *testing.T) {
	dir := t.TempDir()
	o := mmcache.Options{Capacity: 1 << 20, Shared: mmcache.SharedOptions{Name: "warm", Dir: dir, MaxObject: 1 << 18, Readers: 1, Adopt: true}}
	open := func() *mmcache.Shared {
		c, err := mmcache.OpenShared(o)
		require.NoError(t, err)
		return c
	}
	c := open()
	require.Zero(t, c.Adoption, "there was nothing to adopt")
	r, sent := shmRequest(t, c, "r", "a", 5000, 1)
	r.Finish()
	require.NoError(t, c.Detach())

	c = open()
	require.Equal(t, 1, c.Adoption.Kept)
	require.True(t, c.Adoption.Clean)
	r, err := c.Begin(ctx, "r", want(5000, "a")...)
	require.NoError(t, err)
	it, err := r.Item(ctx, "a", mustNotProduce(t))
	require.NoError(t, err)
	require.True(t, it.Hit)
	require.Equal(t, "a", string(it.Updates), "prompt updates survive, too")
	require.Positive(t, it.Size)
	require.NoError(t, r.Commit(ctx, func(b mmcache.Batch) error {
		require.Equal(t, sent.Items[0].Handle, b.Items[0].Handle, "old handles stay good")
		return nil
	}))
	require.NoError(t, c.ResetReaders(0)) // the engine died: the request needs nothing any more
	r.Abort()
	require.Zero(t, c.Stats().Quarantined)
	require.True(t, cached(c, "a"))

	_, err = mmcache.OpenShared(o)
	require.ErrorContains(t, err, "living process")
	require.NoError(t, c.CheckStructure())
	require.NoError(t, c.Close())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoFileExists(t, filepath.Join(dir, "warm.ctl"))
}

func TestAdoptNeedsANameAndThePool(t *testing.T) {
	for name, shared := range map[string]mmcache.SharedOptions{
		"no name": {Readers: 1, Adopt: true},
		"FIFO":    {Readers: 1, Adopt: true, Name: "n", FIFO: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := mmcache.Options{Mode: "shm", Capacity: 1 << 20, Shared: shared}
			requireInvalid(t, o.Validate(), "Adopt needs a Name, and a Pool")
		})
	}
}

func TestPrepareReports(t *testing.T) {
	c := openShared(t, mmcache.Options{Capacity: 1 << 20})
	rep, err := c.Prepare(ctx, memory.Options{Prefault: true})
	require.NoError(t, err)
	require.Contains(t, rep.String(), "prefault")
}

// What a cache can do besides depends on its mode, and the mode is its type.
func TestModesAreTypes(t *testing.T) {
	forEachMode(t, mmcache.Options{Capacity: 1 << 20}, func(t *testing.T, c mmcache.Cache) {
		_, shared := c.(*mmcache.Shared)
		require.Equal(t, c.Mode() == "shm", shared)
		_, mirrored := c.(*mmcache.Mirrored)
		require.Equal(t, c.Mode() == "lru", mirrored)
	})
	for name, open := range map[string]func(mmcache.Options) (mmcache.Cache, error){
		"OpenShared":   func(o mmcache.Options) (mmcache.Cache, error) { return mmcache.OpenShared(o) },
		"OpenMirrored": func(o mmcache.Options) (mmcache.Cache, error) { return mmcache.OpenMirrored(o) },
	} {
		t.Run(name, func(t *testing.T) {
			c, err := open(mmcache.Options{Mode: "processor_only", Capacity: 1 << 20, Shared: mmcache.SharedOptions{Readers: 1, Dir: t.TempDir(), Name: "typed"}})
			require.NoError(t, err)
			require.Equal(t, name == "OpenShared", c.Mode() == "shm", "whatever Options.Mode is")
			require.NoError(t, c.Close())
		})
	}
	c, err := mmcache.Open(mmcache.Options{Mode: "shm", Capacity: -1})
	requireInvalid(t, err, "capacity of -1 bytes")
	require.True(t, c == nil, "an interface that is nil, and not one with a nil pointer")
}

// A Layout that was refused leaves nothing of itself to the next one.
func TestUpdatesAreThoseOfTheLayoutThatSucceeded(t *testing.T) {
	forEachMode(t, mmcache.Options{Capacity: 1 << 20}, func(t *testing.T, c mmcache.Cache) {
		r, err := c.Begin(ctx, "r", want(100, "a")...)
		require.NoError(t, err)
		defer r.Rollback()
		it, err := r.Item(ctx, "a", func(_ context.Context, b *mmcache.Builder) error {
			require.ErrorAs(t, b.Layout(layout(100), []byte("too long")), new(*mmcache.TooLargeError))
			return b.Layout(layout(99), []byte("b"))
		})
		require.NoError(t, err)
		require.Equal(t, mmcache.Item{Key: "a", Size: 99, Updates: []byte("b")}, it)
	})
}

// What is quick to make goes first, whoever came first. Builder.Cost is for what took
// another time than its producer did.
func TestCheapItemGoesFirst(t *testing.T) {
	for _, cheap := range []string{"a", "b"} {
		t.Run(cheap, func(t *testing.T) {
			c := openShared(t, mmcache.Options{Capacity: 8 << 10, Shared: mmcache.SharedOptions{MaxObject: 8 << 10}})
			for _, k := range []string{"a", "b", "filler"} {
				r, err := c.Begin(ctx, k, want(3000, k)...)
				require.NoError(t, err)
				_, err = r.Item(ctx, k, func(ctx context.Context, b *mmcache.Builder) error {
					b.Cost = time.Hour
					if k == cheap {
						b.Cost = time.Nanosecond
					}
					return produceItem(k, 3000)(ctx, b)
				})
				require.NoError(t, err)
				r.Rollback()
			}
			require.Equal(t, cheap != "a", cached(c, "a"))
			require.Equal(t, cheap != "b", cached(c, "b"))
		})
	}
}

func TestTenantsHaveQuotas(t *testing.T) {
	c := openShared(t, mmcache.Options{Capacity: 64 << 10, Shared: mmcache.SharedOptions{MaxObject: 16 << 10, Quota: 10 << 10}})
	r, err := c.Begin(ctx, "r", mmcache.Want{Key: "a", Bytes: 9000, Tenant: "t"}, mmcache.Want{Key: "b", Bytes: 9000, Tenant: "t"})
	require.NoError(t, err)
	defer r.Rollback()
	a, err := r.Item(ctx, "a", produceItem("a", 8000))
	require.NoError(t, err)
	require.NoError(t, a.Refused)
	b, err := r.Item(ctx, "b", produceItem("b", 8000))
	require.NoError(t, err)
	require.ErrorIs(t, b.Refused, objstore.ErrFull, "it goes inline")
}

// Builders that claim absurd costs keep nobody else from half of the memory.
func TestCostPoison(t *testing.T) {
	for _, cost := range []time.Duration{time.Millisecond, time.Hour, math.MaxInt64} {
		t.Run(cost.String(), func(t *testing.T) {
			c := openShared(t, mmcache.Options{Capacity: 64 << 10, Shared: mmcache.SharedOptions{MaxObject: 8 << 10}})
			const size, room = 1800, 32
			missed := 0
			use := func(key string, cost time.Duration) {
				r, err := c.Begin(ctx, key, want(size, key)...)
				require.NoError(t, err)
				defer r.Rollback()
				_, err = r.Item(ctx, key, func(ctx context.Context, b *mmcache.Builder) error {
					missed++
					b.Cost = cost
					return produceItem(key, size)(ctx, b)
				})
				require.NoError(t, err)
			}
			for i := range 2 * room {
				use(fmt.Sprint("poison ", i), cost)
			}
			for before, rounds := missed, 0; ; before, rounds = missed, rounds+1 {
				require.Less(t, rounds, 20)
				for i := range room / 2 {
					use(fmt.Sprint("honest ", i), 50*time.Millisecond)
				}
				if missed == before {
					break
				}
			}
			require.LessOrEqual(t, missed, 4*room)
		})
	}
}
