package redis

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"

	goredis "github.com/redis/go-redis/v9"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/internal/remote"
)

const (
	// streamPart is what a Get with To reads at a time, and what it keeps in memory, if the bytes have a
	// checksum.
	streamPart = 4 << 20
	// pipelineBytes is about the most that one pipeline moves. Many small objects share a round trip; large
	// ones are faster alone, since what the server keeps ready beyond its caches is read from memory again.
	pipelineBytes = 4 << 20
)

// Get reads objects. The bytes go from the connection straight into their place, but for those of small
// objects. Objects of layouts without a checksum are read at once, also for To: in parts they could be of two
// values. They are copied into the memory of Into, for which the level has as many bytes of its own.
func (l *Level) Get(ctx context.Context, gets []tier.Get) {
	done, err := l.pieces(ctx, len(gets), func(from, to int) { l.getPiece(ctx, gets[from:to]) })
	for i := done; i < len(gets); i++ {
		gets[i].Object, gets[i].Bytes, gets[i].Err = tier.Object{}, nil, err
	}
}

func (l *Level) getPiece(ctx context.Context, gets []tier.Get) {
	wanted := make([]tier.Key, len(gets))
	for i := range gets {
		gets[i].Object, gets[i].Bytes, gets[i].Err = tier.Object{}, nil, nil
		wanted[i] = gets[i].Key
	}
	found, release := l.lookUp(ctx, wanted, true)
	defer release()
	var reads []*reading
	for i := range gets {
		g := &gets[i]
		if found[i].err != nil {
			g.Err = l.miss(ctx, g.Key, &found[i])
			continue
		}
		switch {
		case g.To != nil && found[i].entry.hasSum:
			l.stream(ctx, g, &found[i])
			continue
		case g.To != nil:
			l.writeWhole(ctx, g, &found[i])
			continue
		}
		r := &reading{get: g, found: &found[i]}
		if g.Err = r.place(); g.Err == nil {
			reads = append(reads, r)
		}
	}
	for len(reads) > 0 {
		n, bytes := 0, int64(0)
		for n < len(reads) && (n == 0 || bytes+reads[n].rest() <= pipelineBytes) {
			bytes += reads[n].rest()
			n++
		}
		l.readAll(ctx, reads[:n], bytes)
		clear(reads[:n]) // with the memory of what failed
		reads = reads[n:]
	}
}

// reading is an object whose bytes are being read.
type reading struct {
	get    *tier.Get
	found  *lookup
	memory []byte
	buffer []byte // of an object without a checksum: overhang longer than the object
	have   int64  // bytes that came with the head
	// reserved means that the bytes in flight are counted by the caller.
	reserved bool
	cmd      *goredis.ZeroCopyStringCmd
}

func (r *reading) rest() int64 { return r.found.entry.object.Size - r.have }

// place gets the memory from the caller, and copies the bytes that came with the head.
func (r *reading) place() error {
	o := r.found.entry.object
	if r.get.Into == nil || r.get.To != nil {
		r.have = int64(len(r.found.inline())) // the memory is made when its bytes are about to come
		return nil
	}
	var err error
	if r.memory, err = r.get.Into(o); err != nil {
		return err
	}
	if int64(len(r.memory)) != o.Size {
		return fmt.Errorf("tier/redis: Into returned %d bytes for object %v of %d: %w", len(r.memory), o.Key, o.Size,
			fs.ErrInvalid)
	}
	r.have = int64(copy(r.memory, r.found.inline()))
	return nil
}

// ownMemory makes memory for an object whose caller gave none. The bytes in flight are reserved: of many
// objects that the server describes each has its memory only when it is read.
func (r *reading) ownMemory() {
	if r.memory != nil {
		return
	}
	size := r.found.entry.object.Size
	if r.found.entry.hasSum {
		r.memory = make([]byte, size)
	} else {
		r.buffer = make([]byte, size+overhang)
		r.memory = r.buffer[:size:size]
	}
	copy(r.memory, r.found.inline())
}

// readAll reads the bytes that did not come with the heads, in one pipeline, and checks everything.
func (l *Level) readAll(ctx context.Context, reads []*reading, bytes int64) {
	if err := l.fetch(ctx, reads, bytes); err != nil {
		for _, r := range reads {
			r.get.Err = err
		}
		return
	}
	for _, r := range reads {
		switch err := r.check(); {
		case err == nil:
			r.get.Object, r.get.Bytes = r.found.entry.object, r.memory
		case errors.As(err, new(errDamaged)):
			l.readAgain(ctx, r, err)
		default:
			r.get.Err = explain(ctx, err)
		}
	}
}

func (l *Level) fetch(ctx context.Context, reads []*reading, bytes int64) error {
	if bytes > 0 && !reads[0].reserved { // a reading that has reserved is the only one
		release, err := l.reserve(ctx, bytes)
		if err != nil {
			return err
		}
		defer release()
	}
	pipe := l.client.Pipeline()
	for _, r := range reads {
		r.ownMemory()
		switch {
		case r.rest() == 0:
			continue
		case r.found.entry.hasSum:
			r.cmd = getRange(ctx, r.found.keys.body, r.memory[r.have:], r.found.entry.offset+r.have)
		default:
			if r.buffer == nil {
				r.buffer = make([]byte, len(r.memory)+overhang)
			}
			r.cmd = getWhole(ctx, r.found.keys.body, r.buffer, int64(len(r.memory)))
		}
		_ = pipe.Process(ctx, r.cmd)
	}
	l.exec(ctx, pipe, bytes)
	return nil
}

// check returns an errDamaged if the bytes in memory are not what was put.
func (r *reading) check() error {
	if r.cmd != nil {
		switch err := r.cmd.Err(); {
		case isWrongType(err):
			return damaged("the key has a value of another type")
		case err != nil:
			return err
		case int64(r.cmd.Val()) != r.rest():
			return damaged("the value has another length than the object")
		case !r.found.entry.hasSum && &r.memory[0] != &r.buffer[0]:
			copy(r.memory, r.buffer)
			r.buffer = nil
		}
	}
	if r.found.entry.hasSum && crc32.Checksum(r.memory, castagnoli) != r.found.entry.sum {
		return damaged("the checksum of the bytes is wrong")
	}
	return nil
}

// readAgain reads an object once more, since it may have been evicted or replaced between its head and its
// bytes.
func (l *Level) readAgain(ctx context.Context, r *reading, why error) {
	found, release := l.lookUp(ctx, []tier.Key{r.get.Key}, true)
	defer release()
	before := r.found.entry.object.Size
	r.found = &found[0]
	if r.found.err != nil {
		r.get.Err = l.miss(ctx, r.get.Key, r.found)
		return
	}
	if r.found.entry.object.Size != before { // the memory has the size of another object
		r.get.Err = missing(r.get.Key)
		return
	}
	r.have, r.cmd = int64(copy(r.memory, r.found.inline())), nil
	err := l.fetch(ctx, []*reading{r}, r.rest())
	if err == nil {
		err = r.check()
	}
	switch {
	case err == nil:
		r.get.Object, r.get.Bytes = r.found.entry.object, r.memory
	case errors.As(err, new(errDamaged)):
		r.get.Err = l.removeDamaged(ctx, r.get.Key, r.found.keys, why.Error())
	default:
		r.get.Err = explain(ctx, err)
	}
}

// writeWhole writes an object without a checksum to To when all of it has been read.
func (l *Level) writeWhole(ctx context.Context, g *tier.Get, found *lookup) {
	size := found.entry.object.Size
	release, err := l.reserve(ctx, size)
	if err != nil {
		g.Err = err
		return
	}
	defer release()
	r := &reading{get: g, found: found, reserved: true}
	if g.Err = r.place(); g.Err != nil {
		return
	}
	l.readAll(ctx, []*reading{r}, r.rest())
	g.Bytes = nil
	if g.Err != nil {
		return
	}
	if g.Err = remote.Write(g.To, r.memory); g.Err != nil {
		g.Object = tier.Object{}
	}
}

// stream writes an object with a checksum to To, part by part.
func (l *Level) stream(ctx context.Context, g *tier.Get, found *lookup) {
	o := found.entry.object
	err := l.streamParts(ctx, g.To, found)
	switch {
	case err == nil:
		g.Object = o
	case errors.As(err, new(errDamaged)):
		g.Err = l.removeDamaged(ctx, g.Key, found.keys, err.Error())
	default:
		g.Err = err
	}
}

func (l *Level) streamParts(ctx context.Context, to io.Writer, found *lookup) error {
	e := &found.entry
	part := found.inline()
	sum := crc32.Checksum(part, castagnoli)
	if err := remote.Write(to, part); err != nil {
		return err
	}
	done := int64(len(part))
	if done < e.object.Size {
		release, err := l.reserve(ctx, min(e.object.Size-done, streamPart))
		if err != nil {
			return err
		}
		defer release()
		part = make([]byte, min(e.object.Size-done, streamPart))
	}
	for done < e.object.Size {
		part = part[:min(int64(len(part)), e.object.Size-done)]
		if err := l.readPart(ctx, found.keys.body, part, e.offset+done); err != nil {
			return err
		}
		sum = crc32.Update(sum, castagnoli, part)
		if err := remote.Write(to, part); err != nil {
			return err
		}
		done += int64(len(part))
	}
	if e.hasSum && sum != e.sum {
		return damaged("the checksum of the bytes is wrong")
	}
	return nil
}

// readPart fills a part from an offset on.
func (l *Level) readPart(ctx context.Context, key string, part []byte, offset int64) error {
	limited, cancel := l.limited(ctx, int64(len(part)))
	defer cancel()
	cmd := getRange(limited, key, part, offset)
	switch err := l.client.Process(limited, cmd); {
	case isWrongType(err):
		return damaged("the key has a value of another type")
	case err != nil:
		return explain(ctx, err)
	case cmd.Val() != len(part):
		return damaged("the value is shorter than its head says")
	}
	return nil
}
