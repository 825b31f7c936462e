package model

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/ringcache/ringcache/fuzz"
)

// noRoom is vLLM's text for a full ring (shm_object_storage.py, all releases).
const noRoom = "Not enough space in the data buffer, try calling free_buf() to free up space"

// maxPrivate bounds the bytes of a ring without a name.
const maxPrivate = 1 << 32

// ringFields are the fields of each operation.
var ringFields = map[string]string{
	"ring.new":   "ring size generation treat_as name first_id",
	"ring.alloc": "ring size", "ring.free": "ring ids all limit", "ring.header": "ring address",
	"ring.clear": "ring", "ring.state": "ring", "ring.close": "ring",
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
func (r *Ring) Do(ops []fuzz.Op) ([]fuzz.Reply, error) { return doEach(ops, r.do) }

func (r *Ring) do(op fuzz.Op) (map[string]any, error) {
	known, ok := ringFields[op.Name]
	if !ok {
		return nil, fmt.Errorf("model: %s is no operation of a ring", op.Name)
	}
	a := readArgs(op, known)
	name := field[string](a, "ring")
	if op.Name == "ring.new" {
		return nil, r.create(name, a)
	}
	if a.err != nil {
		return nil, a.err
	}
	f, ok := r.rings[name]
	if !ok {
		return nil, invalid("no ring %q", name)
	}
	switch op.Name {
	case "ring.alloc":
		return alloc(f.FIFO, a)
	case "ring.free":
		return free(f.FIFO, a)
	case "ring.header":
		return readHeader(f.FIFO, a)
	case "ring.clear":
		f.Clear()
	case "ring.state":
		return state(f.FIFO), nil
	case "ring.close":
		delete(r.rings, name)
	}
	return nil, nil
}

func (r *Ring) create(name string, a *args) error {
	size, first, segment := field[int64](a, "size"), fieldOr[int64](a, "first_id", 0), fieldOr(a, "name", "")
	release, err := r.generation(fieldOr(a, "generation", ""), fieldOr(a, "treat_as", ""))
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
	case first < 0 || first >= idLimit:
		return invalid("first_id %d is not from 0 to 2^31 - 1", first)
	}
	for _, other := range r.rings {
		if segment != "" && other.segment == segment {
			return refuse("exists_segment", "a segment %q exists", segment)
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
		return Release{}, refuse("unsupported", "%v", err)
	case as == "":
		return release, nil
	case err == nil:
		return Release{}, invalid("vLLM %s is known: leave treat_as out", version)
	}
	if release, err = Lookup(as); err != nil {
		return Release{}, refuse("unsupported", "%v", err)
	}
	return release, nil
}

func alloc(f *FIFO, a *args) (map[string]any, error) {
	size := field[int64](a, "size")
	if a.err != nil {
		return nil, a.err
	}
	address, id, err := f.Alloc(int(size))
	switch err {
	case nil:
		return map[string]any{"address": int64(address), "id": int64(id)}, nil
	case ErrFull:
		return nil, refuseAsVLLM("full", noRoom)
	}
	return nil, invalid("%v: %d", err, size)
}

func free(f *FIFO, a *args) (map[string]any, error) {
	all := fieldOr(a, "all", false)
	limit := fieldOr(a, "limit", int64(len(f.Memory)))
	var ids []int64
	if !all {
		ids = a.ids("ids")
	}
	if a.err != nil {
		return nil, a.err
	}
	freed := []any{}
	for _, id := range f.Free(func(id uint32) bool { return all || slices.Contains(ids, int64(id)) }, int(limit)) {
		freed = append(freed, int64(id))
	}
	return map[string]any{"freed": freed}, nil
}

func readHeader(f *FIFO, a *args) (map[string]any, error) {
	address := field[int64](a, "address")
	if address < 0 && !f.release.PhantomStart {
		a.fail("address %d", address)
	}
	if a.err != nil {
		return nil, a.err
	}
	id, size, ok := f.Header(int(address))
	if !ok {
		return nil, refuse("corrupt", "no header at address %d", address)
	}
	return map[string]any{"id": int64(id), "size": int64(size)}, nil
}

// state is also that of a store's ring.
func state(f *FIFO) map[string]any {
	metadata := map[string]any{}
	for id, address := range f.Live {
		metadata[strconv.FormatUint(uint64(id), 10)] = int64(address)
	}
	return map[string]any{
		"start": int64(f.Start), "end": int64(f.End), "id_start": int64(f.IDStart), "id_end": int64(f.IDEnd),
		"metadata": metadata,
	}
}
