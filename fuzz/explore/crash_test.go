package explore_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/explore"
	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmstore"
)

// killedWriter declares a writer that replaces the idle object a by b and sends the handle of b. It
// may be killed before any load or store; then an adopter takes over, and wants the room for an object c.
// The reader looks at a, or, once it was sent, at b.
// If sendFirst is true, which is a planted bug, it sends the handle before it commits.
func killedWriter(readsB, sendFirst bool) func(r *explore.Run) {
	return func(r *explore.Run) {
		o := oneObject()
		s := must(shmstore.Create(o))
		req, a, err := put(nil, s, "a", 'a')
		must(a, err)
		h, want := a.Handle(), byte('a')
		req.Rollback()
		sent := false
		m := watch(r, o.Segment, sidecar.Of(o.Segment))
		adopting := false
		m.quiet = func(name string) bool { return ofOne(name) || adopting && strings.HasPrefix(name, "entry") }
		writer := r.Process("writer", func(p *explore.Process) {
			send := func(b *shmstore.Object) {
				p.Access("send the handle of b")
				sent = true
				if readsB {
					h, want = b.Handle(), 'b'
				}
			}
			req := must(s.Begin(shmstore.RequestOptions{ID: "of b"}))
			defer req.Rollback()
			res, err := req.Reserve("b", 64, shmstore.PutOptions{})
			if err != nil {
				return
			}
			if sendFirst {
				send(res.Object())
			}
			copy(res.Bytes(), bytes.Repeat([]byte{'b'}, 64))
			b := must(res.Commit(1))
			if err := req.Commit(); err != nil {
				panic(err)
			}
			if !sendFirst {
				send(b)
			}
		}).Killable()
		r.Process("adopter", func(p *explore.Process) {
			p.Wait(writer.Ended, "take the writer's lock")
			if !writer.Killed() {
				return
			}
			adopting = true
			store, found, err := shmstore.Adopt(o)
			if err != nil {
				p.Failf("adopting: %v", err)
			}
			if found.Dropped > 0 {
				p.Failf("dropped %d entries", found.Dropped)
			}
			r.Cleanup(func() { _ = store.Abandon() })
			if req, _, err := put(nil, store, "c", 'c'); err == nil {
				if sent {
					p.Failf("the room of b was used again, though a request of the dead writer still needs b")
				}
				req.Rollback()
			}
			if err := store.CheckStructure(); err != nil {
				p.Failf("%v", err)
			}
		})
		slot := must(sidecar.Of(o.Segment).TakeSlot(0))
		r.Process("reader", func(p *explore.Process) {
			if readsB {
				p.Wait(func() bool { return sent || writer.Ended() }, "receive a handle")
				if !sent {
					return
				}
			}
			if good := look(p, o.Segment.Bytes(), slot, int(h.Offset)-64, h.ID, want, true); readsB && !good {
				p.Failf("the handle of b was sent, and is stale")
			}
		})
	}
}

// ofOne reports whether a word concerns one process alone, or is of no use in these tests: they
// would take minutes with it.
func ofOne(name string) bool {
	return strings.HasPrefix(name, "sidecar") || strings.HasPrefix(name, "slot1") || name == "slot0.pid" ||
		name == "slot0.top" || strings.HasPrefix(name, "+4")
}

// TestWriterKilledAtEveryStep: whatever the writer was doing, an adopter goes on, no byte changes under
// a reader, and a handle that was sent stays good.
func TestWriterKilledAtEveryStep(t *testing.T) {
	failpoint.Need(t)
	for _, readsB := range []bool{false, true} {
		t.Run(fmt.Sprintf("reader of b %t", readsB), func(t *testing.T) {
			if !readsB && !*long {
				t.Skip("takes half a minute; ask for it with -long")
			}
			clean(t, explore.Explore(explore.Options{Crashes: 1}, killedWriter(readsB, false)))
		})
	}
	t.Run("planted: the handle is sent before the commit", func(t *testing.T) {
		found(t, explore.Explore(explore.Options{Crashes: 1}, killedWriter(true, true)), "assertion")
	})
}

// TestReaderKilledAtEveryStep: a reader that dies with a hold keeps nothing. Segment and sidecar
// are files here, with the locks of the kernel.
func TestReaderKilledAtEveryStep(t *testing.T) {
	failpoint.Need(t)
	n := 0
	dir := t.TempDir()
	program := func(r *explore.Run) {
		n++
		name := fmt.Sprint("s-", n)
		s := must(shmstore.Create(shmstore.Options{Name: name, Dir: dir, Size: 192, MaxObjects: 2, ReaderSlots: 2}))
		req, a, err := put(nil, s, "a", 'a')
		must(a, err)
		h := a.Handle()
		req.Rollback()
		side := must(sidecar.Open(dir, name))
		slot := must(side.TakeSlot(1))
		closed := false
		closeReader := func() {
			if !closed {
				closed = true
				_ = side.Close() // as the kernel does: the slot stays as it is, and its lock is free
			}
		}
		m := watch(r, s.Segment(), sidecar.Of(s.Segment()), side)
		m.quiet = func(name string) bool { return ofOne(name) || strings.HasPrefix(name, "entry") }
		reader := r.Process("reader", func(p *explore.Process) {
			look(p, s.Segment().Bytes(), slot, int(h.Offset)-64, h.ID, 'a', true)
		}).Killable()
		r.Process("writer", func(p *explore.Process) {
			put := func(key string) error {
				req, _, err := put(p, s, key, 'b')
				if err == nil {
					req.Rollback()
				}
				return err
			}
			first := put("b")
			p.Wait(reader.Ended, "see the reader end")
			if reader.Killed() {
				m.forget(side)
				closeReader()
			}
			if err := put("c"); err != nil {
				p.Failf("no reader is left, but there is no room: %v (before: %v)", err, first)
			}
		})
		r.AtEnd("structure", "the store is damaged", s.CheckStructure)
		r.Cleanup(func() {
			m.words = nil
			closeReader()
			_ = s.Abandon()
		})
	}
	res := explore.Explore(explore.Options{Crashes: 1}, program)
	clean(t, res)
	require.Greater(t, res.Orders, uint64(100))
}
