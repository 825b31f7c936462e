package shmstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmstore"
)

// A payload is kept by whoever has it, and its bytes are its own, whatever goroutines do.
func TestRandomRequests(t *testing.T) {
	s := private(t, shmstore.Options{Size: 64 << 10, MaxObjects: 40, Quotas: map[string]int64{"bounded": 16 << 10}, QuarantineTTL: -1})
	stop := make(chan struct{})
	var checker, workers sync.WaitGroup
	checker.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if !assert.NoError(t, s.CheckStructure()) {
				return
			}
			s.Fence().Passed()
			time.Sleep(time.Millisecond)
		}
	})
	var hits, puts, refused sync.Map
	for g := range 6 {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(7, uint64(g)))
			for i := range 500 {
				o := shmstore.RequestOptions{ID: fmt.Sprint(g, "/", i)}
				r, err := s.Begin(o)
				if !assert.NoError(t, err) {
					return
				}
				ended := rng.IntN(4) == 0 // by others too: what it has may go at any moment
				if ended {
					time.AfterFunc(time.Duration(rng.IntN(200))*time.Microsecond, func() { r.Rollback(); r.Abort() })
				}
				k := rng.IntN(60)
				key, n := fmt.Sprint(k), 1+k*150
				po := shmstore.PutOptions{}
				if rng.IntN(3) == 0 {
					po.Tenant = "bounded"
				}
				obj, err := r.Lookup(key, rng.IntN(3))
				if errors.Is(err, shmstore.ErrNotFound) {
					obj, err = r.Put(key, bytes.Repeat([]byte{byte(k)}, n), po)
					puts.Store(g, true)
				} else {
					hits.Store(g, true)
				}
				switch {
				case err == nil && !ended:
					b, err := r.Bytes(obj)
					assert.NoError(t, err)
					assert.True(t, bytes.Equal(b, bytes.Repeat([]byte{byte(k)}, n)), "key %s has another's bytes", key)
				case err == nil:
				case errors.Is(err, shmring.ErrFull):
					refused.Store(g, true)
				default:
					assert.True(t, errors.Is(err, shmstore.ErrEnded) || errors.Is(err, shmstore.ErrKeyExists) || errors.Is(err, shmring.ErrTooLarge), "%v", err)
				}
				switch rng.IntN(4) {
				case 0:
					r.Rollback()
				case 1:
					_ = r.Commit()
					r.Abort()
				case 2:
					r.Drop(key)
					fallthrough
				default:
					_ = r.Commit()
					r.Finish()
				}
				r.Finish() // also if another has ended it
				r.Rollback()
			}
		})
	}
	workers.Wait()
	close(stop)
	checker.Wait()
	for _, m := range []*sync.Map{&hits, &puts, &refused} {
		n := 0
		m.Range(func(any, any) bool { n++; return true })
		require.NotZero(t, n)
	}
	s.Fence().Passed()
	_, err := s.Evict()
	require.NoError(t, err)
	require.Zero(t, chunks(t, s), "something stays though every request has ended")
	st, err := s.Stats()
	require.NoError(t, err)
	require.Zero(t, st.Leases+st.Requests+st.Waiting)
}
