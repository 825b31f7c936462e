package objstore

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ringcache/ringcache/internal/evict"
	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/shmring"
)

// pool is the policy Pool.
//
// What holds between calls, besides the Writer's:
//   - an object is idle if it is committed or retired, has no lease and nothing
//     in quarantine. Only idle objects are evicted, and a retired one goes as
//     soon as it is idle;
//   - the readers have counted all reads that an idle object still needs: what
//     they did not count was written off;
//   - quarantined has exactly the objects with something in quarantine;
//   - with a sidecar, every committed or retired object has an entry there, and
//     its use word is at least as cautious as the truth.
type pool struct {
	w     *Writer
	mem   *shmring.Pool
	ctl   *shmring.Control // nil if the segment has none
	cache *evict.Policy
	ids   uint32 // ids up to here are marked as given out

	quarantined map[*object]struct{}
	fence       uint64           // the next one's number
	tenants     map[string]int64 // bytes of each
	dead        int              // readers whose slot was found without an owner
}

func newPool(w *Writer, seg *shmring.Segment) *pool {
	return &pool{
		w: w, ctl: seg.Control(),
		mem:         shmring.NewPool(seg.Ring(), shmring.PoolOptions{DataOffset: w.gen.DataOffset, FirstID: w.opt.FirstID}),
		cache:       evict.New(),
		ids:         w.opt.FirstID,
		quarantined: map[*object]struct{}{},
		tenants:     map[string]int64{},
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
		p.ids = (next + idBlock + n) % shmring.IDLimit
		s := p.ctl.State()
		s.NextID = p.ids
		p.ctl.SetState(s)
	}
}

func (p *pool) alloc(size int, tenant string) (address uint64, id uint32, payload []byte, err error) {
	err = p.w.sv.guard(Handle{}, func() (err error) {
		address, id, payload, err = p.place(size, tenant)
		return err
	})
	return address, id, payload, err
}

func (p *pool) place(size int, tenant string) (address uint64, id uint32, payload []byte, err error) {
	if err := p.admit(size, tenant); err != nil {
		return 0, 0, nil, err
	}
	p.markIDs()
	failpoint.Hit("pool.alloc")
	if err := p.freeEntry(); err != nil {
		return 0, 0, nil, err
	}
	var held map[uint32]struct{} // by readers
	for {
		address, id, payload, err = p.mem.Alloc(size)
		if !errors.Is(err, ErrFull) {
			failpoint.Hit("pool.allocated")
			return address, id, payload, err
		}
		victims, ok := p.mem.Cheapest(size, func(id uint32) (float64, bool) {
			if _, ok := held[id]; ok {
				return 0, false
			}
			return p.loss(p.w.objects[id])
		})
		if !ok {
			return 0, 0, nil, p.fullError(size, held)
		}
		for id := range p.evict(victims) {
			if held == nil {
				held = map[uint32]struct{}{}
			}
			held[id] = struct{}{}
		}
	}
}

// freeEntry makes sure that the sidecar has an entry for one more object.
func (p *pool) freeEntry() error {
	for p.ctl != nil && p.mem.Len() >= p.ctl.Options().Objects {
		victim, ok := p.cheapest(p.w.objects)
		if !ok || p.evict([]uint32{victim.id}) != nil {
			return p.fullError(0, nil)
		}
	}
	return nil
}

// maxSample bounds a search for one object: the cheapest of so many is cheap
// enough.
const maxSample = 64

// cheapest returns the idle object that it costs least to lose, of some.
func (p *pool) cheapest(objects map[uint32]*object) (best *object, ok bool) {
	least, n := 0.0, 0
	for _, o := range objects {
		if c, may := p.loss(o); may && (best == nil || c < least) {
			best, least = o, c
		}
		if n++; n >= maxSample && best != nil {
			break
		}
	}
	return best, best != nil
}

// loss says what evicting an object loses, and whether it may be.
func (p *pool) loss(o *object) (float64, bool) {
	if !p.idle(o) {
		return 0, false
	}
	if o.cached == nil {
		return 0, true // retired
	}
	return p.cache.Value(o.cached), true
}

// idle says whether nobody can need the object any more.
func (p *pool) idle(o *object) bool {
	return (o.state == committed || o.state == retired) && o.leases == 0 && !p.touched(o) && p.over(o)
}

func (p *pool) touched(o *object) bool {
	_, ok := p.w.touched[o.id]
	return ok
}

// evict makes idle objects go, but for those that a reader looks at in place,
// which it returns.
func (p *pool) evict(ids []uint32) (held map[uint32]struct{}) {
	for _, id := range ids {
		p.mem.Kill(id)
		failpoint.Hit("pool.evict.killed")
	}
	var holds map[uint32]struct{}
	if p.ctl != nil {
		var dead int
		holds, dead = p.ctl.Held()
		p.dead += dead
	}
	for _, id := range ids {
		if _, ok := holds[id]; ok {
			p.mem.Publish(id) // whoever saw it dead was late anyway
			if held == nil {
				held = map[uint32]struct{}{}
			}
			held[id] = struct{}{}
			continue
		}
		o := p.w.objects[id]
		if o.cached != nil {
			p.cache.Evict(o.cached)
			o.cached = nil
		}
		p.drop(o)
	}
	return held
}

// drop frees the chunk of an object and forgets it.
func (p *pool) drop(o *object) {
	if o.entry >= 0 {
		p.ctl.Drop(o.entry)
		o.entry = -1
	}
	p.charge(o, -1)
	failpoint.Hit("pool.drop")
	p.mem.Free(o.id)
	if o.cached != nil {
		p.cache.Remove(o.cached)
		o.cached = nil
	}
	if len(o.aborted) > 0 {
		o.aborted = nil
		delete(p.quarantined, o)
	}
	p.w.forget(o)
	p.w.signal()
}

// charge counts the bytes of an object for its tenant, or with -1 no longer.
func (p *pool) charge(o *object, sign int64) {
	if o.tenant == "" {
		return
	}
	p.tenants[o.tenant] += sign * int64(p.mem.Extent(o.id))
	if p.tenants[o.tenant] == 0 {
		delete(p.tenants, o.tenant)
	}
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

func (p *pool) discard(o *object) {
	_ = p.w.sv.guard(Handle{}, func() error { p.drop(o); return nil })
}

func (p *pool) hit(o *object) {
	p.cache.Hit(o.cached)
	if len(o.aborted) > 0 && p.over(o) {
		p.release(o)
	}
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
	if o.leases > 0 || len(o.aborted) > 0 {
		u |= useBusy
	}
	if o.state == retired {
		u |= useRetired
	}
	return u
}

// changed writes the use word, and writes off what nobody will count any more.
func (p *pool) changed(o *object) {
	if o.state == reserved || o.state == discarded {
		return
	}
	_ = p.w.sv.guard(Handle{}, func() error { p.update(o); return nil })
	p.w.signal()
}

func (p *pool) update(o *object) {
	if o.leases == 0 && len(o.aborted) == 0 {
		p.writeOff(o)
	}
	if o.entry >= 0 {
		if u := p.useWord(o); u != p.ctl.Use(o.entry) {
			p.ctl.SetUse(o.entry, u)
		}
	}
	if o.state == retired {
		if o.cached != nil {
			p.cache.Remove(o.cached)
			o.cached = nil
		}
		if p.idle(o) {
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
	reads := p.w.reads(o.address)
	if reads >= rebaseAt || reads < 0 || o.uses*int64(p.w.readers) >= rebaseAt {
		p.w.setReads(o.address, 0)
		reads, o.uses = 0, 0
	}
	o.written = o.uses*int64(p.w.readers) - reads
}

// noEnd is no time at which a quarantine ends by itself.
var noEnd time.Time

// abortion is what became of the handles of aborted requests.
type abortion struct {
	fence uint64    // released when this fence passes
	until time.Time // or, if nobody is inside, then
	uses  int64
}

func (p *pool) ended(o *object, uses int64, aborted bool) {
	if aborted {
		p.quarantine(o, uses)
	}
}

func (p *pool) anonymous(o *object, uses int64) { p.quarantine(o, uses) }

func (p *pool) quarantine(o *object, uses int64) {
	if uses == 0 {
		return
	}
	until := p.quarantineEnd()
	// One for all that wait for the same fence, so that there are never many.
	if n := len(o.aborted); n > 0 && o.aborted[n-1].fence == p.fence {
		a := &o.aborted[n-1]
		a.uses += uses
		a.until = until
	} else {
		o.aborted = append(o.aborted, abortion{p.fence, until, uses})
	}
	p.quarantined[o] = struct{}{}
}

func (p *pool) quarantineEnd() time.Time {
	switch ttl := p.w.opt.QuarantineTTL; {
	case ttl < 0:
		return noEnd
	case ttl == 0:
		return time.Now().Add(DefaultQuarantineTTL)
	default:
		return time.Now().Add(ttl)
	}
}

// over says whether an object has nothing in quarantine, or only what has served
// its time.
func (p *pool) over(o *object) bool {
	if len(o.aborted) == 0 {
		return true
	}
	missing := p.w.needed(o) - p.w.reads(o.address)
	return missing <= 0 && !p.w.opt.Rereads || p.expired(o) && (missing <= 0 || p.unread(o, missing))
}

// unread says whether the counts say that no reader has begun with the aborted
// handles: all of their reads are missing.
func (p *pool) unread(o *object, missing int64) bool {
	var uses int64
	for _, a := range o.aborted {
		uses += a.uses
	}
	return missing == uses*int64(p.w.readers)
}

func (p *pool) expired(o *object) bool {
	now := time.Now()
	for _, a := range o.aborted {
		if a.until.IsZero() || now.Before(a.until) {
			return false
		}
	}
	return true
}

// release ends the quarantine of an object.
func (p *pool) release(o *object) {
	o.aborted = nil
	delete(p.quarantined, o)
	p.changed(o)
}

// passed releases everything that was aborted before a fence.
func (p *pool) passed(fence uint64) {
	for o := range p.quarantined {
		n := 0
		for n < len(o.aborted) && o.aborted[n].fence <= fence {
			n++
		}
		if n == len(o.aborted) {
			p.release(o)
		} else {
			o.aborted = o.aborted[n:]
		}
	}
}

// freeUnused evicts every object that is idle, whatever it is worth.
func (p *pool) freeUnused() (freed []uint32, err error) {
	err = p.w.sv.guard(Handle{}, func() error {
		for id := range p.mem.Live() {
			if p.idle(p.w.objects[id]) {
				freed = append(freed, id)
			}
		}
		held := p.evict(freed)
		n := 0
		for _, id := range freed {
			if _, ok := held[id]; !ok {
				freed[n] = id
				n++
			}
		}
		freed = freed[:n]
		return nil
	})
	return freed, err
}

// clear makes every key absent and frees what nobody can still read.
func (p *pool) clear() error {
	failpoint.Hit("pool.clear.begin")
	clear(p.w.touched)
	for _, o := range p.w.index {
		p.w.retire(o)
		failpoint.Hit("pool.clear.one")
	}
	_, err := p.freeUnused()
	failpoint.Hit("pool.clear.end")
	return err
}

// fullError says who is in the way.
func (p *pool) fullError(size int, held map[uint32]struct{}) error {
	b := &Blocked{Free: int64(shmring.PoolRoom(p.w.opt.RingSize, p.w.gen.DataOffset)) - int64(p.mem.Used()), LargestHole: int64(p.mem.Largest())}
	for _, o := range p.w.objects {
		n := int64(p.mem.Extent(o.id))
		_, looked := held[o.id]
		switch {
		case o.state == reserved:
			b.Reserved += n
		case o.leases > 0 || p.touched(o):
			b.Leased += n
		case len(o.aborted) > 0:
			b.Quarantined += n
		case looked:
			b.Viewed += n
		default:
			b.Evictable += n
		}
	}
	if p.ctl != nil && p.mem.Len() >= p.ctl.Options().Objects {
		b.MaxObjects = p.ctl.Options().Objects
	}
	return &FullError{Need: size + shmring.HeaderSize, Used: p.mem.Used(), Size: p.w.opt.RingSize, Blocked: b}
}

// reads is the read count of a chunk as it is now, 0 if it can't be read.
func (w *Writer) reads(address uint64) (n int64) {
	_ = w.sv.guard(Handle{Address: address}, func() error {
		c, err := w.space.Access(address)
		if err == nil && len(c.Payload) >= countSize {
			n = readCount(c.Payload)
		}
		return err
	})
	return n
}

func (w *Writer) setReads(address uint64, n uint32) {
	_ = w.sv.guard(Handle{Address: address}, func() error {
		c, err := w.space.Access(address)
		if err == nil && len(c.Payload) >= countSize {
			mem.Store32(c.Payload, n)
		}
		return err
	})
}

// check verifies what holds of a pool besides what holds of every writer.
func (p *pool) check(bad func(format string, args ...any)) {
	tenants := map[string]int64{}
	entries := 0
	for id, o := range p.w.objects {
		extent := p.mem.Extent(id)
		if extent == 0 {
			bad("object %d has no chunk", id)
		}
		if o.tenant != "" {
			tenants[o.tenant] += int64(extent)
		}
		if _, ok := p.quarantined[o]; ok != (len(o.aborted) > 0) {
			bad("key %q: in quarantine %v, with %d abortions", o.key, ok, len(o.aborted))
		}
		live := o.state == committed || o.state == retired
		if (o.state == committed) != (o.cached != nil) {
			bad("key %q in state %d is known to the eviction policy: %v", o.key, o.state, o.cached != nil)
		}
		if p.ctl == nil || !live {
			continue
		}
		entries++
		if u := p.ctl.Use(o.entry); u != p.useWord(o) {
			bad("key %q: the sidecar's use is %#x, want %#x", o.key, u, p.useWord(o))
		}
	}
	for t, n := range p.tenants {
		if tenants[t] != n {
			bad("tenant %q is charged %d bytes, has %d", t, n, tenants[t])
		}
	}
	if p.ctl != nil && p.ctl.Free()+entries != p.ctl.Options().Objects {
		bad("%d entries used and %d free of %d", entries, p.ctl.Free(), p.ctl.Options().Objects)
	}
}

// Blocked says what a pool's bytes are taken by, when there is no room.
type Blocked struct {
	Free        int64 // in holes
	LargestHole int64
	Reserved    int64 // being written
	Leased      int64 // by open requests, or touched
	Quarantined int64 // aborted, and maybe still to be read: a Fence proves more
	Viewed      int64 // looked at in place by readers
	Evictable   int64 // between others, so that they make no run that is long enough
	MaxObjects  int   // not 0: so many objects are the most
}

func (b *Blocked) String() string {
	if b.MaxObjects > 0 {
		return fmt.Sprintf("%d objects are the most that the sidecar has room for, and all are in use; raise MaxObjects", b.MaxObjects)
	}
	return fmt.Sprintf("%d leased, %d in quarantine, %d being written, %d viewed by readers, %d evictable between them, %d free with the largest hole of %d",
		b.Leased, b.Quarantined, b.Reserved, b.Viewed, b.Evictable, b.Free, b.LargestHole)
}
