package shmstore

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/payload"
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
// See docs/decisions.md, "An adopter scrubs free room unless the end was clean".
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
	if sidecar.Of(seg) == nil {
		return nil, Adoption{}, fmt.Errorf("%w: %s has no sidecar, so nothing is known of its objects", segment.ErrForeign, seg.Name())
	}
	c := sidecar.Of(seg).Options()
	if err := o.accept(c.Generation); err != nil {
		return nil, Adoption{}, err
	}
	if c.Policy != sidecar.Pool {
		return nil, Adoption{}, fmt.Errorf("%w: its policy is %v, which has no table of objects; remove it with segment.Sweep", errInvalid, c.Policy)
	}
	s := newStore(seg, o)
	a := adopter{durability: &s.durability, space: &s.space, lifetime: &s.lifetime, found: map[uint32]*found{}}
	err := s.durability.guard(func() error { a.adopt(o.Reserved); return nil })
	if err != nil {
		return nil, Adoption{}, err
	}
	return s, a.report, nil
}

// adopter rebuilds what the dead writer knew from the sidecar, in this order:
//
//  1. read takes every entry of the table, and placeChunks has the allocator take their chunks over;
//  2. verify compares payloads with their checksums;
//  3. begin writes the state record of this writer. Nothing was changed before, so an adopter that is
//     killed up to here leaves the segment as it was, and one that is killed later leaves it unclean;
//  4. keep makes objects of what is right, and index gives them their keys. Damaged chunks lose their ids
//     first, so that a reader that comes later finds nothing;
//  5. reservations and families;
//  6. finish takes the ids out of all room that is free, if headers may stand there, drops the other
//     entries, and frees what is retired.
//
// Each change of shared memory makes the segment only more like what the next adopter would keep.
type adopter struct {
	durability *durability
	space      *space
	lifetime   *lifetime

	state sidecar.State     // of the dead writer, and then of this one
	found map[uint32]*found // by id; of entries that were not kept yet
	bad   []int             // entries that can't be right

	report Adoption
}

// found is an entry of the table.
type found struct {
	o        *Object
	use      uint64
	useOK    bool // the use word has the right check
	verified bool // the payload has the right checksum
}

func (a *adopter) adopt(reservations []ReservedChunk) {
	placed := a.read()
	failpoint.Hit("adopt.begin")
	kept, reserved := a.placeChunks(placed, reservations)
	a.verify(kept)
	failpoint.Hit("adopt.verified")
	a.begin()
	failpoint.Hit("adopt.state")
	a.index(a.keep(kept))
	a.restoreReserved(reserved)
	a.space.families.rebuild(a.space.all())
	a.finish()
	failpoint.Hit("adopt.end")
}

// read takes the state and every entry, and returns the chunks of the entries that may be right.
func (a *adopter) read() (placed []shmring.Chunk) {
	file := a.durability.sidecar
	a.state = file.State()
	a.report.Clean = a.state.Clean && !a.state.Damaged
	if a.state.Damaged {
		// The state may be the one before the last: go behind all ids, and the epoch,
		// that the last one can have had.
		a.state.NextID = (a.state.NextID + idBlock + 2*uint32(file.Options().Objects)) % shmring.IDLimit
		a.state.Epoch++
	}
	for i, r := range file.Records() {
		if a.found[r.ID] != nil || r.Damaged {
			a.bad = append(a.bad, i)
			continue
		}
		f := &found{o: a.lifetime.newObject()}
		f.o.setRecord(r)
		f.o.entry = int32(i)
		f.use, f.useOK = file.Use(i)
		a.found[r.ID] = f
		a.passID(r.ID)
		placed = append(placed, shmring.Chunk{Address: r.Address, ID: r.ID, Size: r.Size})
	}
	return placed
}

// passID moves the next id behind one that was given out, which it is not if a state record was damaged.
func (a *adopter) passID(id uint32) {
	if !idBefore(id, a.state.NextID) {
		a.state.NextID = (id + 1) % shmring.IDLimit
	}
}

// verify compares payloads with their checksums, on all cores: it takes reading what the checksums cover.
func (a *adopter) verify(kept []shmring.Chunk) {
	d := a.durability
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(kept)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(kept); i = int(next.Add(1)) - 1 {
				f := a.found[kept[i].ID]
				err := d.guard(func() error {
					text, err := payload.Verify(d.seg.Ring(), f.o.record(), d.plain)
					f.o.setDescription(text, a.space.families.parentOf != nil)
					return err
				})
				f.verified = err == nil
			}
		})
	}
	workers.Wait()
}

// begin writes down that this process is the writer.
func (a *adopter) begin() {
	a.state.Epoch++
	a.state.Clean, a.state.PID, a.state.Readers = false, os.Getpid(), a.lifetime.readers
	a.durability.sidecar.SetState(a.state)
	a.report.Epoch, a.durability.markedIDs = a.state.Epoch, a.state.NextID
}

// keep makes objects of the entries that are right, and of those that a reader looks at, and returns the
// committed ones by key.
func (a *adopter) keep(kept []shmring.Chunk) map[string]*Object {
	// Before looking who holds them: a reader that comes later finds no id.
	for _, k := range kept {
		if !a.found[k.ID].verified {
			a.space.pool.Kill(k.ID)
		}
	}
	held := a.durability.held()
	byKey := map[string]*Object{}
	for _, k := range kept {
		f := a.found[k.ID]
		o := f.o
		if !f.useOK {
			f.use = useBusy | useRetired | math.MaxUint32 // the most cautious
		}
		o.state = committed
		if f.use&useRetired != 0 {
			o.state = retired
		}
		_, looked := held[k.ID]
		switch {
		case f.verified:
			a.durability.show(k.ID) // the writer may have been killed while it evicted
		case looked:
			// A reader looks at it, whatever it is. It goes when nobody does.
			o.state = retired
			f.use &^= useBusy
		default:
			a.space.pool.Free(k.ID)
			continue
		}
		if duplicate := byKey[o.Key()]; o.state == committed && duplicate != nil {
			// Killed between the commit of a new one and the end of the old one.
			older := o
			if idBefore(duplicate.chunk.id, o.chunk.id) {
				older = duplicate
			}
			older.state = retired
		}
		delete(a.found, k.ID)
		if o.state == committed {
			byKey[o.Key()] = o
		}
		a.space.own(o)
		inUse := f.use&useBusy != 0
		a.lifetime.restore(o, uint32(f.use), inUse)
		if inUse {
			a.report.InUse++
		}
		if !f.useOK {
			a.report.Damaged++
		}
		a.report.Kept++
	}
	return byKey
}

// index makes keys mean their objects.
func (a *adopter) index(byKey map[string]*Object) {
	for key, o := range byKey {
		a.lifetime.index.add(o)
		a.space.published(o, key)
		a.lifetime.notify(o, true)
	}
}

// finish makes sure that no handle leads to what was not kept.
func (a *adopter) finish() {
	d := a.durability
	for _, f := range a.found {
		a.bad = append(a.bad, int(f.o.entry))
	}
	if len(a.bad) > 0 || !a.report.Clean && !d.noHandles {
		// Headers may stand there of which nothing is known any more.
		a.space.pool.Scrub()
	}
	failpoint.Hit("adopt.dropping")
	for _, i := range a.bad {
		d.sidecar.Drop(i)
	}
	a.report.Dropped = len(a.bad)
	for o := range a.space.all() {
		a.lifetime.update(o) // retired ones that nobody needs go
	}
}

// idBefore reports whether the id a was given out before b. Ids start over after 2^31, so a
// is the older one if counting up from a reaches b sooner than the other way round.
func idBefore(a, b uint32) bool { return (b-a)%shmring.IDLimit-1 < shmring.IDLimit/2 }
