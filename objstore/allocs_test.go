package objstore

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
)

// TestAllocationsOfRequests: what a request with one object costs the garbage collector in a store that is full of
// objects of that size, from Begin to Finish: in a request that is begun again, and in a new one, which is one more.
func TestAllocationsOfRequests(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	most := map[kind]map[string]float64{
		// The record of the object; of Reserve the reservation, too.
		fifo: {"new": 1, "repeat": 0, "reserve": 2},
		// The record, and a reservation of the store of bytes.
		pool: {"new": 2, "repeat": 0, "reserve": 3},
	}
	full := qwen(4704)
	hollow := qwen(4704)
	for i := range hollow.Elems {
		hollow.Elems[i].Data.(*serde.Tensor).Data = nil
	}
	keys := make([]string, 2000)
	for i := range keys {
		keys[i] = jobKey(i)
	}
	for _, k := range kinds {
		s := newStoreOf(t, k, Options{RingSize: 256 << 10, MaxObjectSize: 16 << 10, Readers: 1, TrustCounts: true})
		next := 0
		jobs := map[string]func(r Request) (serde.Address, error){
			"new": func(r Request) (serde.Address, error) {
				next++
				return r.Put(keys[next], full, PutOptions{})
			},
			"repeat": func(r Request) (serde.Address, error) { return r.Lookup(keys[next]) },
			"reserve": func(r Request) (serde.Address, error) {
				next++
				res, err := r.Reserve(keys[next], hollow, PutOptions{})
				if err != nil {
					return serde.Address{}, err
				}
				return res.Commit()
			},
		}
		again, err := s.Begin("r")
		require.NoError(t, err)
		again.Rollback()
		run := func(job string, begin func() (Request, error)) {
			r, err := begin()
			if err != nil {
				t.Fatal(err)
			}
			h, err := jobs[job](r)
			if err != nil {
				t.Fatal(job, err)
			}
			if err := r.Commit(); err != nil {
				t.Fatal(err)
			}
			c, err := shmring.ReadChunk(s.Segment().Ring(), h.Address)
			if err != nil {
				t.Fatal(err)
			}
			mem.Store32(c.Payload, mem.Load32(c.Payload)+1) // a FIFO frees only what was read
			r.Finish()
		}
		for range 200 {
			run("new", func() (Request, error) { return s.Begin("r") })
		}
		for _, job := range []string{"new", "repeat", "reserve"} {
			require.LessOrEqual(t, testing.AllocsPerRun(300, func() {
				run(job, func() (Request, error) { return again, again.Begin("r") })
			}), most[k][job], "%s %s", k, job)
			require.LessOrEqual(t, testing.AllocsPerRun(300, func() {
				run(job, func() (Request, error) { return s.Begin("r") })
			}), most[k][job]+1, "%s %s in a new request", k, job)
		}
	}
}
