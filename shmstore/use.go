package objstore

import (
	"container/list"
	"math"

	"github.com/ringcache/ringcache/internal/evict"
	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/shmring"
)

// pool is the policy Pool.
//
// What holds between calls, besides the Writer's:
//   - an object is idle if it is committed or retired, has no lease and is neither
//     touched nor in quarantine. Only idle objects are evicted, and a retired one
//     goes as soon as it is idle;
//   - the readers have counted all reads that an idle object still needs: what
//     they did not count was written off;
//   - quarantined has exactly the objects in quarantine, in the order of their
//     fences;
//   - bytes, idle and tenants are what counting all objects anew would give;
//   - no run of holes and idle objects is as long as a search that failed wanted,
//     see search;
//   - with a sidecar, every committed or retired object has an entry there, and
//     its use word is at least as cautious as the truth.
type pool struct {
	w     *Writer
	mem   *shmring.Pool
	ctl   *shmring.Control // nil if the segment has none
	cache *evict.Policy
	ids   uint32 // ids up to here are marked as given out

	quarantined list.List     // of *object
	next        *list.Element // where look goes on, nil: at the front
	fence       uint64        // the next one's number
	dead        int           // readers whose slot was found without an owner

	room    int64 // bytes that chunks can take
	bytes   [classes]int64
	idle    bag
	sample  int // where cheapest goes on
	tenants map[string]*tenant
	search  search
}

func newPool(w *Writer, seg *shmring.Segment) *pool {
	return &pool{
		w: w, ctl: seg.Control(),
		mem:     shmring.NewPool(seg.Ring(), shmring.PoolOptions{DataOffset: w.gen.DataOffset, FirstID: w.opt.FirstID}),
		cache:   evict.New(),
		ids:     w.opt.FirstID,
		room:    int64(shmring.PoolRoom(len(seg.Ring()), w.gen.DataOffset)),
		tenants: map[string]*tenant{},
	}
}

// idBlock is how many ids are marked as given out at a time.
const idBlock = 1 << 16

// markIDs makes sure that the next id is marked, so that whoever adopts the
// segment goes on behind it.
func (p *pool) markIDs() {
	if p.ctl == nil {
		return
	}
	next, n := p.mem.NextID(), uint32(p.mem.Len()) // as many may be skipped
	if left := (p.ids - next) % shmring.IDLimit; left <= n {
		s := p.ctl.State()
		s.NextID = (next + idBlock + n) % shmring.IDLimit
		p.ctl.SetState(s)
		p.ids = s.NextID
	}
}

func (p *pool) extent(size int) int64 { return shmring.PoolExtent(size) }

func (p *pool) alloc(size int, tenant string, as turn) (address uint64, id uint32, payload []byte, err error) {
	err = p.w.sv.guard(Handle{}, func() (err error) {
		address, id, payload, err = p.place(size, tenant, as)
		return err
	})
	return address, id, payload, err
}

// drop frees the chunk of an object and forgets it; forget is what the eviction
// policy does with it. If the memory is gone, the object stays as it is.
func (p *pool) drop(o *object, forget func(*evict.Entry)) {
	// Shared memory first. The id of an object that was never published is dead.
	if o.entry >= 0 {
		p.mem.Kill(o.id)
		p.ctl.Invalidate(o.entry)
		p.ctl.Release(o.entry)
		o.entry = -1
	} else if p.ctl == nil && o.state != discarded {
		p.mem.Kill(o.id)
	}
	failpoint.Hit("pool.drop")
	// From here on nothing touches it.
	p.mem.Release(o.id) // first, so that who is woken finds the bytes
	p.charge(o, -1)
	if o.cached != nil {
		forget(o.cached)
		o.cached = nil
	}
	if o.quarantined != nil {
		p.leave(o)
	}
	p.w.forget(o)
}

func (p *pool) publish(o *object) error {
	if p.ctl != nil {
		failpoint.Hit("pool.publish")
		o.entry = p.ctl.Put(shmring.Record{
			Address: o.address, ID: o.id, Size: o.size, NoteOffset: o.noteOffset, NoteLen: o.noteLen,
			Sum: o.sum, Full: p.w.opt.FullSums,
		}, p.useWord(o))
	}
	p.mem.Publish(o.id)
	failpoint.Hit("pool.published")
	o.cached = p.cache.Add(o.key, o.cost)
	return nil
}

// discard leaves an object that it can't drop idle, so that it goes when room is
// needed.
func (p *pool) discard(o *object) {
	if err := p.w.sv.guard(Handle{}, func() error { p.drop(o, p.cache.Remove); return nil }); err != nil {
		p.file(o, p.classOf(o))
	}
}

func (p *pool) hit(o *object) {
	p.cache.Hit(o.cached)
	p.releaseIfOver(o)
}

// The use word of the sidecar: bit 63 says that someone may need the object, bit
// 62 that it is retired; the low 32 bits are the count of reads at which every
// handle that was issued is read.
const (
	useBusy    = 1 << 63
	useRetired = 1 << 62
)

func (p *pool) useWord(o *object) uint64 {
	u := uint64(min(max(p.w.needed(o), 0), math.MaxUint32))
	if o.leases > 0 || o.quarantined != nil {
		u |= useBusy
	}
	if o.state == retired {
		u |= useRetired
	}
	return u
}

// changed writes the use word, and writes off what nobody will count any more.
func (p *pool) changed(o *object) error {
	if o.state == reserved || o.state == discarded {
		return nil
	}
	p.file(o, p.classOf(o))
	return p.w.sv.guard(Handle{}, func() error { p.update(o); return nil })
}

func (p *pool) touched(o *object) { p.file(o, p.classOf(o)) }

func (p *pool) update(o *object) {
	if o.state == retired && o.cached != nil { // whatever becomes of the sidecar
		p.cache.Remove(o.cached)
		o.cached = nil
	}
	if o.state == retired && o.quarantined != nil && p.over(o) {
		p.leave(o)
		p.file(o, p.classOf(o))
	}
	if o.leases == 0 && o.quarantined == nil {
		p.writeOff(o)
	}
	if o.entry >= 0 {
		want := p.useWord(o)
		if u, ok := p.ctl.Use(o.entry); !ok || u != want {
			p.ctl.SetUse(o.entry, want)
		}
	}
	if o.state == retired {
		if o.class == classIdle {
			p.evict([]uint32{o.id}) // unless a reader looks at it; then it goes when room is needed
		}
	}
}

// rebaseAt is the count of reads from which an idle object starts again at 0, far
// from where an int32 ends.
const rebaseAt = 1 << 30

// writeOff makes the counts of an idle object agree: from now on it needs what is
// issued from now on.
func (p *pool) writeOff(o *object) {
	reads := p.w.readsNow(o.address)
	if reads >= rebaseAt || reads < 0 || o.uses*int64(p.w.readers) >= rebaseAt {
		p.w.setReads(o.address, 0)
		reads, o.uses = 0, 0
	}
	o.base = reads
	o.written = o.uses*int64(p.w.readers) - reads
}
