package shmstore

import (
	"container/list"
	"fmt"
	"iter"
	"time"

	"github.com/ringcache/ringcache/internal/payload"
)

// lifetime is the part of a [Store] that decides what has to stay: which key means which object, which
// request may need an object, and what a reader may still come for.
//
// An object is in one of these states (objectState):
//
//   - reserved: its key is pending, and the owner of a [Reservation] fills it;
//   - committed: its key means it, and requests find it. [Reservation.Commit] moves it here;
//   - retired: its key means another object now, or none. Whoever has it keeps it. Remove, Clear, a
//     Lookup or Commit that finds that its owner can't count one more use of it, and a Commit whose
//     lease can't be written down move it here;
//   - discarded: the reservation was given up, and the memory did not allow to free the chunk at once.
//
// What keeps an object is counted beside the state. A lease of a request (Object.leases, of which
// Object.sent are of committed requests) begins with Lookup, HoldID or Commit, and ends with the request
// or with Drop. A pin lasts until Unpin, or until the key goes. Quarantine begins when a committed
// request is aborted, or when Adopt finds that a request of the dead writer may need the object. It ends when
// the owner's counts are complete, a fence passes, its time is over, or the readers are reset. A committed
// object without any of them is a cache entry: space may evict it.
// A retired one goes at once.
//
// A request is open, committed or ended. The owner moves it, with Commit and then Finish or Abort, or
// with Rollback; [Store.ResetReaders] ends those that are committed.
//
// Whatever changes what keeps an object is followed by changed, which has space count the object anew,
// and then writes its use word. A new lease whose word can't be written is undone, since the next writer
// would not know of it. An end that can't be written is kept: the word is more cautious than the truth.
//
// All methods are called with Store.mu held.
type lifetime struct {
	space      *space
	durability *durability
	owner      PayloadOwner
	watch      func(Change)  // Options.Watch, or nil
	ttl        time.Duration // Options.QuarantineTTL

	index   *index // of committed objects
	pending *index // of reserved ones
	pinned  map[*Object]struct{}

	requests map[string]*Request // that have not ended, by id
	leases   int                 // of all requests
	mapped   int                 // requests that keep the segment mapped
	misused  int                 // calls that end a request which was not committed
	readers  int                 // processes that read every payload

	quarantine quarantine
	examined   int // objects whose quarantine was looked at
}

func newLifetime(o Options) lifetime {
	return lifetime{
		owner: uncounted{}, watch: o.Watch, ttl: o.QuarantineTTL, readers: o.Readers,
		index: newIndex(), pending: newIndex(),
		pinned: map[*Object]struct{}{}, requests: map[string]*Request{},
		quarantine: quarantine{places: map[*Object]*list.Element{}},
	}
}

// newObject returns an object without an entry in the sidecar.
func (l *lifetime) newObject() *Object {
	o := l.owner.NewObject()
	o.entry, o.word = -1, unwritten
	return o
}

// visible yields the objects that were committed.
func (l *lifetime) visible() iter.Seq[*Object] {
	return func(yield func(*Object) bool) {
		for o := range l.space.all() {
			if o.state != reserved && o.state != discarded && !yield(o) {
				return
			}
		}
	}
}

// commit makes a key mean an object that was reserved, and is published. The object that it replaces
// can't be used once more, see mayPut.
func (l *lifetime) commit(o *Object, key string) {
	o.state = committed
	if old := l.index.find(key); old != nil {
		l.retire(old)
	}
	l.index.add(o)
	l.space.families.addParent(o)
	l.notify(o, true)
}

// gone is called by space when the chunk of an object was freed.
func (l *lifetime) gone(o *Object) {
	if o.quarantined {
		l.quarantine.remove(o)
	}
	if o.pinned {
		delete(l.pinned, o)
	}
	if o.state == committed {
		l.index.remove(o)
		l.notify(o, false)
	}
}

func (l *lifetime) notify(o *Object, present bool) {
	if l.watch != nil {
		l.watch(Change{Key: o.Key(), ID: o.chunk.id, Present: present})
	}
}

// The use word of the sidecar: bit 63 reports that someone may need the object, bit
// 62 that it is retired; the low 32 bits are the owner's.
const (
	useBusy    = payload.UseBusy
	useRetired = payload.UseRetired
	// unwritten is no use word, since a word's bits 32 to 61 are 0.
	unwritten = 1<<64 - 1
)

func (l *lifetime) useWord(o *Object) uint64 {
	u := uint64(l.owner.Word(o))
	if o.leases > 0 || o.quarantined {
		u |= useBusy
	}
	if o.state == retired {
		u |= useRetired
	}
	return u
}

// changed is called when the uses, the leases or the state of an object are others
// now. An error means that the use word is another one and could not be written to the
// sidecar: then nobody may get a handle.
func (l *lifetime) changed(o *Object) error {
	if o.state == reserved || o.state == discarded {
		return nil
	}
	mustHold(l.checkHeld, o)
	l.space.reclassify(o)
	return l.durability.guard(func() error { l.update(o); return nil })
}

// update writes the use word, and writes off what nobody will read any more.
func (l *lifetime) update(o *Object) {
	if o.state == retired { // whatever becomes of the sidecar
		l.space.evictor.Remove(&o.cached)
	}
	if o.state == retired && o.quarantined && l.quarantineOver(o) {
		l.quarantine.remove(o)
		l.space.reclassify(o)
	}
	if o.leases == 0 && !o.quarantined {
		l.owner.Idle(o)
	}
	l.durability.setUse(o, l.useWord(o))
	if o.state == retired && o.class == classIdle {
		l.space.evict([]uint32{o.chunk.id}) // unless a reader looks at it; then it goes when room is needed
	}
}

// restore takes over a committed or retired object of the dead writer, with what the use word contains for
// the owner. One that a request of the dead writer may need is in quarantine.
func (l *lifetime) restore(o *Object, word uint32, inUse bool) {
	l.owner.Restore(o, word, inUse)
	if inUse {
		l.quarantineFor(o)
	}
}

// checkHeld verifies the counts of an object whose leases have changed.
func (l *lifetime) checkHeld(o *Object) error {
	if o.sent < 0 || o.leases < o.sent || l.leases < int(o.leases) {
		return fmt.Errorf("shmstore: key %q has %d leases, %d of them sent; the store has %d", o.Key(), o.leases, o.sent, l.leases)
	}
	return nil
}

// check verifies keys, leases, requests and quarantine.
func (l *lifetime) check(bad report) {
	l.checkKeys(bad)
	l.checkLeases(bad)
	l.checkQuarantine(bad)
	for o := range l.space.all() {
		if o.entry >= 0 && o.word != l.useWord(o) {
			bad("key %q has the use word %#x, want %#x", o.Key(), o.word, l.useWord(o))
		}
		if err := l.owner.Check(o); err != nil {
			bad("key %q: %w", o.Key(), err)
		}
	}
}

func (l *lifetime) checkKeys(bad report) {
	counts := map[objectState]int{}
	for o := range l.space.all() {
		counts[o.state]++
		switch {
		case o.state == reserved && l.pending.find(o.Key()) != o:
			bad("reserved key %q is not pending", o.Key())
		case o.state == committed && l.index.find(o.Key()) != o:
			bad("key %q is not indexed", o.Key())
		}
		if (o.state == committed) != o.cached.Live() {
			bad("key %q in state %d is known to the eviction policy: %v", o.Key(), o.state, o.cached.Live())
		}
		if _, ok := l.pinned[o]; ok != o.pinned || o.pinned && o.state != committed {
			bad("key %q in state %d is pinned: %v, %v", o.Key(), o.state, o.pinned, ok)
		}
	}
	if l.index.len() != counts[committed] || l.pending.len() != counts[reserved] {
		bad("%d keys and %d pending for %d committed and %d reserved objects", l.index.len(), l.pending.len(), counts[committed], counts[reserved])
	}
	for x := range l.pending.all() {
		if o := l.index.find(x.Key()); o != nil && l.usable(o) {
			bad("key %q is indexed and pending", x.Key())
		}
	}
	for o := range l.pinned {
		if l.space.object(o.chunk.id) != o {
			bad("key %q is pinned, and gone", o.Key())
		}
	}
}

func (l *lifetime) checkLeases(bad report) {
	type sum struct{ leases, sent int }
	sums := map[*Object]sum{}
	all, mapped := 0, 0
	for id, r := range l.requests {
		if r.id != id || r.state == requestEnded {
			bad("request %q in state %d is listed as %q", r.id, r.state, id)
		}
		for lease := range r.leases.All() {
			n := sums[lease.Object]
			n.leases++
			if r.state == requestCommitted {
				n.sent++
			}
			sums[lease.Object] = n
			all++
		}
		if r.mapped {
			mapped++
		}
	}
	for o := range l.space.all() {
		if n := sums[o]; n != (sum{int(o.leases), int(o.sent)}) {
			bad("key %q has %d leases, %d sent; requests have %d and %d", o.Key(), o.leases, o.sent, n.leases, n.sent)
		}
	}
	if all != l.leases || mapped > l.mapped {
		bad("requests have %d leases and keep the memory %d times; counted were %d and %d", all, mapped, l.leases, l.mapped)
	}
}

func (l *lifetime) checkQuarantine(bad report) {
	n := 0
	for o := range l.space.all() {
		if o.quarantined {
			n++
		}
	}
	q := &l.quarantine
	fence, next := uint64(0), q.next == nil
	for e := q.objects.Front(); e != nil; e = e.Next() {
		x := e.Value.(*quarantined)
		o := x.o
		if !o.quarantined || q.places[o] != e || x.fence < fence || l.space.object(o.chunk.id) != o {
			bad("key %q is in quarantine up to fence %d, behind %d", o.Key(), x.fence, fence)
		}
		fence = x.fence
		next = next || e == q.next
	}
	if n != q.objects.Len() || n != len(q.places) || !next {
		bad("%d objects are in quarantine, %d in its list; looking goes on in it: %v", n, q.objects.Len(), next)
	}
}
