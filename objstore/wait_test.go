package objstore

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmstore"
)

var waits = flag.Int("waits", 3000, "puts in TestRandomWaiters")

// fill puts objects of n bytes for a request until there is no room for more.
func fill(t testing.TB, r request, n int) (objects int) {
	t.Helper()
	for {
		_, err := r.Put(fmt.Sprint("k", objects), bytesItem(n))
		if errors.Is(err, ErrFull) {
			return objects
		}
		require.NoError(t, err)
		objects++
	}
}

// work is what a store did to make room.
type work struct{ Looked, Woken, Polls int }

// workOf returns what a store did so far.
func workOf(t testing.TB, w *writer) work {
	t.Helper()
	var st shmstore.Stats
	var err error
	if w.pool != nil {
		st, err = w.pool.Inspect(nil) // shmstore.Stats looks at objects itself
	} else {
		st, err = w.Stats()
	}
	require.NoError(t, err)
	return work{st.Looked, st.Woken, st.Polls}
}

func waiting(t testing.TB, w Store) int {
	t.Helper()
	s, err := w.Stats()
	require.NoError(t, err)
	return s.Waiting
}

// waitUntil waits until so many callers wait for room.
func waitUntil(t testing.TB, w Store, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return waiting(t, w) == n }, 2*time.Minute, 100*time.Microsecond)
}

// startWaiter starts a Put of a request that finds no room, behind those that wait.
func startWaiter(t testing.TB, w Store, ctx context.Context, r request, key string, size int, o PutOptions) <-chan error {
	t.Helper()
	n := waiting(t, w)
	done := make(chan error, 1)
	o.Wait = ctx
	go func() {
		_, err := r.Request.Put(key, bytesItem(size), o)
		done <- err
	}()
	waitUntil(t, w, n+1)
	return done
}

func answer(t testing.TB, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(2 * time.Minute):
		t.Fatal("the caller waits for ever")
		return nil
	}
}

// Hits change nothing that somebody who waits for room could use. So they wake
// nobody, and look at no object.
func TestHitsDoNotWakeWaiters(t *testing.T) {
	for _, k := range kinds {
		o := Options{RingSize: 256 << 10, MaxObjectSize: 128 << 10, Readers: 1, QuarantineTTL: -1}
		for _, aborted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, aborted %v", k, aborted), func(t *testing.T) {
				s := newStoreOf(t, k, o)
				all := begin(t, s, "all")
				n := fill(t, all, 300)
				require.NoError(t, all.Commit())
				if aborted {
					all.Abort()
				}
				ctx, cancel := context.WithCancel(context.Background())
				var done []<-chan error
				waiters := begin(t, s, "waiters")
				for i := range 64 {
					done = append(done, startWaiter(t, s, ctx, waiters, fmt.Sprint("waiter", i), 100_000, PutOptions{}))
				}
				before := workOf(t, s.writer)
				const hits = 2000
				for i := range hits {
					r := begin(t, s, "hit")
					_, err := r.Lookup(fmt.Sprint("k", i%n))
					require.NoError(t, err)
					require.NoError(t, r.Commit())
					r.Finish()
				}
				after := workOf(t, s.writer)
				require.Zero(t, after.Woken-before.Woken)
				require.LessOrEqual(t, after.Looked-before.Looked, (after.Polls-before.Polls)*min(n, 4096))
				cancel()
				for _, d := range done {
					err := answer(t, d)
					require.ErrorIs(t, err, context.Canceled)
					require.ErrorIs(t, err, ErrFull)
				}
				require.Zero(t, waiting(t, s))
				waiters.Rollback()
				all.Finish()
				s.Fence().Passed()
				require.NoError(t, s.ResetReaders(0))
			})
		}
	}
}

// Several objects that are leased and given back now and then leave the same holes.
// What was not found among them is not looked for again before anything else is
// there.
func TestRefusedPutLooksAtFewObjects(t *testing.T) {
	s := newPoolStore(t, Options{RingSize: 1 << 20, Readers: 1, MaxObjects: 1 << 14, QuarantineTTL: -1})
	all := begin(t, s, "all")
	n := fill(t, all, 300)
	require.Greater(t, n, 1000)
	refused := func(size, looks int) *shmstore.FullError {
		t.Helper()
		before := workOf(t, s.writer)
		_, err := s.Put("refused", bytesItem(size))
		var full *shmstore.FullError
		require.ErrorAs(t, err, &full)
		require.LessOrEqual(t, workOf(t, s.writer).Looked-before.Looked, looks)
		return full
	}
	usedNow := func() int64 {
		st, err := s.State()
		require.NoError(t, err)
		return int64(st.Used)
	}
	b := refused(20_000, 0)
	require.Equal(t, usedNow(), b.Leased)

	require.NoError(t, all.Commit())
	all.Abort()
	b = refused(20_000, 64)
	require.Equal(t, usedNow(), b.Quarantined)

	// Every other object can go, and makes no run.
	half := begin(t, s, "half")
	for i := range n / 2 {
		_, err := half.Lookup(fmt.Sprint("k", 2*i))
		require.NoError(t, err)
	}
	s.Fence().Passed()
	b = refused(20_000, 2*n)
	require.Positive(t, b.Evictable)
	require.Equal(t, usedNow(), b.Leased+b.Evictable)
	refused(20_000, 0)
	refused(30_000, 0)
	for i := range 100 { // hits on what is between
		r := begin(t, s, "hit")
		_, err := r.Lookup(fmt.Sprint("k", 2*i+1))
		require.NoError(t, err)
		r.Rollback()
		refused(20_000, 0)
	}
	half.Rollback()
	_, err := s.Put("fits", bytesItem(20_000))
	require.NoError(t, err)
}

func TestQuotaIsRefusedWithoutLookingAtOthers(t *testing.T) {
	s := newPoolStore(t, Options{RingSize: 1 << 20, Readers: 1, MaxObjects: 1 << 14, Quota: 4096, Quotas: map[string]int64{"other": 1 << 20}})
	other := begin(t, s, "other")
	for i := range 500 {
		res, err := other.Request.Reserve(fmt.Sprint("o", i), bytesItem(300), PutOptions{Tenant: "other"})
		require.NoError(t, err)
		_, err = res.Commit()
		require.NoError(t, err)
	}
	mine := begin(t, s, "mine")
	res, err := mine.Request.Reserve("mine", bytesItem(3000), PutOptions{Tenant: "t"})
	require.NoError(t, err)
	_, err = res.Commit()
	require.NoError(t, err)
	before := workOf(t, s.writer)
	_, err = s.steps.Reserve("more", bytesItem(3000), PutOptions{Tenant: "t"})
	var quota *shmstore.FullError
	require.ErrorAs(t, err, &quota)
	require.Equal(t, "t", quota.Tenant)
	require.Greater(t, quota.Used, uint64(3000))
	require.Equal(t, before, workOf(t, s.writer))

	// Who waits for a quota keeps nobody else from getting room.
	waits := begin(t, s, "waits")
	done := startWaiter(t, s, context.Background(), waits, "more", 3000, PutOptions{Tenant: "t"})
	elsewhere := begin(t, s, "elsewhere")
	for i := range 20 {
		_, err := elsewhere.Request.Put(fmt.Sprint("e", i), bytesItem(300), PutOptions{Tenant: "other", Wait: context.Background()})
		require.NoError(t, err)
	}
	elsewhere.Rollback()
	require.Equal(t, 1, waiting(t, s))
	mine.Rollback()
	require.NoError(t, answer(t, done))
	waits.Rollback()
	other.Rollback()
	s.Fence().Passed()
}

// A fence looks at what it releases, and at nothing that was aborted later.
func TestFenceLooksAtWhatItReleases(t *testing.T) {
	s := newPoolStore(t, Options{RingSize: 1 << 20, Readers: 1, MaxObjects: 1 << 14, QuarantineTTL: -1})
	abort := func(n int) {
		r := begin(t, s, "r")
		for i := range n {
			_, err := r.Put(fmt.Sprint(n, "/", i), bytesItem(300))
			require.NoError(t, err)
		}
		require.NoError(t, r.Commit())
		r.Abort()
	}
	abort(7)
	f := s.Fence()
	abort(1000)
	before := workOf(t, s.writer)
	f.Passed()
	require.LessOrEqual(t, workOf(t, s.writer).Looked-before.Looked, 8)
	st, err := s.State()
	require.NoError(t, err)
	require.Equal(t, 1000, st.Quarantined)

	before = workOf(t, s.writer)
	sums, err := s.Stats()
	require.NoError(t, err)
	require.LessOrEqual(t, workOf(t, s.writer).Looked-before.Looked, 64)
	require.Equal(t, 1000, sums.QuarantinedObjects)
	require.Equal(t, 1007, sums.Objects)
	require.Equal(t, int64(st.Used), sums.Quarantined+sums.Evictable)
	s.Fence().Passed()
}

func TestStatsIsWhatStateAddsUpTo(t *testing.T) {
	s := newPoolStore(t, Options{RingSize: 64 << 10})
	open := begin(t, s, "open")
	_, err := open.Put("leased", bytesItem(1000))
	require.NoError(t, err)
	unread := begin(t, s, "unread")
	_, err = unread.Put("quarantined", bytesItem(2000))
	require.NoError(t, err)
	require.NoError(t, unread.Commit())
	unread.Abort()
	res, err := open.Reserve("reserved", bytesItem(3000))
	require.NoError(t, err)
	idle := begin(t, s, "idle")
	_, err = idle.Put("idle", bytesItem(4000))
	require.NoError(t, err)
	idle.Rollback()
	st, err := s.State()
	require.NoError(t, err)
	got, err := s.Stats()
	require.NoError(t, err)
	require.Equal(t, shmstore.Stats{
		Objects: 3, Chunks: 4, Used: int64(st.Used), Leases: 1, Requests: 1, Readers: 2, QuarantinedObjects: 1,
		Looked: got.Looked, Woken: got.Woken, Polls: got.Polls, Reserved: got.Reserved, Leased: got.Leased, Quarantined: got.Quarantined, Evictable: got.Evictable,
	}, got)
	require.Equal(t, int64(st.Used), got.Reserved+got.Leased+got.Quarantined+got.Evictable)
	for i, bytes := range []int64{got.Leased, got.Quarantined, got.Reserved, got.Evictable} {
		require.InDelta(t, 1000*(i+1), bytes, 500)
	}
	res.Discard()
	open.Rollback()
	s.Fence().Passed()
}

// The first one gets room first, though the others need less.
func TestWaitersGetRoomInOrder(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			s := newStoreOf(t, k, Options{RingSize: 8 << 10, MaxObjectSize: 8 << 10, Readers: 1})
			var held []request
			for i := range 5 {
				r := begin(t, s, fmt.Sprint("held", i))
				_, err := r.Put(fmt.Sprint("held", i), bytesItem(1300))
				require.NoError(t, err)
				held = append(held, r)
			}
			var ids [3]uint32
			var all sync.WaitGroup
			for i, size := range []int{3000, 1500, 1400} {
				all.Go(func() {
					r, err := s.Begin(fmt.Sprint("waiter", i))
					if err != nil {
						t.Error(err)
						return
					}
					defer r.Rollback()
					h, err := r.Put(fmt.Sprint("w", i), bytesItem(size), PutOptions{Wait: context.Background()})
					if err != nil {
						t.Error(err)
					}
					ids[i] = h.ID
				})
				waitUntil(t, s, i+1)
			}
			for _, r := range held {
				r.Rollback()
			}
			all.Wait()
			require.Less(t, ids[0], ids[1])
			require.Less(t, ids[1], ids[2])
		})
	}
}

// Whoever gives up, or finds that it needs nothing any more, leaves the room to
// those behind it.
func TestWaiterThatGivesUpWakesTheNext(t *testing.T) {
	for name, give := range map[string]func(t *testing.T, s *store, cancel func(), r request){
		"its context ends": func(_ *testing.T, _ *store, cancel func(), _ request) { cancel() },
		"its request ends": func(_ *testing.T, _ *store, _ func(), r request) { r.Rollback() },
		"its request is committed": func(t *testing.T, _ *store, _ func(), r request) {
			require.NoError(t, r.Commit())
			r.Finish()
		},
		"its key is there": func(t *testing.T, s *store, _ func(), _ request) {
			o := begin(t, s, "other")
			_, err := o.Put("first", bytesItem(300))
			require.NoError(t, err)
			o.Rollback()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPoolStore(t, Options{RingSize: 8 << 10})
			held := begin(t, s, "held")
			_, err := held.Put("held", bytesItem(5000))
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			r := begin(t, s, "first")
			first := startWaiter(t, s, ctx, r, "first", 4000, PutOptions{})
			blocker := begin(t, s, "blocker")
			_, err = blocker.Put("blocker", bytesItem(1500))
			require.NoError(t, err)
			other := begin(t, s, "second")
			second := startWaiter(t, s, context.Background(), other, "second", 1500, PutOptions{})
			blocker.Rollback()
			require.Equal(t, 2, waiting(t, s), "there is room for the second one only, which has to wait")
			give(t, s, cancel, r)
			require.Error(t, answer(t, first))
			require.NoError(t, answer(t, second))
			other.Rollback()
			r.Rollback()
			held.Rollback()
			s.Fence().Passed()
		})
	}
}

func TestCloseEndsTheWaiters(t *testing.T) {
	for _, k := range kinds {
		s := newStoreOf(t, k, Options{RingSize: 4096, MaxObjectSize: 4000, Readers: 1})
		_, err := s.Put("unread", bytesItem(3000))
		require.NoError(t, err)
		var done []<-chan error
		r := begin(t, s, "r")
		for i := range 3 {
			done = append(done, startWaiter(t, s, context.Background(), r, fmt.Sprint(i), 3000, PutOptions{}))
		}
		require.NoError(t, s.Close())
		for _, d := range done {
			require.ErrorIs(t, answer(t, d), errClosed)
		}
	}
}

// Small puts take what a large one waits for, but not for ever.
func TestSmallPutsDoNotStarveALargeWaiter(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			s := newStoreOf(t, k, Options{RingSize: 32 << 10, MaxObjectSize: 32 << 10, Readers: 1})
			var open []request
			small := func(i int) bool {
				r := begin(t, s, fmt.Sprint("small", i))
				_, err := r.Put(fmt.Sprint("small", i), bytesItem(1000))
				if err != nil {
					require.ErrorIs(t, err, ErrFull)
					r.Rollback()
					return false
				}
				open = append(open, r)
				return true
			}
			n := 0
			for small(n) {
				n++
			}
			require.Greater(t, len(open), 20)
			waits := begin(t, s, "waits")
			done := startWaiter(t, s, context.Background(), waits, "large", 20_000, PutOptions{})
			passed, refused := 0, 0
			var saidSo bool
			// Who passes once the large one has its room, which is before it answers, passes nobody.
			for i := n; waiting(t, s) > 0 && refused < 100*n; i++ {
				// There is always someone with a request that is open.
				if len(open) > 0 {
					open[0].Rollback()
					open = open[1:]
				}
				if small(i) {
					passed++
					continue
				}
				refused++
				_, err := s.Put("x", bytesItem(1000))
				var full *shmstore.FullError
				var head *HeadError
				if errors.As(err, &full) && full.Waiting > 20_000 || errors.As(err, &head) && head.Waiting > 20_000 {
					saidSo = true
				}
				if len(open) == 0 { // it has been woken
					waitUntil(t, s, 0)
				}
			}
			require.NoError(t, answer(t, done))
			require.True(t, saidSo)
			waits.Rollback()
			require.LessOrEqual(t, passed, 3*n)
			for _, r := range open {
				r.Rollback()
			}
			s.Fence().Passed()
			require.NoError(t, s.ResetReaders(0))
		})
	}
}

// Nothing announces the readers' counts; the one who waits finds them.
func TestWaiterFindsReadsThatComplete(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			s := newStoreOf(t, k, Options{RingSize: 64 << 10, MaxObjectSize: 64 << 10, Readers: 1, TrustCounts: k == pool, QuarantineTTL: -1})
			var handles []serde.Address
			r := begin(t, s, "r")
			for i := 0; ; i++ {
				h, err := r.Put(fmt.Sprint("k", i), bytesItem(100))
				if err != nil {
					require.ErrorIs(t, err, ErrFull)
					break
				}
				handles = append(handles, h)
			}
			require.Greater(t, len(handles), 2*64)
			require.NoError(t, r.Commit())
			r.Abort()
			waits := begin(t, s, "waits")
			done := startWaiter(t, s, context.Background(), waits, "large", 40_000, PutOptions{})
			for i, h := range handles {
				// The writer looks at counts without the readers' lock, as it must, which
				// the race detector would report.
				s.locked(t, func() { s.readAll(t, h, fmt.Sprint("k", i)) })
			}
			require.NoError(t, answer(t, done))
			waits.Rollback()
			s.Fence().Passed()
			require.NoError(t, s.ResetReaders(0))
		})
	}
}

// Goroutines put, wait, give up, hit and end requests in every way, in a pool that
// is always full. Nobody is forgotten, and the sums are right all along.
func TestRandomWaiters(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			o := Options{RingSize: 32 << 10, MaxObjectSize: 32 << 10, Readers: 1}
			if k == pool {
				o.Quotas, o.MaxObjects = map[string]int64{"bounded": 8 << 10}, 24
			}
			s := newStoreOf(t, k, o)
			var got, gaveUp, full, hits atomic.Int64
			var workers sync.WaitGroup
			stop := make(chan struct{})
			var checker sync.WaitGroup
			checker.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						if err := s.CheckStructure(); err != nil {
							t.Error(err)
							return
						}
						// Nobody reads, and all the others may wait for what they aborted.
						s.Fence().Passed()
						if err := s.ResetReaders(0); err != nil {
							t.Error(err)
						}
						time.Sleep(time.Millisecond)
					}
				}
			})
			for g := range 12 {
				workers.Go(func() {
					rnd := rand.New(rand.NewPCG(uint64(g), 3))
					for i := range *waits / 24 {
						r, err := s.Begin(fmt.Sprint(g, "/", i))
						if err != nil {
							t.Error(err)
							return
						}
						ctx, cancel := context.Background(), func() {}
						if rnd.IntN(3) == 0 {
							ctx, cancel = context.WithTimeout(ctx, time.Duration(rnd.IntN(3000))*time.Microsecond)
						}
						po := PutOptions{}
						if k == pool && rnd.IntN(3) == 0 {
							po.Tenant = "bounded"
						}
						key, size := fmt.Sprint("k", rnd.IntN(200)), 1+rnd.IntN(6000)
						if rnd.IntN(4) > 0 {
							po.Wait = ctx
						}
						_, err = r.Put(key, bytesItem(size), po)
						cancel()
						switch {
						case err == nil:
							got.Add(1)
						case errors.Is(err, ErrKeyExists):
							if _, err := r.Lookup(key); err == nil {
								hits.Add(1)
							}
						case errors.Is(err, context.DeadlineExceeded):
							gaveUp.Add(1)
						case errors.Is(err, ErrFull):
							full.Add(1)
						default:
							t.Error(err)
						}
						switch rnd.IntN(3) {
						case 0:
							r.Rollback()
							continue
						case 1:
							_ = r.Commit()
							r.Finish()
						default:
							_ = r.Commit()
							r.Abort()
						}
					}
				})
			}
			workers.Wait()
			close(stop)
			checker.Wait()
			t.Logf("%d got, %d gave up, %d full, %d hits, %+v", got.Load(), gaveUp.Load(), full.Load(), hits.Load(), workOf(t, s.writer))
			require.Zero(t, waiting(t, s))
			require.NotZero(t, got.Load())
			require.NotZero(t, hits.Load())
			s.Fence().Passed()
			require.NoError(t, s.ResetReaders(0))
		})
	}
}
