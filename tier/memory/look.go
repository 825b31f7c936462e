package memory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"sync"

	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
	"github.com/ringcache/ringcache/tier"
)

// Look opens the segment of a level to read it, beside the process that serves it, or after that has
// ended. The level that Look returns answers Put and Delete with errors.ErrUnsupported: leases and room are the matter of the process that serves
// the segment. Usage reports objects and bytes as of the last List, and counts no lease. A listing is a
// search through the whole table of the segment, and so is each Stat and Get. dir is the directory of
// shared memory, /dev/shm if empty. The errors are those of shmstore.Open, and fs.ErrInvalid for a segment of something else.
func Look(name, dir string) (tier.Level, error) {
	r, err := shmstore.Open(name, shmstore.ReaderOptions{Dir: dir, Owned: true})
	if err != nil {
		return nil, fmt.Errorf("memory: looking at segment %s: %w", name, err)
	}
	if f := r.Format(); f != format {
		return nil, errors.Join(fmt.Errorf("memory: segment %s has the format %q, not %q: something else made it: %w", name, f, format, fs.ErrInvalid), r.Close())
	}
	return &reader{r: r}, nil
}

// reader is a level that is only read.
type reader struct {
	r *shmstore.Reader

	mu      sync.Mutex
	usage   tier.Usage
	known   map[tier.Key]*shmstore.Object // of the last whole listing
	corrupt int64                         // found by Get
	closed  bool
}

// Name implements tier.Level.
func (l *reader) Name() string { return "memory" }

func (l *reader) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fmt.Errorf("memory: the level is closed: %w", fs.ErrClosed)
	}
	return nil
}

// all lists the objects as they are and as the store has them, and counts those that are damaged.
func (l *reader) all(ctx context.Context) iter.Seq2[tier.Object, *shmstore.Object] {
	return func(yield func(tier.Object, *shmstore.Object) bool) {
		u := tier.Usage{Held: -1, Evicted: -1, Capacity: int64(len(l.r.Segment().Ring()))}
		known := map[tier.Key]*shmstore.Object{}
		for o, err := range l.r.List() {
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				u.Corrupt++
				continue
			}
			t, ok := describe(o)
			if !ok {
				u.Corrupt++
				continue
			}
			u.Objects, u.Bytes = u.Objects+1, u.Bytes+t.Size
			known[t.Key] = o
			if !yield(t, o) {
				return
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.usage, l.known = u, known
	}
}

// List implements tier.Level.
func (l *reader) List(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
	return func(yield func(tier.Object, error) bool) {
		if err := l.begin(); err != nil {
			yield(tier.Object{}, err)
			return
		}
		for t := range l.all(ctx) {
			if (space == "" || t.Space == space) && !yield(t, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(tier.Object{}, err)
		}
	}
}

// find returns the objects of keys, those of the last listing if it has them all.
func (l *reader) find(ctx context.Context, keys []tier.Key) (map[tier.Key]*shmstore.Object, error) {
	if err := l.begin(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	known := l.known
	l.mu.Unlock()
	for _, k := range keys {
		if known[k] == nil {
			return l.list(ctx)
		}
	}
	return known, ctx.Err()
}

// list returns all objects.
func (l *reader) list(ctx context.Context) (map[tier.Key]*shmstore.Object, error) {
	for range l.all(ctx) {
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known, ctx.Err()
}

// Stat implements tier.Level. What went since the last listing may be described, too.
func (l *reader) Stat(ctx context.Context, keys []tier.Key) []tier.Found {
	out := make([]tier.Found, len(keys))
	known, err := l.find(ctx, keys)
	for i, k := range keys {
		out[i].Err = err
		if err != nil {
			continue
		}
		if o := known[k]; o == nil {
			out[i].Err = missing(k)
		} else {
			out[i].Object, _ = describe(o)
		}
	}
	return out
}

func missing(k tier.Key) error { return &objectError{key: k, kind: tier.ErrNotFound} }

// Get implements tier.Level.
func (l *reader) Get(ctx context.Context, gets []tier.Get) {
	var keys []tier.Key
	for _, g := range gets {
		keys = append(keys, g.Key)
	}
	known, err := l.find(ctx, keys)
	for i := range gets {
		g := &gets[i]
		g.Object, g.Bytes = tier.Object{}, nil
		if g.Err = err; err == nil {
			g.Err = l.read(ctx, known[g.Key], g)
		}
		if errors.Is(g.Err, shmstore.ErrStale) { // it may be in another place by now
			if now, err := l.list(ctx); err == nil {
				g.Err = l.read(ctx, now[g.Key], g)
			}
		}
		if g.Err != nil {
			g.Bytes = nil
		}
	}
}

// read verifies an object and copies it out under a view, which keeps it in place.
func (l *reader) read(ctx context.Context, o *shmstore.Object, g *tier.Get) error {
	if o == nil {
		return missing(g.Key)
	}
	v, err := l.r.Get(o.Handle())
	if err != nil {
		return answer(g.Key, err) // a stale one went meanwhile
	}
	defer v.Release()
	if err := v.Verify(o); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.corrupt++
		return &objectError{key: g.Key, kind: tier.ErrNotFound, cause: errors.Join(tier.ErrCorrupt, err)}
	}
	g.Object, _ = describe(o)
	return deliver(ctx, l.r.Segment(), g, tail(v.Bytes(), g.Object.Size))
}

// Put implements tier.Level.
func (l *reader) Put(_ context.Context, puts []tier.Put) {
	for i := range puts {
		puts[i].Err = errOnlyRead
	}
}

// Delete implements tier.Level.
func (l *reader) Delete(_ context.Context, keys []tier.Key) []error {
	out := make([]error, len(keys))
	for i := range out {
		out[i] = errOnlyRead
	}
	return out
}

var errOnlyRead = fmt.Errorf("memory: the segment is only read here: %w", errors.ErrUnsupported)

// Usage implements tier.Level.
func (l *reader) Usage() tier.Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.usage
	u.Corrupt += l.corrupt
	return u
}

// Close implements tier.Level.
func (l *reader) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	err := l.r.Close()
	l.closed = !errors.Is(err, segment.ErrBusy)
	return err
}
