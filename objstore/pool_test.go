package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmstore"
)

// newPoolStore makes a pool of some KiB with readers that count, and a sidecar,
// over private memory.
func newPoolStore(t testing.TB, o Options) *store {
	t.Helper()
	o.TrustCounts = !o.Rereads
	if o.RingSize == 0 {
		o.RingSize = 16 << 10
	}
	if o.MaxObjectSize == 0 {
		o.MaxObjectSize = o.RingSize
	}
	if o.Readers == 0 {
		o.Readers = 2
	}
	return newStoreOf(t, pool, o)
}

// used returns the bytes in use after everything that can go has gone.
func used(t testing.TB, w *writer) uint64 {
	t.Helper()
	_, err := w.FreeUnused()
	require.NoError(t, err)
	st, err := w.State()
	require.NoError(t, err)
	return st.Used
}

func TestPoolTensorsAreAligned(t *testing.T) {
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			s := newPoolStore(t, Options{Generation: g})
			for i, it := range []*serde.Item{image(1000, 'a'), image(257, 'b'), {Modality: "image", Elems: []serde.Elem{
				{Key: "small", Data: tensor(300, 'c')}, {Key: "large", Data: tensor(900, 'd')}, {Key: "odd", Data: tensor(301, 'e')},
			}}} {
				h, err := s.Put(fmt.Sprint(i), it)
				require.NoError(t, err)
				require.Zero(t, (int(h.Address)+g.DataOffset)%64)
				at := bytes.Index(s.mem, bytes.Repeat([]byte{"abd"[i]}, 250))
				require.Positive(t, at)
				require.Zero(t, at%64, "item %d", i)
			}
		})
	}
}

func TestPoolKeepsWhatIsLeasedAndEvictsTheRest(t *testing.T) {
	s := newPoolStore(t, Options{RingSize: 8 << 10})
	a := begin(t, s, "a")
	ha, err := a.Put("held", bytesItem(2000))
	require.NoError(t, err)
	require.NoError(t, a.Commit())
	for i := range 20 { // far more than fits
		r := begin(t, s, "b")
		h, err := r.Put(fmt.Sprint("k", i), bytesItem(2000))
		require.NoError(t, err)
		require.NoError(t, r.Commit())
		deliver(t, s, fmt.Sprint("k", i), h)
		r.Finish()
		require.NoError(t, s.CheckStructure())
	}
	deliver(t, s, "held", ha)
	require.True(t, s.Cached("held"))
	a.Finish()
	require.Zero(t, used(t, s.writer))
	require.False(t, s.Cached("held"))
}

// What FIFO is blocked by for ever is one object here.
func TestPoolHasNoHeadOfLine(t *testing.T) {
	s := newPoolStore(t, Options{RingSize: 8 << 10})
	first := begin(t, s, "first")
	_, err := first.Put("first", bytesItem(500))
	require.NoError(t, err)
	require.NoError(t, first.Commit())
	first.Abort() // nobody ever reads it
	for i := range 50 {
		r := begin(t, s, "r")
		_, err := r.Put(fmt.Sprint(i), bytesItem(2000))
		require.NoError(t, err)
		require.NoError(t, r.Commit())
		r.Finish() // also nobody
	}
	st, err := s.State()
	require.NoError(t, err)
	require.Equal(t, 1, st.Quarantined)
	s.Fence().Passed()
	require.Zero(t, used(t, s.writer))
}

func TestPoolRollbackUndoesExactly(t *testing.T) {
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			s := newPoolStore(t, Options{Generation: g})
			r := begin(t, s, "r")
			_, err := r.Put("a", bytesItem(500))
			require.NoError(t, err)
			for range 3 {
				_, err = r.Lookup("a")
				require.NoError(t, err)
			}
			r.Rollback()
			r.Rollback()
			require.ErrorIs(t, r.Commit(), ErrEnded)
			st, err := s.State()
			require.NoError(t, err)
			require.Equal(t, int64(0), st.Objects[0].Uses)
			require.Zero(t, st.Leases)
			require.Zero(t, st.Quarantined)
			require.True(t, s.Cached("a"), "what was made stays")
			require.Zero(t, used(t, s.writer))
		})
	}
}

func TestPoolAbortWaitsForTheReaders(t *testing.T) {
	s := newPoolStore(t, Options{})
	r := begin(t, s, "r")
	h, err := r.Put("a", bytesItem(500))
	require.NoError(t, err)
	require.NoError(t, r.Commit())
	r.Abort()
	for i, reader := range s.readers {
		require.NotZero(t, used(t, s.writer), "%d of 2 readers have read", i)
		v, err := reader.Get("a", h)
		require.NoError(t, err)
		require.NoError(t, v.Release())
	}
	require.Zero(t, used(t, s.writer))
}

// An engine that resumes a preempted request reads again after the counts are
// complete.
func TestPoolAbortWaitsForAFenceWhereAddressesAreReread(t *testing.T) {
	s := newPoolStore(t, Options{Rereads: true})
	abort := func(id string) {
		r := begin(t, s, id)
		h, err := r.Lookup("a")
		if err != nil {
			h, err = r.Put("a", bytesItem(500))
		}
		require.NoError(t, err)
		require.NoError(t, r.Commit())
		deliver(t, s, "a", h)
		r.Abort()
	}
	abort("one")
	require.NotZero(t, used(t, s.writer))
	fence := s.Fence()
	abort("two") // behind the fence
	fence.Passed()
	require.NotZero(t, used(t, s.writer), "two may be under way yet")
	s.Fence().Passed()
	require.Zero(t, used(t, s.writer))
}

func TestPoolQuarantineEndsByTimeOnlyIfNobodyIsInside(t *testing.T) {
	s := newPoolStore(t, Options{QuarantineTTL: time.Nanosecond})
	put := func(key string) serde.Address {
		r := begin(t, s, key)
		h, err := r.Put(key, bytesItem(500))
		require.NoError(t, err)
		require.NoError(t, r.Commit())
		r.Abort()
		return h
	}
	put("unread")
	require.Eventually(t, func() bool { return used(t, s.writer) == 0 }, time.Minute, time.Millisecond)
	h := put("half read")
	v, err := s.readers[0].Get("half read", h)
	require.NoError(t, err)
	require.NoError(t, v.Release())
	time.Sleep(time.Millisecond) // the time is over for sure
	require.NotZero(t, used(t, s.writer), "the second reader may be inside")
	require.NoError(t, s.ResetReaders(0))
	require.Zero(t, used(t, s.writer))

	never := newPoolStore(t, Options{QuarantineTTL: -1})
	r := begin(t, never.writer, "r")
	_, err = r.Put("a", bytesItem(500))
	require.NoError(t, err)
	require.NoError(t, r.Commit())
	r.Abort()
	require.NotZero(t, used(t, never.writer))
	never.Fence().Passed()
}

func TestPoolFinishWritesOffWhatWasNotRead(t *testing.T) {
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			s := newPoolStore(t, Options{Generation: g})
			for i := range 5 { // i reads are missing, or too many
				r := begin(t, s, "r")
				h, err := r.Lookup("a")
				if err != nil {
					h, err = r.Put("a", bytesItem(500))
				}
				require.NoError(t, err)
				require.NoError(t, r.Commit())
				for range i {
					v, err := s.readers[0].Get("a", h)
					require.NoError(t, err)
					require.NoError(t, v.Release())
				}
				r.Finish()
			}
			// From here on the counts tell again what an aborted request needs.
			r := begin(t, s, "r")
			h, err := r.Lookup("a")
			require.NoError(t, err)
			require.NoError(t, r.Commit())
			r.Abort()
			require.NotZero(t, used(t, s.writer))
			deliver(t, s, "a", h)
			require.Zero(t, used(t, s.writer))
		})
	}
}

func TestPoolResetReaders(t *testing.T) {
	s := newPoolStore(t, Options{})
	sent, unsent := begin(t, s, "sent"), begin(t, s, "unsent")
	for _, r := range []request{sent, unsent} {
		_, err := r.Put(r.ID(), bytesItem(500))
		require.NoError(t, err)
	}
	require.NoError(t, sent.Commit())
	h, err := unsent.Lookup("sent")
	require.NoError(t, err)
	require.ErrorIs(t, s.ResetReaders(-1), errInvalid)
	require.NoError(t, s.ResetReaders(1))
	require.True(t, sent.Ended())
	again := begin(t, s, "sent") // its id is free
	again.Rollback()
	sent.Finish()
	sent.Abort()

	// The request that was not sent goes on with one reader.
	require.NoError(t, unsent.Commit())
	v, err := s.readers[0].Get("sent", h)
	require.NoError(t, err)
	require.NoError(t, v.Release())
	unsent.Abort()
	_, err = s.FreeUnused()
	require.NoError(t, err)
	require.False(t, s.Cached("sent"), "its one reader has read it")
	require.True(t, s.Cached("unsent"))
	s.Fence().Passed()
	require.Zero(t, used(t, s.writer))
}

func TestPoolClearKeepsWhatMayBeRead(t *testing.T) {
	s := newPoolStore(t, Options{})
	r := begin(t, s, "r")
	h, err := r.Put("a", bytesItem(500))
	require.NoError(t, err)
	require.ErrorIs(t, s.Clear(), ErrBusy)
	require.NoError(t, r.Commit())
	r.Abort()
	require.NoError(t, s.Clear())
	require.False(t, s.Cached("a"))
	h2, err := s.Put("a", bytesItem(500))
	require.NoError(t, err)
	require.Greater(t, h2.ID, h.ID, "ids go on")
	deliver(t, s, "a", h)
	deliver(t, s, "a", h2)
	require.Zero(t, used(t, s.writer))
	v, err := s.readers[0].Get("a", h)
	require.ErrorIs(t, err, ErrStale)
	require.Nil(t, v)
}

func TestPoolFullSaysWho(t *testing.T) {
	s := newPoolStore(t, Options{RingSize: 4096 + 32})
	leased, aborted := begin(t, s, "l"), begin(t, s, "a")
	_, err := leased.Put("l", bytesItem(700))
	require.NoError(t, err)
	_, err = aborted.Put("a", bytesItem(800))
	require.NoError(t, err)
	require.NoError(t, aborted.Commit())
	aborted.Abort()
	res, err := s.Reserve("r", bytesItem(900))
	require.NoError(t, err)
	_, err = s.Put("x", bytesItem(3000))
	var full *shmstore.FullError
	require.ErrorAs(t, err, &full)
	b := full
	require.Greater(t, b.Leased, int64(700))
	require.Greater(t, b.Quarantined, int64(800))
	require.Greater(t, b.Reserved, int64(900))
	require.Equal(t, int64(4096), b.Leased+b.Quarantined+b.Reserved+b.Free)
	require.Contains(t, full.Error(), "PutOptions.Wait")

	// It waits for exactly that.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	waits := begin(t, s, "waits")
	_, err = waits.Request.Put("x", bytesItem(3000), PutOptions{Wait: ctx})
	cancel()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, ErrFull)
	done := make(chan error)
	go func() {
		_, err := waits.Request.Put("x", bytesItem(3000), PutOptions{Wait: context.Background()})
		done <- err
	}()
	res.Discard()
	leased.Rollback()
	s.Fence().Passed()
	require.NoError(t, <-done)
	waits.Rollback()

	_, err = s.Put("huge", bytesItem(5000))
	require.ErrorIs(t, err, ErrTooLarge)
	s.Fence().Passed()
}

func TestPoolQuota(t *testing.T) {
	s := newPoolStore(t, Options{RingSize: 64 << 10, Quota: 4096, Quotas: map[string]int64{"big": 32 << 10}})
	put := func(tenant, key string, n int) error {
		r := begin(t, s, tenant+key)
		res, err := r.Request.Reserve(key, bytesItem(n), PutOptions{Tenant: tenant})
		if err != nil {
			r.Rollback()
			return err
		}
		_, err = res.Commit()
		require.NoError(t, err)
		require.NoError(t, r.Commit())
		r.Finish()
		return nil
	}
	for i := range 6 {
		require.NoError(t, put("small", fmt.Sprint("s", i), 1000))
		require.NoError(t, put("big", fmt.Sprint("b", i), 3000))
	}
	st, err := s.State()
	require.NoError(t, err)
	bytes := map[string]int64{}
	for _, o := range st.Objects {
		bytes[o.Tenant] += o.Bytes
	}
	require.LessOrEqual(t, bytes["small"], int64(4096))
	require.Greater(t, bytes["small"], int64(2000))
	require.Greater(t, bytes["big"], int64(18000), "nobody takes the place of others")

	r := begin(t, s, "r")
	res, err := r.Request.Reserve("mine", bytesItem(3000), PutOptions{Tenant: "small"})
	require.NoError(t, err)
	var quota *shmstore.FullError
	require.ErrorAs(t, put("small", "more", 2000), &quota)
	require.ErrorIs(t, quota, ErrFull)
	require.Equal(t, "small", quota.Tenant)
	res.Discard()
	r.Rollback()
	require.NoError(t, put("small", "more", 2000))
}

func TestPoolMaxObjects(t *testing.T) {
	s := newPoolStore(t, Options{MaxObjects: 4})
	for i := range 10 {
		r := begin(t, s, "r")
		_, err := r.Put(fmt.Sprint(i), bytesItem(10))
		require.NoError(t, err)
		r.Rollback()
	}
	r := begin(t, s, "r")
	for i := range 4 {
		_, err := r.Put(fmt.Sprint("held", i), bytesItem(10))
		require.NoError(t, err)
	}
	_, err := r.Put("more", bytesItem(10))
	var full *shmstore.FullError
	require.ErrorAs(t, err, &full)
	require.Equal(t, 4, full.MaxObjects)
	require.Contains(t, err.Error(), "MaxObjects")
	r.Rollback()
}

func TestPoolCountsNeverOverflow(t *testing.T) {
	s := newPoolStore(t, Options{})
	r := begin(t, s, "r")
	_, err := r.Put("hot", bytesItem(100))
	require.NoError(t, err)
	r.Rollback()
	for range 3 {
		r := begin(t, s, "r")
		h, err := r.Lookup("hot")
		require.NoError(t, err)
		require.NoError(t, r.Commit())
		deliver(t, s, "hot", h)
		// As after 2^30 reads.
		s.change(t, "hot", func(o *poolObject, reads []byte) {
			o.uses, o.writtenOff = rebaseAt/2, 0
			mem.Store32(reads, rebaseAt)
		})
		r.Finish()
		st, err := s.State()
		require.NoError(t, err)
		require.Zero(t, st.Objects[0].Reads, "counts begin anew")
	}
	// One that is never idle is read more often than it was used, and is not used any
	// more long before a worker's count would overflow.
	busy := begin(t, s, "busy")
	_, err = busy.Lookup("hot")
	require.NoError(t, err)
	s.change(t, "hot", func(_ *poolObject, reads []byte) { mem.Store32(reads, rebaseAt) })
	require.False(t, s.Cached("hot"))
	_, err = s.Lookup("hot")
	require.ErrorIs(t, err, ErrNotFound)
	_, err = s.Put("hot", bytesItem(100))
	require.NoError(t, err, "a new copy")
	busy.Rollback()
	s.Fence().Passed()

	last := begin(t, s, "last")
	_, _, err = last.Keep("hot")
	require.NoError(t, err)
	s.change(t, "hot", func(o *poolObject, _ []byte) { o.uses = math.MaxInt32/2 - 1 })
	_, err = last.Lookup("hot")
	require.ErrorIs(t, err, ErrFull)
	require.ErrorContains(t, err, "overflow")
	s.change(t, "hot", func(o *poolObject, _ []byte) { o.uses = math.MaxInt32 / 2 })
	_, err = s.Lookup("hot")
	require.ErrorIs(t, err, ErrNotFound, "its key is free for a new copy")
	last.Rollback()
}

func TestPoolWriterViewKeepsTheObject(t *testing.T) {
	s := newPoolStore(t, Options{})
	r := begin(t, s, "r")
	h, err := r.Put("a", bytesItem(500))
	require.NoError(t, err)
	r.Rollback()
	v, err := s.Get(h)
	require.NoError(t, err)
	require.NotZero(t, used(t, s.writer))
	require.NoError(t, v.Check())
	require.NoError(t, v.Release())
	require.Zero(t, used(t, s.writer))
}

// Producers write into the pool at the same time, each key is made once, and
// requests end in every way.
func TestPoolManyProducers(t *testing.T) {
	s := newPoolStore(t, Options{RingSize: 1 << 16, MaxObjectSize: 1 << 13, Rereads: true})
	var making sync.Map
	var workers sync.WaitGroup
	var made, got, ended atomic.Int64
	for g := range 6 {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(2, uint64(g)))
			for i := range 300 {
				k := rng.IntN(30)
				key, n := fmt.Sprint("k", k), 1+k*200
				req, err := s.Begin(fmt.Sprint(g, "/", i))
				if err != nil {
					t.Error(err)
					return
				}
				h, err := req.Lookup(key)
				if errors.Is(err, ErrNotFound) {
					var res *Reservation
					res, err = req.Reserve(key, &serde.Item{Modality: "image", Elems: []serde.Elem{{
						Key: "x", Data: &serde.Tensor{DType: "uint8", Shape: []int{n}},
					}}}, PutOptions{})
					if err == nil {
						if _, twice := making.LoadOrStore(key, true); twice {
							t.Errorf("%s is made twice at a time", key)
						}
						for i := range res.Tensor("x") {
							res.Tensor("x")[i] = byte(k)
						}
						making.Delete(key)
						if rng.IntN(5) == 0 {
							res.Discard()
							req.Rollback()
							continue
						}
						h, err = res.Commit()
						made.Add(1)
					}
				} else {
					got.Add(1)
				}
				switch {
				case errors.Is(err, ErrFull), errors.Is(err, ErrKeyExists): // another makes it
					req.Rollback()
					continue
				case err != nil:
					t.Error(err)
					return
				}
				if err := req.Commit(); err != nil {
					t.Error(err)
				}
				v, err := s.readers[g%2].Get(key, h)
				if err != nil {
					t.Error(err)
					return
				}
				if data := v.Item().Elems[0].Data.(*serde.Tensor).Data; !bytes.Equal(data, bytes.Repeat([]byte{byte(k)}, n)) {
					t.Errorf("%s has another's bytes", key)
				}
				if err := v.Release(); err != nil {
					t.Error(err)
				}
				if rng.IntN(3) > 0 {
					req.Finish()
				} else {
					req.Abort()
				}
				if ended.Add(1)%50 == 0 {
					s.Fence().Passed() // nobody but us reads what was aborted
				}
			}
		})
	}
	workers.Wait()
	s.Fence().Passed()
	t.Logf("%d made, %d got, %d ended", made.Load(), got.Load(), ended.Load())
	require.NotZero(t, made.Load())
	require.NotZero(t, got.Load())
	require.Zero(t, used(t, s.writer))
}
