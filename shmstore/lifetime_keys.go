package shmstore

import (
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/shmring/segment"
)

// usable reports whether an object can be given to one more request.
func (l *lifetime) usable(o *Object) (ok bool) {
	err := l.durability.guard(func() error { ok = l.owner.Usable(o); return nil })
	return ok || err != nil
}

// find returns the object under a key that can be given to one more request.
func (l *lifetime) find(key string) (*Object, error) {
	o := l.index.find(key)
	if o != nil && !l.usable(o) {
		l.retire(o)
		o = nil
	}
	if o == nil {
		return nil, l.notFound(key)
	}
	l.releaseIfOver(o)
	return o, nil
}

// peek is find without a change of anything.
func (l *lifetime) peek(key string) (*Object, error) {
	o := l.index.find(key)
	if o == nil || !l.usable(o) {
		return nil, l.notFound(key)
	}
	return o, nil
}

// notFound is the error for a key that is not there, or not yet.
func (l *lifetime) notFound(key string) error {
	return &KeyError{Key: key, Err: ErrNotFound, Reserved: l.pending.find(key) != nil}
}

// checkKey refuses the empty key, unless the PayloadOwner has to decide on it.
func (l *lifetime) checkKey(key string) error {
	if key == "" && l.durability.plain {
		return fmt.Errorf("%w: the key is empty", errInvalid)
	}
	return nil
}

// mayPut returns what is in the way of an object under a key, besides room.
func (l *lifetime) mayPut(key string) error {
	if err := l.checkKey(key); err != nil {
		return err
	}
	if l.pending.find(key) != nil {
		return &KeyError{Key: key, Err: ErrKeyExists, Reserved: true}
	}
	if o := l.index.find(key); o != nil && l.usable(o) {
		return &KeyError{Key: key, Err: ErrKeyExists}
	}
	return nil
}

// remove makes a key absent, and reports whether it was there.
func (l *lifetime) remove(key string) bool {
	o := l.index.find(key)
	if o != nil {
		l.retire(o)
	}
	return o != nil
}

// removeUnneeded is remove, but fails if somebody needs the object.
func (l *lifetime) removeUnneeded(key string) error {
	o := l.index.find(key)
	if o == nil {
		return l.notFound(key)
	}
	l.releaseIfOver(o)
	if o.leases > 0 || o.pinned || o.quarantined {
		return fmt.Errorf("%w: key %q is needed by %d requests (pinned: %v, in quarantine: %v)", segment.ErrBusy, key, o.leases, o.pinned, o.quarantined)
	}
	l.retire(o)
	return nil
}

// retire frees the key of an object, which itself stays until nobody can need it.
func (l *lifetime) retire(o *Object) {
	o.state = retired
	l.index.remove(o)
	l.space.families.remove(o)
	l.unpin(o)
	l.notify(o, false)
	_ = l.changed(o) // if the sidecar is gone, it goes when room is needed
}

// clear makes every key absent and frees what nobody can still read. It fails while somebody needs
// something.
func (l *lifetime) clear() error {
	if l.pending.len() > 0 {
		return fmt.Errorf("%w: %d reservations are open; commit or discard them before Clear", segment.ErrBusy, l.pending.len())
	}
	if l.leases > 0 {
		return fmt.Errorf("%w: %d leases are open; end their requests before Clear", segment.ErrBusy, l.leases)
	}
	failpoint.Hit("pool.clear.begin")
	for o := range l.pinned {
		l.unpin(o)
	}
	for o := range l.index.all() {
		l.retire(o)
		failpoint.Hit("pool.clear.one")
	}
	_, err := l.evict(nil)
	failpoint.Hit("pool.clear.end")
	return err
}

// evict has the objects under some keys go, or all if no key is given, but for those that somebody may
// need. It returns the ids of those that went.
func (l *lifetime) evict(keys []string) ([]uint32, error) {
	if len(keys) == 0 {
		if err := l.releaseFew(l.quarantine.len()); err != nil {
			return nil, err
		}
		return l.space.evictAll()
	}
	var ids []uint32
	for _, key := range keys {
		if o := l.index.find(key); o != nil {
			if l.releaseIfOver(o); o.class == classIdle {
				ids = append(ids, o.chunk.id)
			}
		}
	}
	slices.Sort(ids)
	return l.space.evictIdle(slices.Compact(ids))
}

// pin keeps the object under a key, and reports whether it is there.
func (l *lifetime) pin(key string) bool {
	o := l.index.find(key)
	if o != nil && !o.pinned {
		o.pinned = true
		l.pinned[o] = struct{}{}
		l.space.reclassify(o)
	}
	return o != nil
}

func (l *lifetime) unpin(o *Object) {
	if o.pinned {
		o.pinned = false
		delete(l.pinned, o)
		l.space.reclassify(o)
	}
}

// unpinKeys ends the pins of some keys, or all pins if no key is given.
func (l *lifetime) unpinKeys(keys []string) {
	if len(keys) == 0 {
		for o := range l.pinned {
			l.unpin(o)
		}
	}
	for _, key := range keys {
		if o := l.index.find(key); o != nil {
			l.unpin(o)
		}
	}
}
