package shmstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/line"
	"github.com/ringcache/ringcache/internal/payload"
	"github.com/ringcache/ringcache/shmring"
)

// PutOptions are what can be said of an object besides its bytes.
type PutOptions struct {
	// Tenant is whose bytes they are, see Options.Quotas.
	Tenant string
	// Cost is the time that making the object again would take, by which the store
	// chooses what to evict. 0 estimates it from the size: 3 ms, and 8 ms for each MiB.
	//
	// It is a hint, since nobody can check it. It is compared with what the same tenant usually says of
	// objects of this size, and makes the object worth up to four times as much as without a cost, never
	// less. It counts no more when the memory was filled anew eight times without a use of the object.
	Cost time.Duration
	// Note is kept with the object in the segment, see Object.Note.
	Note []byte
	// Wait, if not nil, makes the call wait for room until it ends; its error is then
	// both the context's and a [FullError].
	//
	// Those who wait get room in the order in which they came. A call that does not
	// wait may take what they wait for, within limits: after a store full of bytes, as
	// many are refused with FullError.Waiting, and so on. So whoever waits for much gets it
	// once the requests that are open then have ended. Uses of objects that are there
	// are never refused: an object that is leased without a pause stays where it is.
	Wait context.Context
	// Front is for a store with a PayloadOwner: so many bytes of the payload are its
	// front, with which Reservation.Bytes begins, and the others its back, with which
	// Reservation.Bytes ends. Between them the store keeps the description, and so many
	// bytes of 0 that byte AlignAt of the back is at a multiple of 64 in the segment.
	Front, AlignAt int
}

// mayPut returns what is in the way of an object under a key, besides room.
func (r *Request) mayPut(key string) error {
	switch {
	case r.s.state.Closed:
		return r.s.closedError()
	case r.state != requestOpen:
		return r.notOpen()
	}
	return r.s.lifetime.mayPut(key)
}

// Put reserves n bytes, copies the payload there, and commits it with one use.
func (r *Request) Put(key string, payload []byte, o PutOptions) (*Object, error) {
	res, err := r.Reserve(key, len(payload), o)
	if err != nil {
		return nil, err
	}
	defer res.Discard()
	if err := r.s.durability.guardObject(res.o, func() error { copy(res.Bytes(), payload); return nil }); err != nil {
		return nil, err
	}
	return res.Commit(1)
}

// Reserve takes a chunk for a payload of n bytes. No error leaves anything behind:
//   - [ErrKeyExists]: use Lookup;
//   - [TooLargeError], or [FullError] after everything idle that helps was evicted;
//   - [ErrEnded], fs.ErrClosed, fs.ErrInvalid.
//
// The caller must fill all of it: what is not filled still has the bytes of an older
// object.
//
//	res, err := r.Reserve(key, n, shmstore.PutOptions{})
//	if err != nil { ... }
//	defer res.Discard() // does nothing after Commit
//	fill(res.Bytes())
//	o, err := res.Commit(1)
func (r *Request) Reserve(key string, n int, po PutOptions) (*Reservation, error) {
	s := r.s
	front, back := n, 0
	if !s.durability.plain {
		front, back = po.Front, n-po.Front
	}
	switch {
	case n < 0 || front < 0 || back < 0:
		return nil, fmt.Errorf("%w: a payload of %d bytes, %d of them in front", errInvalid, n, front)
	case n > s.opt.maxObjectSize():
		return nil, &TooLargeError{Size: n, Limit: s.opt.maxObjectSize()}
	}
	if s.durability.plain {
		front += payload.MinOffset(true)
	}
	o := s.lifetime.newObject()
	o.key, o.cost = newKey(key), float64(max(po.Cost, 0))
	o.describeMore(po.Tenant, bytes.Clone(po.Note), s.space.families.parentOf != nil)
	description := payload.Description{Cost: o.cost, Key: key, Tenant: po.Tenant, Note: o.Note()}
	length := description.Size()
	gap := length
	if !s.durability.plain {
		gap += padding(front + gap + po.AlignAt)
	}
	if gap > math.MaxInt-front-back {
		return nil, &TooLargeError{Size: math.MaxInt, Limit: s.opt.maxObjectSize()}
	}
	o.chunk.descriptionOffset, o.chunk.descriptionLength = uint32(front), uint32(length)
	chunk, err := r.allocate(po.Wait, o, key, front+gap+back)
	if err != nil {
		return nil, err
	}
	res := &Reservation{r: r, o: o, key: key, payload: chunk, front: front}
	failpoint.Hit("reserve.copy")
	err = s.durability.guardObject(o, func() error {
		if s.durability.plain {
			clear(chunk[:payload.MinOffset(true)])
		}
		description.Write(chunk[front : front+length])
		failpoint.Hit("reserve.copy.meta")
		clear(chunk[front+length : front+gap]) // no bytes of older objects between
		return nil
	})
	if err != nil {
		res.Discard()
		return nil, err
	}
	return res, nil
}

// padding returns how many bytes have to stand in front of the byte at a place in a
// chunk's payload, so that it is at a multiple of 64 bytes in the segment: chunks are.
func padding(at int) int {
	at += shmring.HeaderSize
	return (payload.MinAlign - at%payload.MinAlign) % payload.MinAlign
}

// allocate allocates a chunk for an object, which becomes pending, and holds the
// segment. With a context it waits for room.
func (r *Request) allocate(ctx context.Context, o *Object, key string, size int) (payload []byte, err error) {
	s := r.s
	if err := s.lock(); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if err := r.mayPut(key); err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			r.pending++
		}
	}()
	payload, err = s.allocate(o, key, size, line.Passing)
	if ctx == nil || !isFull(err) {
		return payload, err
	}
	w := &line.Waiter{Need: s.space.extent(size), Tenant: o.tenant(), Key: key}
	if r.waiters == nil {
		r.waiters = map[*line.Waiter]struct{}{}
	}
	r.waiters[w] = struct{}{}
	defer delete(r.waiters, w)
	err = s.space.waiters.Wait(ctx, &s.mu, w, err, line.Attempt{
		Line:  func(err error) *line.Line { return s.space.lineOf(err, o.tenant()) },
		Retry: isFull,
		Check: func() error { return r.mayPut(key) },
		Try: func(as line.Role) (err error) {
			payload, err = s.allocate(o, key, size, as)
			return err
		},
	})
	return payload, err
}

func isFull(err error) bool { return errors.Is(err, shmring.ErrFull) }

// allocate allocates a chunk for an object, which becomes pending, and holds the segment.
func (s *Store) allocate(o *Object, key string, size int, as line.Role) (payload []byte, err error) {
	if err := s.seg.Hold(); err != nil {
		return nil, err
	}
	payload, err = s.space.reserve(o, key, size, as)
	if err != nil {
		s.seg.Release()
		if never := (*shmring.TooLargeError)(nil); errors.As(err, &never) {
			limit := never.Limit - shmring.HeaderSize
			err = &TooLargeError{Size: size, Limit: limit, Ring: never.Limit < shmring.MaxChunk, Format: never.Limit == shmring.MaxChunk}
		}
		return nil, err
	}
	s.lifetime.pending.add(o)
	mustHold(s.space.checkBytes, o)
	return payload, nil
}
