package agent

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
)

// maxPrivate bounds a ring in private memory.
const maxPrivate int64 = 1 << 32

type ring struct {
	*shmring.Ring
	seg *segment.Segment
}

func (r *ring) close() error { return errors.Join(r.seg.Unlink(), r.seg.Close()) }

func (a *Agent) ringOps() map[string]operation {
	return map[string]operation{
		"ring.new":    {"ring size generation treat_as name first_id", a.ringNew},
		"ring.alloc":  {"ring size", on("ring", a.rings, ringAlloc)},
		"ring.free":   {"ring ids all limit", on("ring", a.rings, ringFree)},
		"ring.header": {"ring address", on("ring", a.rings, ringHeader)},
		"ring.clear":  {"ring", on("ring", a.rings, ringClear)},
		"ring.state":  {"ring", on("ring", a.rings, ringReply)},
		"ring.fill":   {"ring offset hex", on("ring", a.rings, ringFill)},
		"ring.peek":   {"ring offset length", on("ring", a.rings, ringPeek)},
		"ring.close":  {"ring", on("ring", a.rings, a.ringClose)},
	}
}

func (a *Agent) ringNew(p *params) (reply, error) {
	object, size, g := unused(p, "ring", a.rings), p.int("size"), p.generation()
	name, first := optional(p, "name", ""), optional[uint32](p, "first_id", 0)
	o := shmring.RingOptions{DataOffset: g.DataOffset, IDsRestart: g.IDsRestart, FirstID: first}
	if first >= shmring.IDLimit {
		return nil, invalidf("first_id %d is not below 2^31", first)
	}
	seg, err := a.newSegment(name, size, g)
	if err != nil {
		return nil, err
	}
	a.rings[object] = &ring{shmring.NewRing(seg.Ring(), o), seg}
	return nil, nil
}

// newSegment makes a named segment, or one in private memory.
func (a *Agent) newSegment(name string, size int, g *pycompat.Generation) (*segment.Segment, error) {
	o := segment.Options{Name: name, RingSize: size, DataOffset: g.DataOffset, Dir: a.dir}
	if err := a.sizeAllowed(size); err != nil {
		return nil, err
	}
	if name != "" {
		return segment.Create(o)
	}
	if int64(size) > maxPrivate {
		return nil, invalidf("size %d: at most %d in private memory", size, maxPrivate)
	}
	return segment.Private(nil, o)
}

func (a *Agent) sizeAllowed(size int) error {
	if size > a.maxSegment {
		return invalidf("size %d: at most %d", size, a.maxSegment)
	}
	return nil
}

func ringAlloc(p *params, r *ring) (reply, error) {
	size := p.int("size")
	address, id, _, err := r.Alloc(size)
	return reply{"address": address, "id": id}, err
}

func ringFree(p *params, r *ring) (reply, error) {
	all := optional(p, "all", false)
	limit := optional(p, "limit", r.Size())
	ids := map[uint32]bool{}
	if !all {
		for _, id := range required[[]uint32](p, "ids") {
			ids[id] = true
		}
	}
	freed := r.Free(func(id uint32, _ []byte) bool { return all || ids[id] }, limit)
	return reply{"freed": append([]uint32{}, freed...)}, nil
}

func ringHeader(p *params, r *ring) (reply, error) {
	address := required[uint64](p, "address")
	c, err := shmring.ReadChunk(r.seg.Ring(), address)
	return reply{"id": c.ID, "size": c.Size}, err
}

func ringFill(p *params, r *ring) (reply, error) {
	offset, b := p.int("offset"), p.hex("hex")
	memory := r.seg.Ring()
	if offset < 0 || offset > len(memory) || len(b) > len(memory)-offset {
		return nil, invalidf("%d bytes from %d on: the ring has %d", len(b), offset, len(memory))
	}
	if err := fault.Guard(func() error { copy(memory[offset:], b); return nil }); err != nil {
		return nil, fmt.Errorf("%w: %w", shmring.ErrCorrupt, err)
	}
	return nil, nil
}

func ringPeek(p *params, r *ring) (reply, error) {
	offset, length := p.int("offset"), p.int("length")
	memory := r.seg.Ring()
	if offset < 0 || length < 0 || length > maxPeek || offset > len(memory) || length > len(memory)-offset {
		return nil, invalidf("%d bytes from %d on: the ring has %d, and one look shows at most %d",
			length, offset, len(memory), maxPeek)
	}
	var raw string
	if err := fault.Guard(func() error {
		raw = hex.EncodeToString(memory[offset : offset+length])
		return nil
	}); err != nil {
		return nil, fmt.Errorf("%w: %w", shmring.ErrCorrupt, err)
	}
	return reply{"hex": raw}, nil
}

func ringClear(_ *params, r *ring) (reply, error) { r.Clear(); return nil, nil }

func ringReply(_ *params, r *ring) (reply, error) {
	metadata := map[string]uint64{}
	for id, address := range r.Live() {
		metadata[strconv.FormatUint(uint64(id), 10)] = address
	}
	out := ringState(r.State())
	out["metadata"] = metadata
	return out, nil
}

func ringState(s shmring.RingState) reply {
	return reply{"start": s.Start, "end": s.End, "id_start": s.IDStart, "id_end": s.IDEnd}
}

func (a *Agent) ringClose(p *params, r *ring) (reply, error) {
	delete(a.rings, p.str("ring"))
	return nil, r.close()
}
