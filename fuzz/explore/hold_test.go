package explore_test

import (
	"bytes"
	"flag"
	"fmt"
	"testing"

	"github.com/ringcache/ringcache/fuzz/explore"
	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

var long = flag.Bool("long", false, "explore also what takes more than a few seconds under the race detector")

// must is for calls that fail only if the test itself is wrong: in a process, a panic is
// reported with the order that led to it.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// oneObject returns options for a store with room for one object of 64 bytes, over private
// memory with a sidecar.
func oneObject() shmstore.Options {
	o := shmstore.Options{Size: 192, MaxObjects: 2, ReaderSlots: 2}
	o.Segment = must(segment.Private(nil, segment.Options{RingSize: o.Size,
		Sidecar: &segment.SidecarOptions{Pool: true, Objects: o.MaxObjects, Slots: o.ReaderSlots}}))
	return o
}

// put puts 64 bytes under a key, in two steps, and returns the request.
func put(p *explore.Process, s *shmstore.Store, key string, b byte) (*shmstore.Request, *shmstore.Object, error) {
	req := must(s.Begin(shmstore.RequestOptions{ID: "of " + key}))
	res, err := req.Reserve(key, 64, shmstore.PutOptions{})
	if err != nil {
		req.Rollback()
		return nil, nil, err
	}
	for half := range 2 {
		if p != nil {
			p.Access(fmt.Sprintf("fill half %d with %q", half, string(b)))
		}
		copy(res.Bytes()[half*32:], bytes.Repeat([]byte{b}, 32))
	}
	o, err := res.Commit(1)
	return req, o, err
}

// evictUnderReaders declares a store with an idle object a, a writer that replaces a by b, and
// readers with handles of a. All of it is the real code but for look.
func evictUnderReaders(readers int, secondLook bool) func(r *explore.Run) {
	return func(r *explore.Run) {
		o := oneObject()
		s := must(shmstore.Create(o))
		r.Cleanup(func() { _ = s.Abandon() })
		req, a, err := put(nil, s, "a", 'a')
		must(a, err)
		h := a.Handle()
		req.Rollback()
		watch(r, o.Segment, sidecar.Of(o.Segment))
		r.Process("writer", func(p *explore.Process) {
			req, _, err := put(p, s, "b", 'b')
			if err == nil {
				req.Rollback()
			}
		})
		for i := range readers {
			slot := must(sidecar.Of(o.Segment).TakeSlot(i))
			r.Process(fmt.Sprintf("reader %c", 'A'+i), func(p *explore.Process) {
				look(p, o.Segment.Bytes(), slot, int(h.Offset)-64, h.ID, 'a', secondLook)
			})
		}
		r.AtEnd("structure", "the store is damaged", s.CheckStructure)
		r.AtEnd("one-object", "either a was held and stayed, or it went and b is there", func() error {
			_, errA := s.Find("a")
			_, errB := s.Find("b")
			if (errA == nil) == (errB == nil) {
				return fmt.Errorf("a: %v, b: %v", errA, errB)
			}
			return nil
		})
	}
}

// TestHoldProtocol: whatever the order of the words that the writer's Put and a reader's Hold
// load and store, no payload changes under a reader that found the id after its hold.
func TestHoldProtocol(t *testing.T) {
	failpoint.Need(t)
	clean(t, explore.Explore(explore.Options{}, evictUnderReaders(1, true)))
	t.Run("planted: no second look", func(t *testing.T) {
		found(t, explore.Explore(explore.Options{}, evictUnderReaders(1, false)), "assertion")
	})
}

// TestHoldProtocolOfTwoReaders is the same with two readers, 102,627 executions.
func TestHoldProtocolOfTwoReaders(t *testing.T) {
	failpoint.Need(t)
	if !*long {
		t.Skip("takes more than a minute; ask for it with -long")
	}
	clean(t, explore.Explore(explore.Options{}, evictUnderReaders(2, true)))
}

// evictor is the way of shmstore's evict, made of the same parts: take the id away, look who holds
// the chunk, use it again or give the id back. lookFirst is a planted bug.
func evictor(readers int, lookFirst bool) func(r *explore.Run) {
	return func(r *explore.Run) {
		o := oneObject()
		side := sidecar.Of(o.Segment)
		pool := shmring.NewPool(o.Segment.Ring(), shmring.PoolOptions{})
		address, id, payload, err := pool.Alloc(120)
		must(address, err)
		fill := func(b byte) { copy(payload[56:], bytes.Repeat([]byte{b}, 64)) }
		fill('a')
		pool.Publish(id)
		watch(r, o.Segment, side)
		r.Process("writer", func(p *explore.Process) {
			var held map[uint32]struct{}
			if lookFirst {
				held, _ = side.Held()
			}
			pool.Kill(id)
			if !lookFirst {
				held, _ = side.Held()
			}
			if _, ok := held[id]; ok {
				pool.Publish(id)
				return
			}
			pool.Release(id)
			p.Access("fill the chunk with b")
			fill('b')
		})
		for i := range readers {
			slot := must(side.TakeSlot(i))
			r.Process(fmt.Sprintf("reader %c", 'A'+i), func(p *explore.Process) {
				look(p, o.Segment.Bytes(), slot, int(address), id, 'a', true)
			})
		}
	}
}

// TestEvictor has one reader, with -long also two.
func TestEvictor(t *testing.T) {
	failpoint.Need(t)
	clean(t, explore.Explore(explore.Options{}, evictor(1, false)))
	if *long {
		clean(t, explore.Explore(explore.Options{}, evictor(2, false)))
	}
	t.Run("planted: the slots are read before the id is removed", func(t *testing.T) {
		found(t, explore.Explore(explore.Options{}, evictor(1, true)), "assertion")
	})
}
