package objstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmstore"
)

// TestTruncatedAtEveryPage: a peer makes the sidecar or the segment shorter while
// a writer works. Every answer is a result or an error that names the file and
// what to do; the writer's own tables agree with each other; and when the file has
// its length again, everything can go and no entry of the table is missing.
//
// Under the race detector the file is cut between two steps, and not at any moment: there
// the runtime touches a word on Go's stack first and does the atomic in C then
// (runtime/race_amd64.s, racecallatomic), where a fault ends the process. `make test` runs
// the test without the detector too.
func TestTruncatedAtEveryPage(t *testing.T) {
	for _, k := range kinds {
		for _, suffix := range []string{"", sidecar.Suffix} {
			for _, restore := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/s%s/restore=%v", k, suffix, restore), func(t *testing.T) {
					t.Parallel()
					pages := int64(1)
					for keep := int64(0); keep < pages; keep++ {
						pages = truncatedAt(t, k, suffix, keep, restore)
					}
					require.Greater(t, pages, int64(1))
				})
			}
		}
	}
}

// truncatedAt leaves so many pages of a file, and returns how many there were.
func truncatedAt(t *testing.T, k kind, suffix string, keep int64, restore bool) (pages int64) {
	t.Helper()
	o := Options{
		Name: "s", Dir: t.TempDir(), RingSize: 48 << 10, MaxObjectSize: 16 << 10, Readers: 1, ReaderSlots: 2, TrustCounts: true,
	}
	if k == pool {
		o.MaxObjects = 192
		o.Quotas = map[string]int64{"bounded": 8 << 10}
	}
	w, err := k.create(o)
	require.NoError(t, err)
	path := filepath.Join(o.Dir, "s"+suffix)
	st, err := os.Stat(path)
	require.NoError(t, err)
	page := int64(os.Getpagesize())
	pages = (st.Size() + page - 1) / page

	users := make([]*truncationUser, 3)
	for i := range users {
		users[i] = &truncationUser{w: w, path: path, restored: restore, rng: rand.New(rand.NewPCG(uint64(keep), uint64(i))), name: fmt.Sprint(i)}
	}
	var between sync.RWMutex // held by steps, under the race detector
	step := func(u *truncationUser) error {
		if raceEnabled {
			between.RLock()
			defer between.RUnlock()
		}
		return u.step()
	}
	work := func(n int) {
		var wg sync.WaitGroup
		for _, u := range users {
			wg.Go(func() {
				for range n {
					if err := step(u); err != nil {
						t.Errorf("%d of %d pages of %s: %v", keep, pages, path, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	work(100)
	require.NoError(t, w.CheckStructure())
	cut := make(chan error)
	go func() {
		if raceEnabled {
			between.Lock()
		}
		err := os.Truncate(path, keep*page) // at any moment
		if raceEnabled {
			between.Unlock()
		}
		cut <- err
	}()
	work(150)
	require.NoError(t, <-cut)
	work(50)
	requireOnlyFaults(t, w.CheckStructure())
	for _, u := range users {
		for name, f := range u.operations() {
			require.NoError(t, u.judge(f()), "%s with %d of %d pages of %s", name, keep, pages, path)
			requireOnlyFaults(t, w.CheckStructure())
		}
	}

	if restore {
		require.NoError(t, os.Truncate(path, st.Size()))
		work(50)
	}
	for _, u := range users {
		u.endAll()
	}
	err = w.Clear()
	require.NoError(t, users[0].judge(err))
	requireOnlyFaultsUnless(t, restore, w.CheckStructure())
	if restore && k == pool {
		w.Fence().Passed()
		_, err = w.FreeUnused()
		require.NoError(t, err)
		require.Zero(t, w.Len(), "something can't go although nobody needs it")
		require.Zero(t, used(t, w))
		require.Equal(t, o.MaxObjects, sidecar.Of(w.Segment()).Free(), "entries of the table are missing")
		require.NoError(t, w.CheckStructure())
	}
	require.NoError(t, w.Close())
	left, err := os.ReadDir(o.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
	return pages
}

// requireOnlyFaults fails if an error, or one of those that it joins, is about
// anything but memory that is gone.
func requireOnlyFaults(t *testing.T, err error) {
	t.Helper()
	if many, ok := err.(interface{ Unwrap() []error }); ok && !errors.As(err, new(*shmstore.CorruptError)) {
		for _, e := range many.Unwrap() {
			requireOnlyFaults(t, e)
		}
		return
	}
	if joined := errors.Unwrap(err); joined != nil && !errors.As(err, new(*shmstore.CorruptError)) {
		requireOnlyFaults(t, joined)
		return
	}
	if err != nil {
		require.ErrorIs(t, err, fault.ErrFault)
	}
}

func requireOnlyFaultsUnless(t *testing.T, restored bool, err error) {
	t.Helper()
	if !restored { // else what is there again is zero, and of course damaged
		requireOnlyFaults(t, err)
	}
}

// truncationUser does with a writer what frontends do.
type truncationUser struct {
	w        *writer
	path     string // of the file that is cut short
	restored bool   // and is made longer again
	rng      *rand.Rand
	name     string
	n        int
	requests []Request
	fences   []shmstore.Fence
}

func (u *truncationUser) key() string { return fmt.Sprint(u.rng.IntN(60)) }

// judge returns what must not be.
func (u *truncationUser) judge(err error) error {
	for _, fine := range []error{ErrKeyExists, ErrNotFound, ErrFull, ErrEnded, ErrBusy} {
		if errors.Is(err, fine) {
			return nil
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errInvalid) && u.w.fifo != nil:
		return nil
	case errors.Is(err, fault.ErrFault):
		if text := err.Error(); !strings.Contains(text, u.path) || !strings.Contains(text, "ringcache sweep") {
			return fmt.Errorf("the error does not say which file and what to do: %w", err)
		}
		return nil
	case u.restored && (errors.Is(err, ErrCorrupt) || errors.Is(err, ErrStale) || errors.Is(err, ErrBadSignature)):
		return nil
	}
	return err
}

func (u *truncationUser) request() Request {
	if len(u.requests) < 4 {
		u.n++
		r, err := u.w.Begin(fmt.Sprint(u.name, "-", u.n))
		if err != nil {
			panic(err) // ids are not used twice, and the writer is open
		}
		u.requests = append(u.requests, r)
		return r
	}
	return u.requests[u.rng.IntN(len(u.requests))]
}

// take takes one of the requests away.
func (u *truncationUser) take() Request {
	r := u.request()
	for i := range u.requests {
		if u.requests[i] == r {
			u.requests = append(u.requests[:i], u.requests[i+1:]...)
			break
		}
	}
	return r
}

// operations are all that a Writer offers.
func (u *truncationUser) operations() map[string]func() error {
	w := u.w
	size := 100 + u.rng.IntN(6000)
	return map[string]func() error{
		"put":         func() error { return second(w.Put(u.key(), tensor(size, 1))) },
		"request.put": func() error { return second(u.request().Put(u.key(), tensor(size, 1), PutOptions{})) },
		"tenant": func() error {
			r, err := u.request().Reserve(u.key(), tensor(size, 1), u.tenant())
			if err != nil {
				return err
			}
			return u.ended(second(r.Commit()), r)
		},
		"lookup":         func() error { return second(w.Lookup(u.key())) },
		"request.lookup": func() error { return second(u.request().Lookup(u.key())) },
		"reserve, discard": func() error {
			r, err := u.request().Reserve(u.key(), layout(size), PutOptions{})
			if err == nil {
				r.SetCost(5)
				r.Discard()
			}
			return err
		},
		"reserve, commit": func() error {
			r, err := w.Reserve(u.key(), layout(size))
			if err != nil {
				return err
			}
			return u.ended(second(r.Commit()), r)
		},
		"stored": func() error {
			r := u.request()
			key := u.key()
			h, _, err := r.Keep(key)
			if err != nil {
				return err
			}
			if err := r.SetUses(h, 2); err != nil {
				return err
			}
			_, err = r.Stored(h)
			if r.Ended() { // another has reset the readers
				return nil
			}
			return err
		},
		"drop": func() error {
			r, key := u.request(), u.key()
			if _, _, err := r.Keep(key); err != nil {
				return err
			}
			r.Drop(key)
			return nil
		},
		"commit": func() error { return u.request().Commit() },
		"rollback": func() error {
			r := u.take()
			r.Rollback()
			r.Finish() // if it was sent
			return nil
		},
		"finish": func() error {
			r := u.take()
			err := r.Commit()
			r.Finish()
			return err
		},
		"abort": func() error {
			r := u.take()
			err := r.Commit()
			r.Abort()
			return err
		},
		"evict":  func() error { return second(w.Evict(u.key())) },
		"retire": func() error { w.Remove(u.key()); return nil },
		"touch":  func() error { return w.Touch(u.key()) },
		"release touches": func() error {
			w.ReleaseTouches()
			return nil
		},
		"free": func() error { return second(w.FreeUnused()) },
		"fence": func() error {
			u.fences = append(u.fences, w.Fence())
			if len(u.fences) > 2 {
				u.fences[0].Passed()
				u.fences = u.fences[1:]
			}
			return nil
		},
		"reset": func() error { return w.ResetReaders(1) },
		"clear": func() error {
			err := w.Clear()
			if errors.Is(err, ErrBusy) {
				return nil
			}
			return err
		},
		"state":     func() error { return second(w.State()) },
		"cached":    func() error { w.Cached(u.key()); w.Len(); return nil },
		"signature": func() error { return second(w.Signature(u.key())) },
	}
}

// ended discards a reservation that could not be committed.
func (u *truncationUser) ended(err error, r *Reservation) error {
	r.Discard()
	return err
}

func (u *truncationUser) tenant() PutOptions {
	if u.w.pool != nil {
		return PutOptions{Tenant: "bounded"}
	}
	return PutOptions{}
}

func (u *truncationUser) step() error {
	all := u.operations()
	for name, f := range all { // which one is first is random
		if name == "reset" && u.rng.IntN(10) > 0 || name == "clear" && u.rng.IntN(4) > 0 {
			continue
		}
		if err := u.judge(f()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	return nil
}

func (u *truncationUser) endAll() {
	for len(u.requests) > 0 {
		r := u.requests[0]
		u.requests = u.requests[1:]
		r.Rollback()
		r.Finish()
	}
}
