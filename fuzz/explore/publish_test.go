package explore_test

import (
	"bytes"
	"testing"

	"github.com/ringcache/ringcache/fuzz/explore"
	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmstore"
)

// scanned declares a writer and a reader that has no handle: it looks at a place in the
// segment, and reads the chunk if it finds an id there.
func scanned(write func(p *explore.Process, o shmstore.Options)) func(r *explore.Run) {
	return func(r *explore.Run) {
		o := oneObject()
		side := sidecar.Of(o.Segment)
		slot := must(side.TakeSlot(0))
		m := watch(r, o.Segment, side)
		m.quiet = ofOne
		r.Process("writer", func(p *explore.Process) { write(p, o) })
		r.Process("scanner", func(p *explore.Process) {
			c, err := shmring.ReadChunk(o.Segment.Bytes(), 0)
			if err != nil || c.ID >= shmring.IDLimit {
				return
			}
			look(p, o.Segment.Bytes(), slot, 0, c.ID, 'b', true)
		})
	}
}

// TestPublishedLast: a reader that finds an id finds the whole payload behind it.
func TestPublishedLast(t *testing.T) {
	failpoint.Need(t)
	clean(t, explore.Explore(explore.Options{}, scanned(func(p *explore.Process, o shmstore.Options) {
		s := must(shmstore.Create(o))
		req, _, err := put(p, s, "b", 'b')
		must(req, err)
		req.Rollback()
	})))
	parts := func(idFirst bool) func(p *explore.Process, o shmstore.Options) {
		return func(p *explore.Process, o shmstore.Options) {
			pool := shmring.NewPool(o.Segment.Ring(), shmring.PoolOptions{FirstID: 7})
			_, id, payload, err := pool.Alloc(120)
			must(id, err)
			if idFirst {
				pool.Publish(id)
			}
			for half := range 2 {
				p.Access("fill")
				copy(payload[56+half*32:], bytes.Repeat([]byte{'b'}, 32))
			}
			if !idFirst {
				pool.Publish(id)
			}
		}
	}
	clean(t, explore.Explore(explore.Options{}, scanned(parts(false))))
	t.Run("planted: the id is stored before the payload", func(t *testing.T) {
		found(t, explore.Explore(explore.Options{}, scanned(parts(true))), "assertion")
	})
}
