package tier

import (
	"context"
	"errors"
	"fmt"
)

// transfer moves the objects of a job into memory. Nothing half-done stays: until commit, what memory has is
// a reservation of the store's own lease, which a store that takes over the memory level gives up.
type transfer struct {
	*fetcher
	ctx   context.Context
	items []*transferItem
}

// transferItem is a fetch during its transfer.
type transferItem struct {
	*fetch
	placed Placed   // its reservation
	from   *lower   // that the bytes came from; nil until they are there
	copies levelSet // faster levels that are to have a copy
	err    error
}

// runTransfer reserves the places of the objects of a job, reads straight into these, and commits what was
// read.
func (f *fetcher) runTransfer(j *job) {
	live := f.liveFetches(j)
	if len(live) == 0 {
		return
	}
	t := &transfer{f, j.ctx, make([]*transferItem, len(live))}
	objects := make([]Object, len(live))
	for i, x := range live {
		t.items[i] = &transferItem{fetch: x}
		objects[i] = x.object
	}
	reserve := func(o *Object) Placed { return f.promoted.lease.Reserve([]Object{*o})[0] }
	for i, p := range ReserveEach(objects, reserve) {
		t.items[i].placed, t.items[i].err = p, p.Err
	}
	for _, l := range f.lower {
		t.read(l)
	}
	t.commit()
	for _, it := range t.items {
		f.writes.addCopy(it.copies, it.object)
	}
	t.finishAll()
}

// read reads from a level what it should have, or what a faster one did not have after all.
func (t *transfer) read(l *lower) {
	var some []*transferItem
	var gets []Get
	for _, it := range t.items {
		if it.placed.Err == nil && it.from == nil && it.level <= l.index {
			some = append(some, it)
			gets = append(gets, Get{Key: it.key, Into: it.place})
		}
	}
	if len(some) == 0 {
		return
	}
	begin := t.begun()
	l.get(t.ctx, gets, func(int) bool { return false })
	t.worked("fetch", l, begin, len(gets), func(i int) (Key, int64, error) { return gets[i].Key, gets[i].Object.Size, gets[i].Err })
	for i, it := range some {
		switch err := gets[i].Err; {
		case err == nil && len(gets[i].Bytes) == len(it.placed.Bytes):
			it.from, it.err = l, nil
		case err == nil:
			it.err = fmt.Errorf("tier: level %s returned %d bytes of object %v, which has %d: %w",
				l.name, len(gets[i].Bytes), it.key, len(it.placed.Bytes), ErrCorrupt)
		case it.err == nil || !errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt):
			it.err = err
		}
	}
}

// place is Get.Into: it returns the reserved bytes. The level's description must be the one that the place
// was reserved for. The level reads in its own goroutines, where no guard helps: if something cuts the
// segment short meanwhile, the process ends. Without that, every object would be copied once more.
func (it *transferItem) place(o Object) ([]byte, error) {
	if o.Key != it.object.Key || o.Size != it.object.Size {
		return nil, fmt.Errorf("tier: object %v of %d bytes was looked up, and %v of %d bytes found: %w",
			it.object.Key, it.object.Size, o.Key, o.Size, ErrCorrupt)
	}
	return it.placed.Bytes, nil
}

// commit commits what was read, in order, and gives up the other reservations.
func (t *transfer) commit() {
	t.mu.Lock()
	defer t.mu.Unlock()
	var commit, abort []Key
	committing := map[Key]bool{}
	for _, it := range t.items {
		if it.placed.Err != nil {
			continue
		}
		if it.from != nil && (it.deleted || t.blocked[it.key] > 0) {
			it.from, it.err = nil, errCancelled
		}
		parent, _ := it.object.ParentKey()
		if it.needsParent && it.from != nil && !committing[parent] && !t.inMemory(parent) {
			it.from, it.err = nil, errWithoutParent(it.fetch)
		}
		if it.from == nil {
			abort = append(abort, it.key)
			continue
		}
		commit = append(commit, it.key)
		committing[it.key] = true
	}
	lease := t.promoted.lease
	lease.Abort(abort) // first: a child whose parent is given up is given up, too
	errs := map[Key]error{}
	for i, err := range lease.Commit(commit) {
		errs[commit[i]] = err
	}
	for _, it := range t.items {
		if it.from == nil {
			continue
		}
		if it.err = errs[it.key]; it.err == nil {
			it.copies = t.copiesOf(it)
		}
	}
}

// inMemory reports whether memory has an object.
func (t *transfer) inMemory(k Key) bool { return t.memory.Stat(t.ctx, []Key{k})[0].Err == nil }

// copiesOf returns the levels faster than the one that had the object which are to have a copy, since it was
// asked for as often as their Lower.PromoteAfter says. The lock is held.
func (t *transfer) copiesOf(it *transferItem) (copies levelSet) {
	n := t.ghosts.counted(it.key)
	if !it.counted {
		n = t.ghosts.count(it.key)
	}
	for _, l := range t.lower[:it.from.index] {
		if l.PromoteAfter > 0 && n >= l.PromoteAfter && !l.health.isAway() {
			copies |= l.bit()
		}
	}
	return copies
}

// finishAll finishes the fetches.
func (t *transfer) finishAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, it := range t.items {
		switch {
		case it.from != nil && it.err == nil:
			t.report.event(1+it.from.index, kindPromoted, it.key, it.object.Size, nil)
			t.succeed(it.fetch)
		case errors.Is(it.placed.Err, ErrExists):
			t.succeed(it.fetch)
		case errors.Is(it.placed.Err, ErrPending):
			t.finish(it.fetch, errAskAgain)
		default:
			t.fail(it)
		}
	}
}

// fail finishes a fetch whose object did not get into memory.
func (t *transfer) fail(it *transferItem) {
	err := it.err
	switch {
	case err == nil: // no level was left to read it from
		err = errNowhere(it.key)
	case t.ctx.Err() != nil || errors.Is(err, context.Canceled):
		err = errCancelled
	case !errors.Is(err, ErrFull) && !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrNotFound):
		err = addFailure(errNowhere(it.key), err)
	}
	t.report.event(1+it.level, kindNotPromoted, it.key, it.object.Size, err)
	if isPlainMiss(err) {
		t.negative.add(it.key, it.version, it.began, err)
	}
	t.finish(it.fetch, err)
}
