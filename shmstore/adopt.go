package shmstore

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
)

// Adoption is what Adopt found.
type Adoption struct {
	Kept    int // objects that are there as before
	Dropped int // entries whose mark, checksum, chunk or key could not be right
	// InUse of the kept ones were needed by a request of the dead writer; they
	// are in quarantine.
	InUse int
	// Damaged of the kept ones had a damaged use word, so that nobody can tell who needs
	// them: they count as InUse, and have lost their keys.
	Damaged int
	Clean   bool // the last writer detached, and was not killed
	Epoch   uint64
}

// Adopt takes over a segment whose writer was killed, or detached. Objects stay, with
// keys and notes; handles that are under way stay good and readers go on; ids go on
// behind all that were given out. What a request of the dead writer may still need is in
// quarantine until a [Fence] passes or the readers are reset. If the readers go on, they
// may still serve that writer's requests: let them end or abort them, and take the fence
// then.
//
// Where an entry of the sidecar and the bytes of its object don't agree, it is
// dropped, and no handle leads there any more. If a request of the dead writer still
// needs the object, its reader fails: where Adoption.Dropped is not 0, restart the
// readers unless they have no request.
//
// The options must be the segment's: Name, Size, DataOffset, Align, Format; MaxObjects
// and ReaderSlots are taken from it. Readers may differ if the readers were restarted
// too: call ResetReaders then. The store owns the segment, as if it had created it, unless the
// segment is Options.Segment, which the caller adopted, or whose writer ended without closing it.
// Errors are those of segment.Adopt, and fs.ErrInvalid for a segment of another format.
//
// The sidecar keeps the version with which it was made (docs/format.md), so that the release
// that made it can go on with the segment.
//
// If Adopt itself is killed, the next one begins again.
func Adopt(o Options) (*Store, Adoption, error) {
	if err := o.validate(); err != nil {
		return nil, Adoption{}, err
	}
	if o.Segment != nil {
		return adoptIn(o.Segment, o)
	}
	seg, err := segment.Adopt(o.segment())
	if err != nil {
		return nil, Adoption{}, err
	}
	s, a, err := adoptIn(seg, o)
	if err != nil {
		if e := seg.Close(); e != nil {
			err = fmt.Errorf("%w (and %w)", err, e)
		}
		return nil, a, fmt.Errorf("adopting %s: %w", o.Name, err)
	}
	s.owns = true
	return s, a, nil
}

// adoptIn makes a store of what is in a segment.
func adoptIn(seg *segment.Segment, o Options) (*Store, Adoption, error) {
	if err := o.fits(seg); err != nil {
		return nil, Adoption{}, err
	}
	if seg.Sidecar() == nil {
		return nil, Adoption{}, fmt.Errorf("%w: %s has no sidecar, so nothing is known of its objects", segment.ErrForeign, seg.Name())
	}
	c := seg.Sidecar().Options()
	if err := o.accept(c.Generation); err != nil {
		return nil, Adoption{}, err
	}
	if c.Policy != sidecar.Pool {
		return nil, Adoption{}, fmt.Errorf("%w: its policy is %v, which has no table of objects; remove it with segment.Sweep", errInvalid, c.Policy)
	}
	s := newStore(seg, o)
	var a Adoption
	err := s.guard(func() error { a = s.restore(); return nil })
	return s, a, err
}

// restore rebuilds what the dead writer knew from the sidecar.
func (s *Store) restore() (a Adoption) {
	state := s.sidecar.State()
	a.Clean = state.Clean && !state.Damaged
	if state.Damaged {
		// The state may be the one before the last: go behind all ids, and the epoch,
		// that the last one can have had.
		state.NextID = (state.NextID + idBlock + 2*uint32(s.sidecar.Options().Objects)) % shmring.IDLimit
		state.Epoch++
	}
	failpoint.Hit("adopt.begin")
	type found struct {
		o     *Object
		use   uint64
		useOK bool
	}
	byID := map[uint32]found{}
	var placed []shmring.Chunk
	var bad []int
	for i, r := range s.sidecar.Records() {
		if _, twice := byID[r.ID]; r.Damaged || twice {
			bad = append(bad, i)
			continue
		}
		f := found{o: s.newObject()}
		f.o.chunk, f.o.entry = r, int32(i)
		f.use, f.useOK = s.sidecar.Use(i)
		byID[r.ID] = f
		if !idBefore(r.ID, state.NextID) { // a state record was damaged
			state.NextID = (r.ID + 1) % shmring.IDLimit
		}
		placed = append(placed, shmring.Chunk{Address: r.Address, ID: r.ID, Size: r.Size})
	}
	kept, reserved := s.restorePool(placed, &state)

	// With all cores: it takes reading what the checksums cover.
	verified := make([]bool, len(kept))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(kept)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(kept); i = int(next.Add(1)) - 1 {
				err := s.guard(func() error {
					return byID[kept[i].ID].o.verify(s.seg.Ring(), s.sidecar.Layout(), s.opt.Payloads == nil)
				})
				verified[i] = err == nil
			}
		})
	}
	workers.Wait()
	failpoint.Hit("adopt.verified")

	// Before anything is changed: if this one is killed too, the segment is not clean.
	state.Epoch++
	state.Clean, state.PID, state.Readers = false, os.Getpid(), s.readers
	s.sidecar.SetState(state)
	a.Epoch, s.markedIDs = state.Epoch, state.NextID
	failpoint.Hit("adopt.state")

	// Before looking who holds them: a reader that comes later finds no id.
	for i, k := range kept {
		if !verified[i] {
			s.pool.Kill(k.ID)
		}
	}
	held, dead := s.sidecar.Held()
	s.counts.dead += dead
	byKey := map[string]*Object{}
	for i, k := range kept {
		f := byID[k.ID]
		o := f.o
		if !f.useOK {
			f.use = useBusy | useRetired | math.MaxUint32 // the most cautious
		}
		o.state = committed
		if f.use&useRetired != 0 {
			o.state = retired
		}
		_, looked := held[o.chunk.ID]
		switch {
		case verified[i]:
			s.pool.Publish(o.chunk.ID) // the id may be away, if the writer was killed while it evicted
		case looked:
			// A reader looks at it, whatever it is. It goes when nobody does.
			o.state = retired
			f.use &^= useBusy
		default:
			s.pool.Free(o.chunk.ID)
			continue
		}
		if twin := byKey[o.key]; o.state == committed && twin != nil {
			// Killed between the commit of a new one and the end of the old one.
			older := o
			if idBefore(twin.chunk.ID, o.chunk.ID) {
				older = twin
			}
			older.state = retired
		}
		delete(byID, k.ID)
		if o.state == committed {
			byKey[o.key] = o
		}
		s.pool.Own(o.chunk.ID, o)
		s.locate(o)
		s.account(o)
		inUse := f.use&useBusy != 0
		s.owner.Restore(o, uint32(f.use), inUse)
		if inUse {
			a.InUse++
			s.quarantine(o)
		}
		if !f.useOK {
			a.Damaged++
		}
		a.Kept++
	}
	for key, o := range byKey {
		s.index[key] = o
		s.value(o)
		s.watch(o, true)
	}
	s.restoreReserved(reserved)
	s.reunite()
	for _, f := range byID {
		bad = append(bad, int(f.o.entry))
	}
	if len(bad) > 0 || !a.Clean && !s.opt.NoHandles || s.sidecar.Layout() == 1 {
		// Headers may stand there of which nothing is known any more.
		s.pool.Scrub()
	}
	failpoint.Hit("adopt.dropping")
	for _, i := range bad {
		s.sidecar.Drop(i)
	}
	a.Dropped = len(bad)
	for o := range s.all() {
		s.update(o) // retired ones that nobody needs go
	}
	failpoint.Hit("adopt.end")
	return a
}

// idBefore reports whether the id a was given out before b. Ids start over after 2^31, so a
// is the older one if counting up from a reaches b sooner than the other way round.
func idBefore(a, b uint32) bool { return (b-a)%shmring.IDLimit-1 < shmring.IDLimit/2 }
