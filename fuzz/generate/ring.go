package generate

import (
	"math"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/model"
)

// RingOptions configure [Ring]. The zero value makes all operations of the family, of rings of
// 24 to 4096 bytes, most of them small.
type RingOptions struct {
	Generation string // of the rings; "" is the newest
	Size       int    // of the rings in bytes, drawn if 0
	// AnyOrder frees any of the live chunks in half of the sequences, as a ring can whose places
	// are not vLLM's. Else it is mostly the oldest that are freed.
	AnyOrder bool
	// NoLimits leaves out the field limit of ring.free, NoHeaders the operation ring.header.
	NoLimits, NoHeaders bool
	// LiveHeaders leaves out header reads of addresses at which no chunk is live: this library
	// destroys the ids of freed chunks that come to lie inside a new one, and vLLM does not.
	LiveHeaders bool
}

// Ring makes sequences of the operations ring.*. A model of the ring is in step with what it
// makes, so sizes are drawn to what just fits and what just does not. Ids and addresses are Refs
// to the operations that allocated them, so the sequences are for rings that place otherwise, too.
func Ring(o RingOptions) fuzz.Generator {
	return func(c *fuzz.Choices, length int) []fuzz.Op {
		g := &ringGenerator{o: o, Choices: c}
		g.o.AnyOrder = o.AnyOrder && c.Percent(50)
		g.create()
		for len(g.ops) < length && c.More() {
			g.step()
		}
		return g.ops[:min(len(g.ops), length)]
	}
}

type ringGenerator struct {
	*fuzz.Choices
	o     RingOptions
	ops   []fuzz.Op
	model *model.FIFO
	live  []ringChunk // oldest first
	freed []ringChunk
}

type ringChunk struct {
	op, size int
	id       uint32 // in the model; another ring may have another
}

// add appends an operation on the ring and returns its ID.
func (g *ringGenerator) add(name string, args map[string]any) int {
	args["ring"] = "r"
	g.ops = append(g.ops, fuzz.Op{ID: len(g.ops) + 1, Name: name, Args: args})
	return len(g.ops)
}

func (g *ringGenerator) create() {
	size := g.o.Size
	if size == 0 {
		size = 24 + g.Int(177) // near the few sizes of chunks, so that borders meet
		if g.Percent(10) {
			size = 9 + g.Int(4088)
		}
	}
	args := map[string]any{"size": size}
	if g.o.Generation != "" {
		args["generation"] = g.o.Generation
	}
	first := 0
	if g.Percent(25) {
		first = math.MaxInt32 - g.Int(8) // 2^31-1 and less
		args["first_id"] = first
	}
	g.add("ring.new", args)
	release, err := model.Lookup(g.o.Generation)
	if err != nil { // the newest, or a release that the system has to refuse
		release = model.Release{}
	}
	g.model = model.NewFIFO(release, size, uint32(first))
	g.live, g.freed = nil, nil
}

func (g *ringGenerator) step() {
	switch n := g.Int(100); {
	case n < 52:
		g.alloc()
	case n < 84:
		g.free()
	case n < 92 && !g.o.NoHeaders:
		g.header()
	case n < 97:
		g.add("ring.state", map[string]any{})
	case n < 99:
		g.add("ring.clear", map[string]any{})
		g.model.Clear()
		g.freed, g.live = append(g.freed, g.live...), nil
	default:
		g.add("ring.close", map[string]any{})
		g.create()
	}
}

func (g *ringGenerator) alloc() {
	size := g.size()
	op := g.add("ring.alloc", map[string]any{"size": size})
	_, id, err := g.model.Alloc(size)
	if g.o.AnyOrder && size > 0 && size <= len(g.model.Memory) {
		err = nil // the model is full more often than such a ring
	}
	if err == nil {
		g.live = append(g.live, ringChunk{op, size, id})
	}
}

// size returns the payload of a new chunk in bytes.
func (g *ringGenerator) size() int {
	n := len(g.model.Memory)
	switch kind := g.Int(100); {
	case kind < 50:
		return 1 + g.Int(max(n/6, 1))
	case kind < 70:
		return 1 + g.Int(3)
	case kind < 92: // what just fits
		return g.border() + g.Int(3) - 1
	case kind < 96:
		return 1 + g.Int(n+2)
	}
	return fuzz.Pick(g.Choices, 0, -1, -8, n, n+1, math.MaxInt32-8, math.MaxInt32, math.MaxInt32+1, math.MaxUint32,
		math.MaxInt64-8, math.MaxInt64, math.MinInt64)
}

// border returns a payload that ends where something else does.
func (g *ringGenerator) border() int {
	n, m := len(g.model.Memory), g.model
	start, end := model.Offset(m.Start, n), model.Offset(m.End, n)
	switch g.Int(6) {
	case 0:
		return n - end - 8 // the end of the memory
	case 1:
		return model.Offset(start-end, n) - 8 // the oldest chunk, on this lap or the next
	case 2:
		return start - 8 // the oldest chunk, from the begin of the memory
	case 3:
		return n - 8 // all of it
	case 4:
		return n - (m.End - m.Start) - 8 // all that is left
	}
	if len(g.freed) == 0 {
		return n/2 - 8
	}
	return g.freed[g.Int(len(g.freed))].size // the hole that a chunk left
}

func (g *ringGenerator) free() {
	var chosen []ringChunk
	args := map[string]any{}
	may := map[uint32]bool{} // ids of the model
	switch kind := g.Int(100); {
	case kind < 5:
		args["all"] = true
		chosen = g.live
	case kind < 12: // none, or ids that were never given out or are free again
		chosen = nil
	case g.o.AnyOrder || kind >= 94:
		for _, x := range g.live {
			if g.Percent(30) {
				chosen = append(chosen, x)
			}
		}
	default: // the oldest ones; low numbers are the simple case
		chosen = g.live[:min(len(g.live), 1+g.Int(2))]
	}
	ids := []any{}
	choose := func(x ringChunk) {
		ids = append(ids, fuzz.Ref{Op: x.op, Field: "id"})
		may[x.id] = true
	}
	for _, x := range chosen {
		choose(x)
	}
	if args["all"] == nil {
		if len(g.freed) > 0 && g.Percent(15) {
			choose(g.freed[g.Int(len(g.freed))])
		}
		if g.Percent(8) {
			id := fuzz.Pick(g.Choices, 0, 1, math.MaxInt32, math.MaxInt32+1, math.MaxUint32, int(g.model.IDEnd))
			ids = append(ids, id)
			may[uint32(id)] = true
		}
		args["ids"] = ids
	}
	limit := len(g.model.Memory)
	if !g.o.NoLimits && g.Percent(25) {
		limit = fuzz.Pick(g.Choices, 0, 1, 9, 2*limit, -1, 1+g.Int(limit))
		args["limit"] = limit
	}
	g.add("ring.free", args)
	g.forget(may, limit)
}

// forget frees what the ring frees, in the model, or of a ring that frees in any order all that
// was chosen.
func (g *ringGenerator) forget(may map[uint32]bool, limit int) {
	gone := map[uint32]bool{}
	for _, id := range g.model.Free(func(id uint32) bool { return may[id] }, limit) {
		gone[id] = true
	}
	if g.o.AnyOrder {
		gone = may
	}
	var live []ringChunk
	for _, x := range g.live {
		if gone[x.id] {
			g.freed = append(g.freed, x)
		} else {
			live = append(live, x)
		}
	}
	g.live = live
}

func (g *ringGenerator) header() {
	at := g.live
	if !g.o.LiveHeaders && len(g.freed) > 0 && g.Percent(40) {
		at = g.freed
	}
	var address any
	switch {
	case len(at) > 0 && (g.o.LiveHeaders || g.Percent(85)):
		address = fuzz.Ref{Op: at[g.Int(len(at))].op, Field: "address"}
	case g.o.LiveHeaders:
		return
	default:
		address = g.Int(2*len(g.model.Memory) + 9)
	}
	g.add("ring.header", map[string]any{"address": address})
}
