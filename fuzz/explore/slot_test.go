package explore_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/explore"
	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmstore"
)

// comingReader declares a reader that takes a slot, looks at the object a and gives the slot back, a second
// one that does the same with the first one's slot when that one ended, and a writer that wants the room of a
// all the time. The first reader may be killed before any load or store. Segment and sidecar are files, with
// the locks of the kernel. With unmarked, which is a planted bug, a reader clears its mark as soon as it has
// it.
func comingReader(dir string, second, unmarked bool) func(r *explore.Run) {
	n := 0
	return func(r *explore.Run) {
		n++
		name := fmt.Sprintf("s-%t-%t-%d", second, unmarked, n)
		s := must(shmstore.Create(shmstore.Options{Name: name, Dir: dir, Size: 192, MaxObjects: 2, ReaderSlots: 1}))
		req, a, err := put(nil, s, "a", 'a')
		must(a, err)
		h := a.Handle()
		req.Rollback()
		var sides []*sidecar.File
		for range 2 {
			sides = append(sides, must(sidecar.Open(dir, name)))
		}
		m := watch(r, s.Segment(), append(sides, sidecar.Of(s.Segment()))...)
		m.quiet = func(name string) bool { return ofOne(name) || strings.HasPrefix(name, "entry") }
		closed := map[*sidecar.File]bool{}
		end := func(f *sidecar.File) { // as the kernel does: the slot stays as it is, and its lock is free
			if !closed[f] {
				closed[f] = true
				m.forget(f)
				_ = f.Close()
			}
		}
		read := func(p *explore.Process, f *sidecar.File) {
			slot, err := f.TakeSlot(1)
			if err != nil { // the writer has the lock while it clears the slot
				return
			}
			if unmarked {
				clearMark(f)
			}
			look(p, s.Segment().Bytes(), slot, int(h.Offset)-64, h.ID, 'a', true)
			if err := slot.Close(); err != nil {
				p.Failf("%v", err)
			}
		}
		first := r.Process("first reader", func(p *explore.Process) { read(p, sides[0]) }).Killable()
		last := first
		if second {
			last = r.Process("second reader", func(p *explore.Process) {
				p.Wait(first.Ended, "see the first one end")
				end(sides[0])
				read(p, sides[1])
			})
		}
		r.Process("writer", func(p *explore.Process) {
			put := func(key string) error {
				req, _, err := put(p, s, key, 'b')
				if err == nil {
					req.Rollback()
				}
				return err
			}
			before := put("b")
			p.Wait(func() bool { return last.Ended() }, "see the readers end")
			end(sides[0])
			if err := put("c"); err != nil {
				p.Failf("no reader is left, but there is no room: %v (before: %v)", err, before)
			}
			side := sidecar.Of(s.Segment())
			side.Reap()
			if taken, dead, bad := side.LookAtSlots(); taken+dead != 0 || len(bad) > 0 {
				p.Failf("no reader is left, but %d slots are in use: %v", taken+dead, bad)
			}
		})
		r.AtEnd("structure", "the store is damaged", s.CheckStructure)
		r.Cleanup(func() {
			m.words = nil
			for _, f := range sides {
				end(f)
			}
			_ = s.Abandon()
		})
	}
}

// clearMark clears the mark of slot 0 (docs/format.md, Sidecar).
func clearMark(f *sidecar.File) {
	file := must(os.OpenFile(f.Path(), os.O_WRONLY, 0))
	must(file.WriteAt([]byte{0}, 4096))
	must(0, file.Close())
}

// TestReaderComesAndGoesAtEveryStep: a reader is protected from its first hold on, whichever reader had its
// slot before, and wherever it is killed, nothing of it is left.
func TestReaderComesAndGoesAtEveryStep(t *testing.T) {
	failpoint.Need(t)
	for _, second := range []bool{false, true} {
		t.Run(fmt.Sprintf("two readers %t", second), func(t *testing.T) {
			if second && !*long {
				t.Skip("370,184 orders take a minute; ask for them with -long")
			}
			res := explore.Explore(explore.Options{Crashes: 1}, comingReader(t.TempDir(), second, false))
			clean(t, res)
			require.Greater(t, res.Orders, uint64(100))
		})
	}
	t.Run("planted: a slot without its mark", func(t *testing.T) {
		found(t, explore.Explore(explore.Options{}, comingReader(t.TempDir(), false, true)), "assertion")
	})
}
