package storetest

import (
	"bytes"
	"iter"
	"maps"

	"github.com/ringcache/ringcache/fuzz"
)

// world is what must be so after the operations so far, whatever the store does.
type world struct {
	readers int
	rereads bool
	objects map[place]*object // all that ever were, by their handles
	ids     map[uint64]*object
	live    map[string]*object // under their keys, as far as the store may still have them
	// cleared are objects that a clear removed from the keys while a request or reader needed them:
	// the store may keep them until then.
	cleared  map[*object]bool
	requests map[string]*request
}

type place struct{ address, id uint64 }

// object is one that was put.
type object struct {
	key    string
	value  []byte
	handle Handle

	uses, reads int
	// off are the reads that are missing and never come, since the last time that no request needed
	// the object. overread: a reader got it more often than it had to, so the counts can't
	// show any more who is missing.
	off      int
	overread bool
	leases   int  // requests that have it
	waits    bool // for its counts, or for a fence
}

type request struct {
	committed bool
	uses      map[*object]int
}

func newWorld(readers int, rereads bool) *world {
	return &world{
		readers: readers, rereads: rereads, objects: map[place]*object{}, ids: map[uint64]*object{},
		live:    map[string]*object{},
		cleared: map[*object]bool{}, requests: map[string]*request{},
	}
}

// all are the objects that may be in the store.
func (w *world) all() iter.Seq[*object] {
	return func(yield func(*object) bool) {
		for _, o := range w.live {
			if !yield(o) {
				return
			}
		}
		for o := range w.cleared {
			if !yield(o) {
				return
			}
		}
	}
}

func (w *world) needed(o *object) int { return o.uses*w.readers - o.off }

// needs reports whether an object must stay.
func (w *world) needs(o *object) bool {
	return o.leases > 0 || o.waits && (w.rereads || !o.overread && o.reads < w.needed(o))
}

// free reports whether no request or reader can need an object.
func (w *world) free(o *object) bool {
	return o.leases == 0 && (!o.waits || !w.rereads && !o.overread && o.reads >= w.needed(o))
}

// settle ends what an object waits for if its counts are complete.
func (w *world) settle(o *object) {
	if o.leases > 0 {
		return
	}
	if o.waits && (w.rereads || o.overread || o.reads < w.needed(o)) {
		return
	}
	o.waits = false
	o.off = o.uses*w.readers - o.reads
}

// keep leaves only what the store still has.
func (w *world) keep(s *State) {
	there := map[place]bool{}
	for _, o := range s.Objects {
		there[placeOf(o.Handle)] = true
	}
	maps.DeleteFunc(w.live, func(_ string, o *object) bool { return !there[placeOf(o.handle)] })
	maps.DeleteFunc(w.cleared, func(o *object, _ bool) bool { return w.free(o) })
}

func placeOf(h Handle) place { return place{h.Address, h.ID} }

// apply changes the world by an operation that was performed.
func (w *world) apply(op fuzz.Op, r fuzz.Reply) {
	key, _ := op.Args["key"].(string)
	id, named := op.Args["request"].(string)
	switch op.Name {
	case "store.put":
		value, _ := valueOf(op)
		o := &object{key: key, value: value, handle: replied(r)}
		w.objects[placeOf(o.handle)], w.ids[o.handle.ID], w.live[key] = o, o, o
		w.give(o, id, named)
	case "store.lookup":
		if o := w.live[key]; o != nil {
			w.give(o, id, named)
		}
	case "store.get":
		if o := w.objects[placeOf(handleOf(op))]; o != nil && (w.live[o.key] == o || w.cleared[o]) {
			o.reads++
			o.overread = o.overread || o.reads > w.needed(o)
			w.settle(o)
		}
	case "store.begin":
		w.requests[id] = &request{uses: map[*object]int{}}
	case "store.commit", "store.rollback", "store.finish", "store.abort":
		w.end(op.Name, id)
	case "store.fence":
		for o := range w.all() {
			if o.waits {
				o.waits = false
				w.settle(o)
			}
		}
	case "store.reset_readers":
		w.reset()
	case "store.clear":
		for _, o := range w.live {
			w.cleared[o] = true
		}
		clear(w.live)
	case "store.adopt":
		clear(w.requests)
		for o := range w.all() { // how an adopter goes on counting is its own affair
			o.leases, o.waits, o.overread = 0, true, true
		}
	}
}

// give counts a handle that was given out.
func (w *world) give(o *object, request string, named bool) {
	o.uses++
	r := w.requests[request]
	if !named || r == nil {
		o.waits = true
		return
	}
	if r.uses[o] == 0 {
		o.leases++
	}
	r.uses[o]++
}

func (w *world) end(how, id string) {
	r := w.requests[id]
	if r == nil {
		return
	}
	if how == "store.commit" {
		r.committed = true
		return
	}
	delete(w.requests, id)
	for o, uses := range r.uses {
		o.leases--
		switch how {
		case "store.rollback":
			o.uses -= uses
		case "store.abort":
			o.waits = true
		}
		w.settle(o)
	}
}

// reset: readers are new ones. Requests that were not committed go on.
func (w *world) reset() {
	for o := range w.all() {
		o.uses, o.reads, o.off, o.overread, o.waits = 0, 0, 0, false, false
	}
	for id, r := range w.requests {
		for o, uses := range r.uses {
			if r.committed {
				o.leases--
			} else {
				o.uses += uses
			}
		}
		if r.committed {
			delete(w.requests, id)
		}
	}
	for o := range w.all() {
		w.settle(o)
	}
}

// genuine reports whether a handle and key are as they were given out, or would be.
func (w *world) genuine(key string, h Handle) (o *object, ok bool) {
	o = w.objects[placeOf(h)]
	return o, o != nil && (o.handle.Signature == "" || o.handle.Signature == h.Signature && o.key == key)
}

func replied(r fuzz.Reply) Handle {
	signature, _ := r.Fields["signature"].(string)
	return Handle{unsigned(r.Fields["address"]), unsigned(r.Fields["id"]), signature}
}

func (o *object) same(value []byte) bool { return bytes.Equal(o.value, value) }
