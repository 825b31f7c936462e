package linear_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/linear"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// TestHandlesAreLinearizable: whatever puts, removals and other readers do, a handle of FIFO and Pool leads
// to its value while its request lasts, and afterwards to that value or nowhere. What a FIFO has given up
// stays so; a Pool may find that a reader holds it (TestReaderThatComesDuringAnEvictionIsRefusedForThatMoment
// in shmstore).
func TestHandlesAreLinearizable(t *testing.T) {
	for name, pool := range map[string]bool{"fifo": false, "pool": true} {
		t.Run(name, func(t *testing.T) {
			system{name, []porcupine.Model{linear.Handles(linear.HandlesOptions{Revives: pool})},
				handles(pool, false)}.test(t)
		})
	}
	t.Run("planted: a read after the request counts as one during it", func(t *testing.T) {
		s := system{start: handles(true, true)}
		for range 100 {
			if linear.Check(linear.Handles(linear.HandlesOptions{Revives: true}), s.record(t, t.TempDir()),
				linear.Options{Dir: t.TempDir()}) != nil {
				return
			}
		}
		t.Fatal("not found")
	})
}

// kept is an object, and the request that keeps it.
type kept struct {
	key     string
	handle  serde.Address
	request objstore.Request // nil: it has ended
	read    bool             // a FIFO has no room behind an object that was not read
}

// handles starts a small store with a reader for each client. A client reads its own object while its request
// lasts, and objects of all clients at any time. early is a planted bug: requests end before their objects
// are read.
func handles(pool, early bool) func(*scope) (func(int) perform, func()) {
	return func(t *scope) (func(int) perform, func()) {
		o := objstore.Options{Name: fmt.Sprintf("s-%d", rand.Uint64()), Dir: t.dir, RingSize: 8 << 10, Readers: 1,
			MaxObjectSize: 1 << 10}
		create := func() (objstore.Store, error) { return objstore.CreateFIFO(o) }
		if pool {
			create = func() (objstore.Store, error) { return objstore.CreatePool(o) }
		}
		store, err := create()
		require.NoError(t, err)
		t.atEnd(func() { _ = store.Abandon() })
		var mu sync.Mutex
		var known []kept // of all clients
		var readers []mapped
		var ends []func()
		client := func(int) perform {
			r := here(t, objstore.ReaderOptions{Dir: t.dir, RingSize: o.RingSize, Readers: 1}, o.Name).(mapped)
			readers = append(readers, r)
			var own kept
			ends = append(ends, func() {
				if own.request != nil {
					own.request.Finish()
				}
			})
			return func(rng *rand.Rand, do func(any, func() (any, error)) error) error {
				if own.request == nil {
					k, err := keep(store)
					if err != nil && !errors.Is(err, objstore.ErrFull) {
						return err
					}
					if own = k; err == nil {
						mu.Lock()
						known = append(known, own)
						mu.Unlock()
						if early {
							own.request.Finish()
							store.Remove(own.key)
						}
					}
				}
				k, isOwn := own, own.request != nil && rng.IntN(2) == 0
				if !isOwn {
					mu.Lock()
					k = known[rng.IntN(len(known))]
					mu.Unlock()
				}
				err := do(linear.HandleCall{Handle: fmt.Sprint(k.handle), Kept: isOwn}, func() (any, error) {
					return readHandle(r, k)
				})
				own.read = own.read || isOwn
				if own.read && rng.IntN(4) == 0 {
					own.request.Finish()
					store.Remove(own.key)
					own = kept{}
				}
				return err
			}
		}
		return client, func() {
			for _, end := range ends {
				end()
			}
			require.NoError(t, store.CheckStructure())
			for _, r := range readers {
				require.NoError(t, r.Close())
			}
			require.NoError(t, store.Abandon())
			left, err := os.ReadDir(t.dir)
			require.NoError(t, err)
			require.Empty(t, left)
		}
	}
}

// keep puts an object, which its request keeps.
func keep(store objstore.Store) (kept, error) {
	req, err := store.Begin(requestID())
	if err != nil {
		return kept{}, err
	}
	v := values.Add(1)
	k := kept{key: fmt.Sprint("key ", v), request: req}
	data := make([]byte, 308)
	binary.LittleEndian.PutUint64(data[300:], v)
	if k.handle, err = req.Put(k.key, &serde.Tensor{DType: "uint8", Shape: []int{len(data)}, Data: data},
		objstore.PutOptions{}); err != nil {
		req.Rollback()
		return kept{}, err
	}
	return k, req.Commit()
}

// readHandle reads as a worker does: it counts first. What another request had may be gone.
func readHandle(r mapped, k kept) (any, error) {
	if err := r.Touch(context.Background(), k.key, k.handle); err != nil {
		return stale(err)
	}
	v, err := r.value(k.key, k.handle)
	if err != nil {
		return stale(err)
	}
	return linear.HandleResult{Value: v}, nil
}

func stale(err error) (any, error) {
	if errors.Is(err, objstore.ErrStale) {
		err = nil
	}
	return linear.HandleResult{}, err
}
