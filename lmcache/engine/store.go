package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/tier"
)

// Stored is what became of the tokens of a request. The rest, from Skip on, had no room or are no whole chunk.
type Stored struct {
	New   int // tokens that were stored
	There int // tokens of chunks that memory had already, or that somebody else is storing
}

// Store copies the KV of the chunks of a request from their slots straight into the memory level, from which
// lower levels get it. Chunks that memory has already are left as they are; those that only a lower level has
// come back to memory so. Store ends with the first one that has no room, since those behind it are worthless
// without it: that is no error. After an error, a chunk is there whole or not at all.
func (e *Engine) Store(ctx context.Context, r Request) (Stored, error) {
	var done Stored
	if err := e.needLayered(false); err != nil {
		return done, err
	}
	chunks, err := e.storable(ctx, r)
	if err != nil || len(chunks) == 0 {
		return done, err
	}
	lease, err := e.lease(ctx)
	if err != nil {
		return done, err
	}
	defer lease.Release() // which gives up what was not committed
	for some := range slices.Chunk(chunks, maxBatch) {
		if err := errors.Join(ctx.Err(), e.renew(lease)); err != nil {
			return done, err
		}
		full, err := e.storeSome(lease, some, r.Slots, &done)
		if err != nil || full {
			return done, err
		}
	}
	return done, nil
}

// storable returns the chunks of a request that can be stored. What is there and has expired goes first.
func (e *Engine) storable(ctx context.Context, r Request) ([]*chunk, error) {
	chunks, err := e.chunks(r, true)
	if err != nil {
		return nil, err
	}
	for _, c := range chunks {
		for i, s := range r.Slots[c.start:c.end] {
			if s < 0 {
				return nil, invalid(fmt.Errorf("token %d has no slot: it is %d", c.start+i, s))
			}
		}
	}
	if e.o.TTL > 0 {
		err = e.deleteExpired(ctx, chunks)
	}
	return chunks, err
}

func (e *Engine) deleteExpired(ctx context.Context, chunks []*chunk) error {
	for _, layer := range e.parts() {
		for some := range slices.Chunk(e.keysOf(chunks, layer), maxBatch) {
			var old []tier.Key
			for i, found := range e.o.Store.Stat(ctx, some) {
				if found.Err == nil && e.expired(found.Object) {
					old = append(old, some[i])
				}
			}
			e.o.Store.Delete(ctx, old) // what is in use stays, and is not stored again
		}
	}
	return ctx.Err()
}

// storeSome stores chunks, and reports whether one had no room.
func (e *Engine) storeSome(
	lease *tier.StoreLease, chunks []*chunk, slots []int64, done *Stored,
) (full bool, err error) {
	objects := make([]tier.Object, len(chunks))
	for i, c := range chunks {
		objects[i] = e.objectOf(c, whole)
	}
	var reserved []tier.Key
	tokens := 0
	for i, p := range lease.Reserve(objects) {
		c := chunks[i]
		switch {
		case isThere(p.Err):
			if !full {
				done.There += c.tokens()
			}
		case isFull(p.Err):
			full = true
		case p.Err != nil:
			return false, p.Err
		case full:
			lease.Abort([]tier.Key{objects[i].Key})
		default:
			if err := e.o.Buffers.Gather(p.Bytes, slots[c.start:c.end]); err != nil {
				return false, err
			}
			reserved = append(reserved, objects[i].Key)
			tokens += c.tokens()
		}
	}
	if err := held(lease); err != nil {
		return false, err
	}
	if err := errors.Join(lease.Commit(reserved)...); err != nil {
		return false, err
	}
	done.New += tokens
	lease.Unpin(reserved)
	return full, nil
}

// isThere reports that an object need not be stored: it is there, or somebody is storing it.
func isThere(err error) bool {
	return errors.Is(err, tier.ErrExists) || errors.Is(err, tier.ErrPending)
}

func isFull(err error) bool { return errors.Is(err, tier.ErrFull) || errors.Is(err, tier.ErrTooLarge) }
