package chunks

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/blend/rope"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/tier"
)

// Options say what a library keeps.
type Options struct {
	Store *tier.Store
	Space string
	Shape blend.Shape
	// Scheme is that of the names, and has the tokens of a chunk. Its zero value is LMCache's, with 256.
	Scheme kv.Scheme
	// Segments, if it is not nil, is of segments ([kv.NewSegmentDatabase]): what stands between separators is a
	// chunk then, of any length, with the hash of its key as its name. Scheme has no meaning.
	Segments *kv.TokenDatabase
	// LeaseTime is how long a request keeps its chunks at most, since a process that is killed releases none.
	// Its moves must be done by then. 0 is 10 minutes.
	LeaseTime time.Duration
}

// A Library is the chunks of one space of a store.
type Library struct {
	store     *tier.Store
	space     string
	shape     blend.Shape
	index     index
	segments  bool
	leaseTime time.Duration
}

// index is a blend.Index, or segments.
type index interface {
	Name(tokens []int64) (string, error)
	Insert(fingerprint uint64, name string) error
	Remove(name string) bool
	Find(prompt []int64) ([]blend.Match, error)
	Len() int
}

// Open opens a library, and looks which chunks the levels have.
func Open(ctx context.Context, o Options) (*Library, error) {
	if err := o.Shape.Validate(); err != nil {
		return nil, err
	}
	if o.Store == nil || o.Space == "" || o.LeaseTime < 0 {
		return nil, invalid("a library needs a store and a space, and no negative time")
	}
	l := &Library{
		store: o.Store, space: o.Space, shape: o.Shape, leaseTime: cmp.Or(o.LeaseTime, 10*time.Minute),
		segments: o.Segments != nil,
	}
	window := 0
	if l.segments {
		l.index = &segments{database: o.Segments, known: map[string]bool{}}
	} else {
		index, err := blend.NewIndex(o.Scheme)
		if err != nil {
			return nil, err
		}
		l.index, window = index, index.Window()
	}
	for object, err := range o.Store.List(ctx, o.Space) {
		if err != nil {
			return nil, err
		}
		note, err := ReadNote(object)
		if err != nil || note.Shape != o.Shape || note.Segment != l.segments || window > 0 && note.Tokens != window {
			continue // another program's, or of another window
		}
		if err := l.index.Insert(note.Fingerprint, object.Name); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Len returns the number of chunks that are known.
func (l *Library) Len() int { return l.index.Len() }

// Put stores the KV of the tokens of one chunk. It is copied.
func (l *Library) Put(ctx context.Context, tokens []int64, chunk blend.Chunk) error {
	if len(tokens) == 0 || chunk.Tokens != len(tokens) || chunk.Shape != l.shape {
		return invalid("%d tokens and KV of %d of %+v; a chunk is of %+v",
			len(tokens), chunk.Tokens, chunk.Shape, l.shape)
	}
	if _, err := blend.View(chunk.Shape, chunk.Tokens, chunk.Bytes); err != nil {
		return err
	}
	name, err := l.index.Name(tokens)
	if err != nil {
		return err
	}
	fingerprint := blend.Fingerprints(tokens, len(tokens))[0]
	note, err := Note{chunk.Shape, chunk.Tokens, fingerprint, chunk.Position, chunk.Unrotated, l.segments}.encode()
	if err != nil {
		return err
	}
	put := []tier.Put{{
		Object: tier.Object{Key: tier.Key{Space: l.space, Name: name}, Size: int64(len(chunk.Bytes)), Note: note},
		Bytes:  chunk.Bytes,
	}}
	l.store.Put(ctx, put)
	if put[0].Err != nil {
		return put[0].Err
	}
	return l.index.Insert(fingerprint, name)
}

// Find returns the chunks in a prompt that cover the most of it.
func (l *Library) Find(prompt []int64) ([]blend.Match, error) {
	matches, err := l.index.Find(prompt)
	return blend.Optimal(matches), err
}

// A Request has the chunks of a prompt pinned.
type Request struct {
	// Cover is the chunks that are there, in order.
	Cover  []blend.Match
	lease  *tier.StoreLease
	chunks []blend.Chunk // of the cover
}

// pollInterval is how often a store is asked for what it fetches.
const pollInterval = 5 * time.Millisecond

// Begin pins chunks under a lease, whose ID begins with the name, and waits until those that are in lower
// levels have been fetched. What can't be pinned is not in the cover of the request: what memory has no room
// for, what is in a level that is away, what somebody is storing. What is not there any more is forgotten,
// too.
func (l *Library) Begin(ctx context.Context, name string, cover []blend.Match) (*Request, error) {
	// Two requests of the same name must not share a lease: the first one's end would be that of both.
	id := name + " " + rand.Text()
	lease, err := l.store.Lease(ctx, tier.LeaseOptions{ID: id, Owner: "blend", Until: time.Now().Add(l.leaseTime)})
	if err != nil {
		return nil, err
	}
	r := &Request{lease: lease}
	placed, err := l.pin(ctx, lease, cover)
	if err != nil {
		lease.Release()
		return nil, err
	}
	for i, p := range placed {
		chunk, err := l.chunk(p, cover[i].End-cover[i].Start)
		if errors.Is(err, tier.ErrNotFound) && !errors.Is(err, tier.ErrUnavailable) {
			l.index.Remove(cover[i].Name)
		}
		if err == nil {
			r.Cover, r.chunks = append(r.Cover, cover[i]), append(r.chunks, chunk)
		}
	}
	return r, nil
}

func (l *Library) pin(ctx context.Context, lease *tier.StoreLease, cover []blend.Match) ([]tier.Placed, error) {
	keys := make([]tier.Key, len(cover))
	for i, m := range cover {
		keys[i] = tier.Key{Space: l.space, Name: m.Name}
	}
	for {
		placed, pending := lease.Pin(keys), false
		for _, p := range placed {
			pending = pending || errors.Is(p.Err, tier.ErrPending) && !errors.Is(p.Err, tier.ErrReserved)
		}
		if !pending {
			return placed, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

func (l *Library) chunk(p tier.Placed, tokens int) (blend.Chunk, error) {
	if p.Err != nil {
		return blend.Chunk{}, p.Err
	}
	note, err := ReadNote(p.Object)
	if err != nil {
		return blend.Chunk{}, err
	}
	if note.Shape != l.shape || note.Tokens != tokens {
		return blend.Chunk{}, invalid("%s is of %+v", p.Object.Key, note)
	}
	kv, err := blend.View(note.Shape, note.Tokens, p.Bytes)
	return blend.Chunk{KV: kv, Position: note.Position, Unrotated: note.Unrotated}, err
}

// Moves returns the moves of the chunks into the KV of the prompt. They read what is pinned.
func (r *Request) Moves(t *rope.Table, prompt blend.KV) ([]*blend.Move, error) {
	var out []*blend.Move
	for i, m := range r.Cover {
		move, err := blend.NewMove(t, prompt, m.Start, r.chunks[i])
		if err != nil {
			return nil, err
		}
		out = append(out, move)
	}
	return out, nil
}

// Bytes returns the bytes of the chunks.
func (r *Request) Bytes() int64 {
	n := int64(0)
	for _, c := range r.chunks {
		n += int64(len(c.Bytes))
	}
	return n
}

// Release ends the lease. The moves must not be used any more. Releasing twice is fine.
func (r *Request) Release() { r.lease.Release() }
