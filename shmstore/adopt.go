package objstore

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/shmring"
)

// Adoption says what Adopt found.
type Adoption struct {
	Kept    int // objects that are there as before
	Dropped int // entries whose mark, checksum, chunk or key could not be right
	// InUse of the kept ones were needed by a request of the dead writer; they
	// are in quarantine.
	InUse int
	// Damaged of the kept ones had a damaged use word, so that nobody knows who needs
	// them: they count as InUse, and have lost their keys.
	Damaged int
	Clean   bool // the last writer detached, and was not killed
	Epoch   uint64
}

// Adopt takes over a segment of the policy Pool whose writer was killed, or
// detached. Objects stay, with keys and notes; the secret stays, so handles that
// are under way stay good and workers go on reading; ids go on behind all that were
// given out. What a request of the dead writer may still need is in quarantine until a
// [Fence] passes or the readers are reset. If the engine goes on, it may still run that
// writer's requests: let them end or abort them, and take the fence then.
//
// Where an entry of the sidecar and the bytes of its object don't agree, it is
// dropped, and no handle leads there any more. If a request of the dead writer still
// needs the object, its worker will fail: where Adoption.Dropped is not 0, restart the
// engine unless it has no request.
//
// The options must be the segment's: name, RingSize, Generation; MaxObjects and
// ReaderSlots are taken from it. Readers may differ if the engine was restarted
// too: call ResetReaders then. The writer owns the segment, as if it had created
// it. Errors are those of shmring.Adopt, and [ErrInvalid] for a segment of the
// policy FIFO, which has no table of objects.
//
// If Adopt itself is killed, the next one begins again.
func Adopt(o Options) (*Writer, Adoption, error) {
	o.Policy = Pool
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return nil, Adoption{}, err
	}
	if o.Name == "" {
		o.Name = o.Generation.SegmentName()
	}
	so := o.segment()
	so.Control = nil
	seg, err := shmring.Adopt(so)
	if err != nil {
		return nil, Adoption{}, err
	}
	w, a, err := adopt(seg, o)
	if err != nil {
		return nil, a, fmt.Errorf("adopting %s: %w", o.Name, joinClose(err, seg))
	}
	w.own = true
	return w, a, nil
}

func joinClose(err error, seg *shmring.Segment) error {
	if e := seg.Close(); e != nil {
		return fmt.Errorf("%w (and %w)", err, e)
	}
	return err
}

// adopt makes a writer of what is in a segment that has a sidecar.
func adopt(seg *shmring.Segment, o Options) (*Writer, Adoption, error) {
	c := seg.Control()
	co := c.Options()
	if g := o.Generation.OrNewest(); !sameWire(co.Generation, g) {
		return nil, Adoption{}, fmt.Errorf("%w: it was written for vLLM %s, not %s; adopt it with that generation, or remove it (ringcache sweep NAME --any-owner --remove) and create it anew", ErrInvalid, co.Generation, g.Version)
	}
	if co.Policy != Pool {
		return nil, Adoption{}, fmt.Errorf("%w: its policy is %v, which has no table of objects; remove it with shmring.Sweep", ErrInvalid, co.Policy)
	}
	w := newWriter(seg, o)
	p := w.life.(*pool)
	var a Adoption
	err := w.sv.guard(Handle{}, func() error { a = p.restore(); return nil })
	return w, a, err
}

// sameWire says whether a segment written for a version is read by engines of g.
func sameWire(version string, g pycompat.Generation) bool {
	old, err := pycompat.Lookup(version)
	return version == g.Version || err == nil && old.SameWire(g)
}

// restore rebuilds what the dead writer knew from the sidecar.
func (p *pool) restore() (a Adoption) {
	s := p.ctl.State()
	a.Clean = s.Clean && p.ctl.Whole()
	if !p.ctl.Whole() {
		// The state may be the one before the last: go behind all ids, and the epoch,
		// that the last one can have had.
		s.NextID = (s.NextID + idBlock + 2*uint32(p.ctl.Options().Objects)) % shmring.IDLimit
		s.Epoch++
	}
	failpoint.Hit("adopt.begin")
	type found struct {
		o     *object
		use   uint64
		useOK bool
	}
	byID := map[uint32]found{}
	var placed []shmring.Placed
	var bad []int
	for i, r := range p.ctl.Records() {
		if _, twice := byID[r.ID]; !r.OK || twice {
			bad = append(bad, i)
			continue
		}
		f := found{o: &object{
			address: r.Address, id: r.ID, size: r.Size, entry: i,
			noteOffset: r.NoteOffset, noteLen: r.NoteLen, sum: r.Sum, fullSum: r.Full,
		}}
		f.use, f.useOK = p.ctl.Use(i)
		byID[r.ID] = f
		if !shmring.IDBefore(r.ID, s.NextID) { // a state record was damaged
			s.NextID = (r.ID + 1) % shmring.IDLimit
		}
		placed = append(placed, shmring.Placed{Address: r.Address, ID: r.ID, Size: r.Size})
	}
	p.mem.SkipTo(s.NextID)
	kept := p.mem.Restore(placed)

	// With all cores: it takes reading what the checksums cover.
	verified := make([]bool, len(kept))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(kept)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(kept); i = int(next.Add(1)) - 1 {
				err := p.w.sv.guard(Handle{}, func() error { return p.verify(byID[kept[i].ID].o) })
				verified[i] = err == nil
			}
		})
	}
	workers.Wait()
	failpoint.Hit("adopt.verified")

	// Before anything is changed: if this one is killed too, the segment is not clean.
	s.Epoch++
	s.Clean, s.PID, s.Readers = false, os.Getpid(), p.w.readers
	p.ctl.SetState(s)
	a.Epoch, p.ids = s.Epoch, s.NextID
	failpoint.Hit("adopt.state")

	// Before looking who holds them: a reader that comes later finds no id.
	for i, k := range kept {
		if !verified[i] {
			p.mem.Kill(k.ID)
		}
	}
	held, dead := p.ctl.Held()
	p.dead += dead
	byKey := map[string]*object{}
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
		_, looked := held[o.id]
		switch {
		case verified[i]:
			p.mem.Publish(o.id) // the id may be away, if the writer was killed while it evicted
		case looked:
			// A reader looks at it, whatever it is. It goes when nobody does.
			o.state = retired
			f.use &^= useBusy
		default:
			p.mem.Free(o.id)
			continue
		}
		if twin := byKey[o.key]; o.state == committed && twin != nil {
			// Killed between the commit of a new one and the end of the old one.
			older := o
			if shmring.IDBefore(twin.id, o.id) {
				older = twin
			}
			older.state = retired
		}
		delete(byID, k.ID)
		if o.state == committed {
			byKey[o.key] = o
		}
		if p.w.gen.Signed {
			o.sig = sign(p.w.sv.seg.Secret(), o.key, o.address, o.id)
		}
		p.w.objects[o.id] = o
		p.charge(o, 1)
		// So many uses that needed is what it was, and not none if there were some.
		needed, n := int64(uint32(f.use)), int64(p.w.readers)
		o.uses = (needed + n - 1) / n
		o.written = o.uses*n - needed
		if f.use&useBusy != 0 {
			a.InUse++
			o.base = -1
			p.quarantine(o)
		}
		if !f.useOK {
			a.Damaged++
		}
		a.Kept++
	}
	for key, o := range byKey {
		p.w.index[key] = o
		o.cached = p.cache.Add(key, o.cost)
		p.w.watch(o, true)
	}
	for _, f := range byID {
		bad = append(bad, f.o.entry)
	}
	if len(bad) > 0 || !a.Clean || p.ctl.Layout() == 1 {
		// Headers may stand there of which nothing is known any more.
		p.mem.Scrub()
	}
	failpoint.Hit("adopt.dropping")
	for _, i := range bad {
		p.ctl.Invalidate(i)
		p.ctl.Release(i)
	}
	a.Dropped = len(bad)
	for _, o := range p.w.objects {
		p.update(o) // retired ones that nobody needs go
	}
	failpoint.Hit("adopt.end")
	return a
}

// verify compares an object with its chunk, and reads its note.
func (p *pool) verify(o *object) error {
	c, err := p.mem.Access(o.address)
	if err != nil {
		return err
	}
	if c.ID != o.id && c.ID != shmring.NoID && c.ID != shmring.GoneID || c.Size != o.size || len(c.Payload) < countSize ||
		o.noteOffset < countSize || o.noteLen < 0 || o.noteOffset > len(c.Payload) || o.noteLen > len(c.Payload)-o.noteOffset {
		return errNote
	}
	if shmring.PayloadSum(c.Payload, o.noteOffset+o.noteLen, o.fullSum) != o.sum {
		return fmt.Errorf("%w: checksum", errNote)
	}
	return parseNote(c.Payload[o.noteOffset:o.noteOffset+o.noteLen], o)
}
