package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"sync"
	"time"

	"github.com/ringcache/ringcache/internal/evict"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/internal/slots"
)

// Level is a folder that is open. It implements [tier.Level].
//
// When the folder or its lock file is removed, every call fails with ErrUnavailable, until the folder is
// there again: then the level locks and indexes it as Open does.
type Level struct {
	path    string
	o       Options
	counted counters

	mu      sync.Mutex // guards what follows; never held while root.mu is taken
	root    *root
	closed  bool
	tried   time.Time      // when a missing folder was last looked for
	opening bool           // a call is in openRoot
	calls   sync.WaitGroup // that have not returned; Close waits for them
}

var _ tier.Level = (*Level)(nil)

// Open opens a folder, which it makes if it is not there, and locks it for this process. It returns
// before the index is complete, see [Level.WaitIndex].
//
// It refuses, as an ErrUnavailable, a folder that another process has open; as an fs.ErrInvalid, one of
// another layout or space, or with a link in place of a folder of .ringcache; as an fs.ErrExist, one with
// files that is not a root, unless it is shared; and as an errors.ErrUnsupported, systems other than Linux.
func Open(folder string, o Options) (*Level, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	l := &Level{path: folder, o: o.withDefaults()}
	r, err := openRoot(folder, l.o, true, &l.counted)
	if err != nil {
		if explainsItself(err) {
			return nil, err
		}
		return nil, explain(folder, "opening the root", err)
	}
	l.root = r
	return l, nil
}

// enter begins a call, which ends with l.calls.Done, and returns the root for it. The folder of the root was
// there a moment ago.
func (l *Level) enter() (*root, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, fmt.Errorf("disk: %s: the level is closed: %w", l.path, fs.ErrClosed)
	}
	l.calls.Add(1) // under mu: Close sets closed first, and then waits for calls
	r := l.root
	l.mu.Unlock()
	err := r.folder.checkThere()
	if err == nil {
		return r, nil
	}
	// replaced: another call has opened the folder since l.root was read, and the error is that of the old
	// root.
	if errors.Is(err, errRootGone) || r.replaced.Load() {
		if again := l.reopen(r); again != nil {
			return again, nil
		}
	}
	l.calls.Done()
	return nil, r.explain("looking for the folder", err)
}

// reopen opens the folder of a root that was removed, if it is there again, at most once in each o.retry. It
// returns nil if it is not.
func (l *Level) reopen(old *root) *root {
	l.mu.Lock()
	switch {
	case l.root != old:
		defer l.mu.Unlock()
		return l.root // another call has opened it
	// Opening may take long, on a network file system for example, so mu is not held: other calls fail
	// meanwhile.
	case l.opening || l.o.now().Sub(l.tried) < l.o.retry:
		l.mu.Unlock()
		return nil
	}
	l.opening, l.tried = true, l.o.now()
	l.mu.Unlock()

	r, err := openRoot(l.path, l.o, false, &l.counted)

	l.mu.Lock()
	l.opening = false
	if err == nil {
		l.root = r
	}
	l.mu.Unlock()
	if err != nil {
		return nil
	}
	old.replaced.Store(true) // before close, so that calls that still use the old root can explain their errors
	_ = old.close()          // an error would be about files that are gone
	return r
}

// Name is "disk".
func (l *Level) Name() string { return "disk" }

// Stat implements [tier.Level]. It keeps an object for Options.MinAge.
func (l *Level) Stat(ctx context.Context, keys []tier.Key) []tier.Found {
	return l.eachKey(ctx, keys, func(r *root, k tier.Key) (tier.Object, error) { return r.stat(ctx, k) })
}

// Pin is Stat, and keeps the objects that are there until a time: they are not evicted, and Delete fails with
// ErrInUse. Of two pins for an object the later time counts. Damage ends a pin, and so does the end of the
// process.
func (l *Level) Pin(ctx context.Context, keys []tier.Key, until time.Time) []tier.Found {
	return l.eachKey(ctx, keys, func(r *root, k tier.Key) (tier.Object, error) { return r.pin(ctx, k, until) })
}

// eachKey calls f for each key, with the root, and explains its errors.
func (l *Level) eachKey(ctx context.Context, keys []tier.Key,
	f func(*root, tier.Key) (tier.Object, error)) []tier.Found {
	found := make([]tier.Found, len(keys))
	r, err := l.enter()
	if err == nil {
		defer l.calls.Done()
	}
	for i, k := range keys {
		e := err
		if e == nil {
			e = ctx.Err()
		}
		if e == nil {
			found[i].Object, e = f(r, k)
			e = r.explainFor("looking for", k, e)
		}
		found[i].Err = e
	}
	return found
}

// Get implements [tier.Level].
func (l *Level) Get(ctx context.Context, gets []tier.Get) {
	for i := range gets { // the caller may use the slice again
		gets[i].Object, gets[i].Bytes = tier.Object{}, nil
	}
	r, err := l.enter()
	if err != nil {
		for i := range gets {
			gets[i].Err = err
		}
		return
	}
	defer l.calls.Done()
	slots.Each(len(gets), r.o.Workers, func(i int) {
		g := &gets[i]
		err := ctx.Err()
		if err == nil {
			err = r.explainFor("reading", g.Key, r.get(ctx, g))
		}
		g.Err = err
	})
}

// Put implements [tier.Level]. To make room, it evicts the objects whose loss costs least per byte, leaves
// first. It fails with ErrFull if that is not enough. A full file system is handled like a full level.
func (l *Level) Put(ctx context.Context, puts []tier.Put) {
	r, err := l.enter()
	if err == nil {
		defer l.calls.Done()
		err = r.writable()
	}
	if err != nil {
		for i := range puts {
			puts[i].Err = err
		}
		return
	}
	r.put(ctx, puts)
}

// SetQuotas takes the place of Options.Quotas and Options.Quota. A tenant that has more keeps it until the
// next Put of one of its objects.
func (l *Level) SetQuotas(quotas map[string]int64, each int64) {
	l.o.quotas.Store(&evict.Quotas{Of: quotas, Each: each})
}

// Delete implements [tier.Level].
func (l *Level) Delete(ctx context.Context, keys []tier.Key) []error {
	errs := make([]error, len(keys))
	r, err := l.enter()
	if err == nil {
		defer l.calls.Done()
		err = r.writable()
	}
	for i, k := range keys {
		errs[i] = err
		if err == nil {
			errs[i] = r.explainFor("deleting", k, r.delete(ctx, k))
		}
	}
	return errs
}

// writable refuses writes to a root that is only read.
func (r *root) writable() error {
	if r.o.ReadOnly {
		return fmt.Errorf("disk: %s was opened with Options.ReadOnly: %w", r.folder.path, tier.ErrUnavailable)
	}
	return nil
}

// List implements [tier.Level]. It waits for the index, and reads the head of each file. Of a shared tree it
// lists what the last search found. A file that can't be read is an error at the end, after all objects.
func (l *Level) List(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
	return func(yield func(tier.Object, error) bool) {
		entries, failed := l.list(ctx, space)
		for _, e := range entries {
			o, err := l.listed(ctx, e)
			switch {
			case errors.Is(err, tier.ErrNotFound), err == nil && space != "" && o.Space != space:
				continue // it was removed or replaced meanwhile
			case ctx.Err() != nil, errors.Is(err, fs.ErrClosed):
				yield(tier.Object{}, err)
				return
			case err != nil:
				failed = err
				continue
			}
			if !yield(o, nil) {
				return
			}
		}
		if failed != nil {
			yield(tier.Object{}, failed)
		}
	}
}

// listed returns the object of an entry. The level may be closed or reopened between two of them, so each is
// a call of its own.
func (l *Level) listed(ctx context.Context, e *entry) (tier.Object, error) {
	if err := ctx.Err(); err != nil {
		return tier.Object{}, err
	}
	r, err := l.enter()
	if err != nil {
		return tier.Object{}, err
	}
	defer l.calls.Done()
	if err := r.slots.Acquire(ctx); err != nil {
		return tier.Object{}, err
	}
	defer r.slots.Release()
	p := e.path()
	f, err := r.openObject(p)
	switch {
	case errors.Is(err, tier.ErrCorrupt):
		return tier.Object{}, r.missDamaged(p, f.info, err)
	case err != nil:
		return tier.Object{}, r.explain("reading "+p, err)
	}
	return f.head.Object, f.file.Close()
}

// list returns the entries of a space, and why they may not be all.
func (l *Level) list(ctx context.Context, space string) ([]*entry, error) {
	r, err := l.enter()
	if err != nil {
		return nil, err
	}
	defer l.calls.Done()
	err = r.wait(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	var entries []*entry
	for _, e := range r.x.entries {
		if e.state == present && (space == "" || e.key.space == hashOfSpace(space)) {
			entries = append(entries, e)
		}
	}
	return entries, err
}

// wait waits for the first search, and returns the error of the last search.
func (r *root) wait(ctx context.Context) error {
	select {
	case <-r.indexed:
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.explain("searching the folder", r.search.Err)
	case <-ctx.Done():
		return ctx.Err()
	case <-r.ctx.Done():
		return r.explain("searching the folder", fmt.Errorf("the level was closed meanwhile: %w", fs.ErrClosed))
	}
}

// WaitIndex waits until the index has every object of the folder. Only List needs that.
func (l *Level) WaitIndex(ctx context.Context) error {
	r, err := l.enter()
	if err != nil {
		return err
	}
	defer l.calls.Done()
	return r.wait(ctx)
}

// Indexed returns the progress of the search that builds the index.
func (l *Level) Indexed() Search {
	r := l.currentRoot()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.search
}

// Verify reads every file of the folder and compares it with its checksum, as far as it has one.
// Damaged files are removed, as by Get, unless the level is only read. Indexed has the number of files, and
// Usage their bytes. A second value that is not nil ends the iteration: the folder could not be read to its
// end.
func (l *Level) Verify(ctx context.Context) iter.Seq2[Verified, error] {
	return func(yield func(Verified, error) bool) {
		r, err := l.enter()
		if err == nil {
			// yield may call Close, which waits for calls: verify ends this call before the first yield.
			err = r.verify(ctx, l.calls.Done, func(v Verified) bool { return yield(v, nil) })
			err = r.explain("reading every file", err)
		}
		if err != nil {
			yield(Verified{}, err)
		}
	}
}

// Usage implements [tier.Level]. Held are the bytes that are being written or were pinned; Options.MinAge
// is not counted. Until the index is complete, objects that it has not reached are missing.
func (l *Level) Usage() tier.Usage {
	r := l.currentRoot()
	r.mu.Lock()
	defer r.mu.Unlock()
	u := tier.Usage{
		Objects: r.x.objects, Bytes: r.x.occupied(), Capacity: r.o.Capacity, Held: r.x.reserved,
		Evicted: l.counted.evicted.Load(), Corrupt: l.counted.corrupt.Load(), Tenants: map[string]int64{},
	}
	for name, t := range r.x.tenants {
		u.Tenants[name] = t.bytes
	}
	now := r.o.now()
	for p := range r.x.pins {
		if e := r.x.entries[p]; e != nil && r.x.pinned(p, now) {
			u.Held += e.bytes
		}
	}
	return u
}

// Close ends the searches, waits for the calls that have not returned, and unlocks the folder. The files
// stay.
func (l *Level) Close() error {
	l.mu.Lock()
	again := l.closed
	l.closed = true
	l.mu.Unlock()
	if !again {
		l.currentRoot().cancel() // ends the searches, and the calls that wait for them
	}
	l.calls.Wait()
	if again {
		return nil
	}
	return l.currentRoot().close() // a call may have reopened the folder meanwhile
}

// currentRoot returns the root without a look at the folder.
func (l *Level) currentRoot() *root {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.root
}
