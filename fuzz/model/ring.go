package model

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/ringcache/ringcache/fuzz"
)

// noRoom is vLLM's text for a full ring (shm_object_storage.py, all releases).
const noRoom = "Not enough space in the data buffer, try calling free_buf() to free up space"

// maxPrivate bounds the bytes of a ring without a name.
const maxPrivate = 1 << 32

// ringFields are the fields of the operations.
var ringFields = map[string][]string{
	"ring.new":    {"ring", "size", "generation", "treat_as", "name", "first_id"},
	"ring.alloc":  {"ring", "size"},
	"ring.free":   {"ring", "ids", "all", "limit"},
	"ring.header": {"ring", "address"},
	"ring.clear":  {"ring"},
	"ring.state":  {"ring"},
	"ring.close":  {"ring"},
}

// Ring is a fuzz.System that answers the operations ring.* of docs/agent.md by a [FIFO] for each
// ring. Memory stays as vLLM leaves it: headers of freed chunks are overwritten by nothing but
// new chunks' headers, since these operations write no payloads.
type Ring struct {
	release Release
	rings   map[string]*namedFIFO
}

type namedFIFO struct {
	*FIFO
	segment string
}

// NewRing makes a system without rings. The release is that of rings whose ring.new has no
// generation.
func NewRing(r Release) *Ring { return &Ring{release: r, rings: map[string]*namedFIFO{}} }

// FIFO returns the ring of a name, nil if there is none.
func (r *Ring) FIFO(name string) *FIFO {
	if f, ok := r.rings[name]; ok {
		return f.FIFO
	}
	return nil
}

// Close forgets all rings.
func (r *Ring) Close() error {
	clear(r.rings)
	return nil
}

// Do performs operations. It fails for operations of other families.
func (r *Ring) Do(ops []fuzz.Op) ([]fuzz.Reply, error) {
	var out []fuzz.Reply
	for _, op := range ops {
		if _, ok := ringFields[op.Name]; !ok {
			return out, fmt.Errorf("model: %s is no operation of a ring", op.Name)
		}
		reply, err := r.perform(op)
		var refused *ringRefusal
		switch {
		case errors.As(err, &refused):
			reply = fuzz.Reply{Kind: refused.kind, Text: refused.text, Upstream: refused.upstream}
		case err != nil:
			return out, err
		}
		out = append(out, reply)
	}
	return out, nil
}

func (r *Ring) perform(op fuzz.Op) (fuzz.Reply, error) {
	a, err := newRingArgs(op)
	if err != nil {
		return fuzz.Reply{}, err
	}
	if op.Name == "ring.new" {
		return fuzz.Reply{Fields: map[string]any{}}, r.create(a)
	}
	name := a.text("ring", true)
	if a.err != nil {
		return fuzz.Reply{}, a.err
	}
	f, ok := r.rings[name]
	if !ok {
		return fuzz.Reply{}, invalid("no ring %q", name)
	}
	fields := map[string]any{}
	switch op.Name {
	case "ring.alloc":
		err = alloc(f.FIFO, a, fields)
	case "ring.free":
		err = free(f.FIFO, a, fields)
	case "ring.header":
		err = readHeader(f.FIFO, a, fields)
	case "ring.clear":
		f.Clear()
	case "ring.state":
		state(f.FIFO, fields)
	case "ring.close":
		delete(r.rings, name)
	}
	return fuzz.Reply{Fields: fields}, err
}

func (r *Ring) create(a *ringArgs) error {
	name, size := a.text("ring", true), a.number("size", math.MinInt64, math.MaxInt64, nil)
	first := int64(0)
	first = a.number("first_id", 0, math.MaxUint32, &first)
	segment := a.text("name", false)
	release, err := r.generation(a.text("generation", false), a.text("treat_as", false))
	switch {
	case a.err != nil:
		return a.err
	case err != nil:
		return err
	case r.rings[name] != nil:
		return invalid("ring %q exists", name)
	case size <= header:
		return invalid("a ring of %d bytes has no room for a chunk", size)
	case segment == "" && size > maxPrivate:
		return invalid("size %d: at most %d in private memory", size, int64(maxPrivate))
	case first >= idLimit:
		return invalid("first_id %d is not below 2^31", first)
	}
	for _, other := range r.rings {
		if segment != "" && other.segment == segment {
			return &ringRefusal{kind: "exists_segment", text: fmt.Sprintf("a segment %q exists", segment)}
		}
	}
	r.rings[name] = &namedFIFO{NewFIFO(release, int(size), uint32(first)), segment}
	return nil
}

func (r *Ring) generation(version, as string) (Release, error) {
	if version == "" {
		if as != "" {
			return Release{}, invalid("treat_as needs generation")
		}
		return r.release, nil
	}
	release, err := Lookup(version)
	switch {
	case as == "" && err != nil:
		return Release{}, &ringRefusal{kind: "unsupported", text: err.Error()}
	case as == "":
		return release, nil
	case err == nil:
		return Release{}, invalid("vLLM %s is known: leave treat_as out", version)
	}
	if release, err = Lookup(as); err != nil {
		return Release{}, &ringRefusal{kind: "unsupported", text: err.Error()}
	}
	return release, nil
}

func alloc(f *FIFO, a *ringArgs, fields map[string]any) error {
	size := a.number("size", math.MinInt64, math.MaxInt64, nil)
	if a.err != nil {
		return a.err
	}
	address, id, err := f.Alloc(int(size))
	switch err {
	case nil:
		fields["address"], fields["id"] = int64(address), int64(id)
		return nil
	case ErrFull:
		return &ringRefusal{kind: "full", text: fmt.Sprintf("no room for %d bytes", size), upstream: noRoom}
	}
	return invalid("%w: %d", err, size)
}

func free(f *FIFO, a *ringArgs, fields map[string]any) error {
	all := a.yes("all")
	limit := int64(len(f.Memory))
	limit = a.number("limit", math.MinInt64, math.MaxInt64, &limit)
	var ids []int64
	if !all {
		ids = a.ids("ids")
	}
	if a.err != nil {
		return a.err
	}
	freed := []any{}
	for _, id := range f.Free(func(id uint32) bool { return all || slices.Contains(ids, int64(id)) }, int(limit)) {
		freed = append(freed, int64(id))
	}
	fields["freed"] = freed
	return nil
}

func readHeader(f *FIFO, a *ringArgs, fields map[string]any) error {
	lowest := int64(0)
	if f.release.PhantomStart {
		lowest = math.MinInt64
	}
	address := a.number("address", lowest, math.MaxInt64, nil)
	if a.err != nil {
		return a.err
	}
	id, size, ok := f.Header(int(address))
	if !ok {
		return &ringRefusal{kind: "corrupt", text: fmt.Sprintf("no header at address %d", address)}
	}
	fields["id"], fields["size"] = int64(id), int64(size)
	return nil
}

func state(f *FIFO, fields map[string]any) {
	metadata := map[string]any{}
	for id, address := range f.Live {
		metadata[strconv.FormatUint(uint64(id), 10)] = int64(address)
	}
	fields["start"], fields["end"] = int64(f.Start), int64(f.End)
	fields["id_start"], fields["id_end"] = int64(f.IDStart), int64(f.IDEnd)
	fields["metadata"] = metadata
}
