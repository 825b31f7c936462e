package mmcache_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

var ctx = context.Background()

func sent(mmcache.Batch) error { return nil }

// run makes one request for items of n bytes and leaves it open.
func run(t testing.TB, c mmcache.Cache, n int, keys ...string) (*mmcache.Request, mmcache.Batch) {
	t.Helper()
	r, err := c.Begin(ctx, nextID(), want(n, keys...)...)
	require.NoError(t, err)
	for _, k := range keys {
		it, err := r.Item(ctx, k, produceItem(k, n))
		require.NoError(t, err)
		require.Equal(t, k, string(it.Updates))
		require.EqualValues(t, n, it.Size)
	}
	var batch mmcache.Batch
	require.NoError(t, r.Commit(ctx, func(b mmcache.Batch) error { batch = b; return nil }))
	return r, batch
}

// What goes on the wire: the data at first; afterwards nothing new where the
// engine has it, or a handle, which the first time has already.
func TestWireForms(t *testing.T) {
	first := map[string]string{"none": inData, "processor_only": inData, "lru": inData, "shm": inAddress}
	again := map[string]string{"none": inData, "processor_only": inData, "lru": omitted, "shm": inAddress}
	forEachMode(t, mmcache.Options{Capacity: 4096, Shared: mmcache.SharedOptions{MaxObject: 2048}}, func(t *testing.T, c mmcache.Cache) {
		for i, want := range []string{first[c.Mode()], again[c.Mode()]} {
			r, b := run(t, c, 300, "a")
			require.Len(t, b.Items, 1)
			w := b.Items[0]
			require.Equal(t, want, form(w), "request %d", i)
			require.Equal(t, "a", string(w.Updates))
			switch want {
			case inData:
				assertContent(t, "a", w.Item)
			case inAddress:
				a, ok, err := serde.ParseAddress(w.Item, serde.Options{})
				require.NoError(t, err)
				require.True(t, ok)
				require.Equal(t, *w.Handle, a)
				require.False(t, a.Signature.IsZero())
			case omitted:
				require.Nil(t, w.Item)
			}
			r.Finish()
		}
		s := c.Stats()
		if c.Mode() == "none" {
			require.Equal(t, []int64{0, 2, 2}, []int64{s.Hits, s.Total, s.Produced})
			return
		}
		require.Equal(t, []int64{1, 2, 1}, []int64{s.Hits, s.Total, s.Produced})
	})
}

// Items of one request never evict each other: what does not fit beside the
// others goes inline.
func TestItemsOfARequestDoNotEvictEachOther(t *testing.T) {
	for _, m := range []string{"processor_only", "shm"} {
		t.Run(m, func(t *testing.T) {
			c := openCache(t, mmcache.Options{Mode: m, Capacity: 2048, Shared: mmcache.SharedOptions{MaxObject: 1024}})
			r, b := run(t, c, 700, "a", "b", "c")
			require.Equal(t, inData, form(b.Items[2]))
			require.EqualValues(t, 1, c.Stats().RefusedFull)
			require.EqualValues(t, 701, c.Stats().InFlight)
			second, err := c.Begin(ctx, "second", want(700, "a", "b")...)
			require.NoError(t, err)
			for _, k := range []string{"a", "b"} {
				it, err := second.Item(ctx, k, mustNotProduce(t))
				require.NoError(t, err)
				require.True(t, it.Hit)
			}
			second.Rollback()
			r.Finish()
			for i, w := range b.Items[:2] {
				if form(w) == inData {
					assertContent(t, string('a'+rune(i)), w.Item)
				}
			}
		})
	}
}

func TestFailedSendLeavesNoTrace(t *testing.T) {
	forEachMode(t, mmcache.Options{Capacity: 4096, Shared: mmcache.SharedOptions{MaxObject: 2048}}, func(t *testing.T, c mmcache.Cache) {
		r, err := c.Begin(ctx, "r", want(100, "a")...)
		require.NoError(t, err)
		_, err = r.Item(ctx, "a", produceItem("a", 100))
		require.NoError(t, err)
		broken := errors.New("socket closed")
		require.ErrorIs(t, r.Commit(ctx, func(mmcache.Batch) error { return broken }), broken)
		require.Panics(t, func() { _ = r.Commit(ctx, func(mmcache.Batch) error { panic("in send") }) })
		r.Finish() // not committed, so there is nothing to finish
		if c.Mode() == "lru" {
			require.Zero(t, c.Stats().CachedItems, "the engine never got it")
		}
		require.NoError(t, r.Commit(ctx, sent))
		r.Rollback() // too late
		require.ErrorIs(t, r.Commit(ctx, sent), mmcache.ErrEnded)
		r.Finish()
		r.Abort()
		_, err = r.Item(ctx, "a", mustNotProduce(t))
		require.ErrorIs(t, err, mmcache.ErrEnded)
		s := c.Stats()
		require.Equal(t, []int64{1, 1, 0, 0}, []int64{s.Committed, s.Finished, s.Aborted, s.RolledBack})
	})
}

// A handle that was rolled back is not waited for: the chunk is free at once.
func TestRollbackFreesTheChunk(t *testing.T) {
	c := openCache(t, mmcache.Options{Mode: "shm", Capacity: 1024, Shared: mmcache.SharedOptions{MaxObject: 1000}})
	for range 20 {
		r, err := c.Begin(ctx, "r", want(600, "a")...)
		require.NoError(t, err)
		it, err := r.Item(ctx, "a", produceItem("a", 600))
		require.NoError(t, err)
		require.NoError(t, it.Refused)
		r.Rollback()
		other, err := c.Begin(ctx, "other", want(600, "b")...)
		require.NoError(t, err)
		it, err = other.Item(ctx, "b", produceItem("b", 600))
		require.NoError(t, err)
		require.NoError(t, it.Refused)
		other.Rollback()
	}
	require.Zero(t, c.Stats().RefusedFull)
}

func TestMisuseIsAnError(t *testing.T) {
	o := mmcache.Options{Capacity: 4096, InFlight: 1000, Shared: mmcache.SharedOptions{MaxObject: 2048}}
	forEachMode(t, o, func(t *testing.T, c mmcache.Cache) {
		_, err := c.Begin(ctx, "r", mmcache.Want{Key: "a", Bytes: -1})
		requireInvalid(t, err, `Want.Bytes -1 of key "a"`)
		_, err = c.Begin(ctx, "r", want(600, "a", "b")...)
		var large *mmcache.TooLargeError
		require.ErrorAs(t, err, &large)
		require.EqualValues(t, 1000, large.Limit)

		r, err := c.Begin(ctx, "r", want(100, "a")...)
		require.NoError(t, err)
		_, err = r.Item(ctx, "b", produceItem("b", 1))
		requireInvalid(t, err, `no Want of key "b"`)
		requireInvalid(t, r.Commit(ctx, sent), `without item "a"`)
		require.ErrorAs(t, c.Close(), new(*mmcache.BusyError))
		_, err = r.Item(ctx, "a", produceItem("a", 100))
		require.NoError(t, err)
		require.NoError(t, r.Commit(ctx, sent))
		if c.Mode() != "lru" {
			requireInvalid(t, r.Missed(ctx, []string{"a"}, sent), "not mode "+c.Mode())
		}
		r.Finish()
	})
}

// What a producer does wrong is refused, and leaves nothing behind.
func TestProducersThatFail(t *testing.T) {
	for name, test := range map[string]struct {
		produce mmcache.Producer
		text    string
	}{
		"nothing":   {func(context.Context, *mmcache.Builder) error { return nil }, "without a Layout"},
		"no data":   {mmcache.Ready(&serde.Item{}, nil), "without any value"},
		"too large": {produceItem("a", 101), `item "a" takes 102 bytes, but Want.Bytes announced 101`},
		"updates too large": {func(_ context.Context, b *mmcache.Builder) error {
			return b.Layout(layout(100), make([]byte, 5))
		}, `item "a" takes 105 bytes, but Want.Bytes announced 101`},
		"twice": {func(_ context.Context, b *mmcache.Builder) error {
			return errors.Join(b.Layout(layout(10), nil), b.Layout(layout(10), nil))
		}, "Layout was called twice"},
		"error": {func(context.Context, *mmcache.Builder) error { return errors.New("not an image") }, "not an image"},
		"panic": {func(_ context.Context, b *mmcache.Builder) error {
			_ = b.Layout(layout(10), nil)
			panic("decoder")
		}, "panicked: decoder"},
	} {
		t.Run(name, func(t *testing.T) {
			forEachMode(t, mmcache.Options{Capacity: 4096, Shared: mmcache.SharedOptions{MaxObject: 2048}}, func(t *testing.T, c mmcache.Cache) {
				r := begin(t, c, "a")
				_, err := func() (_ mmcache.Item, err error) {
					defer func() {
						if x := recover(); x != nil {
							err = fmt.Errorf("panicked: %v", x)
						}
					}()
					return r.Item(ctx, "a", test.produce)
				}()
				require.ErrorContains(t, err, test.text)
				require.EqualValues(t, 0, c.Stats().CachedItems)
				require.NoError(t, c.CheckStructure())
				_, err = r.Item(ctx, "a", produceItem("a", 100))
				require.NoError(t, err, "failures leave nothing behind")
				require.NoError(t, r.Commit(ctx, sent))
				r.Finish()
			})
		})
	}
}

// Begin waits for memory, and gives up with its context.
func TestBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCache(t, mmcache.Options{Mode: "none", InFlight: 1000})
		first, _ := run(t, c, 600, "a")
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := c.Begin(short, "second", want(600, "b")...)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		go func() {
			time.Sleep(time.Minute)
			first.Abort()
		}()
		second, err := c.Begin(ctx, "second", want(600, "b")...)
		require.NoError(t, err)
		s := c.Stats()
		require.EqualValues(t, 2, s.Waits)
		require.Equal(t, time.Minute+time.Second, s.Waited)
		require.EqualValues(t, 601, s.InFlight)
		second.Rollback()
		require.NoError(t, c.Close())
		_, err = c.Begin(ctx, "third")
		require.ErrorIs(t, err, fs.ErrClosed)
	})
}

func TestInvalidate(t *testing.T) {
	forEachMode(t, mmcache.Options{Capacity: 4096, Shared: mmcache.SharedOptions{MaxObject: 2048}}, func(t *testing.T, c mmcache.Cache) {
		require.False(t, c.Invalidate("a"))
		r, b := run(t, c, 100, "a")
		require.Equal(t, c.Mode() != "none", c.Invalidate("a"))
		require.False(t, c.Invalidate("a"))
		other, _ := run(t, c, 100, "a")
		require.EqualValues(t, 2, c.Stats().Produced)
		if form(b.Items[0]) == inData {
			assertContent(t, "a", b.Items[0].Item)
		}
		other.Finish()
		r.Finish()
		require.NoError(t, c.CheckStructure())
	})
}

func TestBeginRefusesAnEmptyKey(t *testing.T) {
	c, err := mmcache.Open(mmcache.Options{})
	require.NoError(t, err)
	_, err = c.Begin(context.Background(), "r", mmcache.Want{Bytes: 1})
	requireInvalid(t, err, "Key")
	require.NoError(t, c.Close())
}
