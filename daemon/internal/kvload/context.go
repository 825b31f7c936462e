package kvload

import (
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

// object is an object of a chunk, with its bytes.
type object struct {
	chunk, group int
	bytes        []byte
}

// decode reads a map of msgpack.
func decode(b []byte) (map[string]any, error) {
	v, rest, err := msgp.ReadMapStrIntfBytes(b, nil)
	if err != nil || len(rest) > 0 {
		return nil, fmt.Errorf("%w: %d bytes are left of %x (%w)", errAnswer, len(rest), b, err)
	}
	return v, nil
}

func integer(v any) int {
	switch n := v.(type) {
	case int64:
		return int(n)
	case uint64:
		return int(n)
	}
	return -1
}

// list returns the values of an array, and nil for one that is missing.
func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// at returns the integer of a list, and fallback if there is no list.
func at(l []any, i, fallback int) int {
	if l == nil {
		return fallback
	}
	if i >= len(l) {
		return -1
	}
	return integer(l[i])
}

// places returns the objects that a context names, in the engine's mapping.
func (e *Engine) places(context []byte, from, to int) ([]object, error) {
	if len(context) == 0 {
		return nil, nil
	}
	c, err := decode(context)
	if err != nil {
		return nil, err
	}
	slots := list(c["slots"])
	chunks, groups := list(c["chunk_indices"]), list(c["group_ids"])
	if chunks == nil && groups != nil || len(slots) > 0 && len(e.o.Layers) > 1 && groups == nil {
		return nil, fmt.Errorf("%w: %v", errAnswer, c)
	}
	var out []object
	for i, v := range slots {
		slot, _ := v.(map[string]any)
		offset, length := integer(slot["offset"]), integer(slot["length"])
		o := object{chunk: from + at(chunks, i, i), group: at(groups, i, 0)}
		if offset < 0 || length < 0 || offset+length > len(e.segment) || o.chunk < from || o.chunk >= to ||
			o.group < 0 || o.group >= len(e.o.Layers) {
			return nil, fmt.Errorf("%w: %v", errAnswer, c)
		}
		o.bytes = e.segment[offset : offset+length]
		out = append(out, o)
	}
	return out, nil
}

// bodies returns the objects of a message.
func bodies(data []byte, from, to int) ([]object, error) {
	c, err := decode(data)
	if err != nil {
		return nil, err
	}
	groups := list(c["groups"])
	if groups == nil {
		groups = []any{c}
	}
	var out []object
	for g, v := range groups {
		group, _ := v.(map[string]any)
		chunks := list(group["chunk_indices"])
		for i, v := range list(group["tensors"]) {
			tensor, _ := v.(map[string]any)
			b, _ := tensor["data"].([]byte)
			o := object{chunk: from + at(chunks, i, i), group: g, bytes: b}
			if o.chunk < from || o.chunk >= to {
				return nil, fmt.Errorf("%w: chunk %d in a load of %d to %d", errAnswer, o.chunk, from, to)
			}
			out = append(out, o)
		}
	}
	return out, nil
}

// body is what a worker sends that can't map the segment.
func (e *Engine) body(r *Request, w *worker, from, to int) []byte {
	b := msgp.AppendMapHeader(nil, 2)
	b = msgp.AppendString(b, "version")
	b = msgp.AppendInt(b, 1)
	if len(e.o.Layers) > 1 {
		b = msgp.AppendString(b, "groups")
		b = msgp.AppendArrayHeader(b, uint32(len(e.o.Layers)))
	}
	for g, layers := range e.o.Layers {
		if len(e.o.Layers) > 1 {
			b = msgp.AppendMapHeader(b, 2)
			b = msgp.AppendString(b, "chunk_indices")
			b = msgp.AppendArrayHeader(b, uint32(to-from))
			for i := range to - from {
				b = msgp.AppendInt(b, i)
			}
		}
		b = msgp.AppendString(b, "tensors")
		b = msgp.AppendArrayHeader(b, uint32(to-from))
		for c := from; c < to; c++ {
			b = msgp.AppendMapHeader(b, 3)
			b = msgp.AppendString(b, "dtype")
			b = msgp.AppendString(b, "float32")
			b = msgp.AppendString(b, "shape")
			b = msgp.AppendArrayHeader(b, 3)
			for _, n := range []int{layers, e.Chunk, e.o.Hidden} {
				b = msgp.AppendInt(b, n)
			}
			b = msgp.AppendString(b, "data")
			data := make([]byte, e.bytes(g))
			r.Prompt.fill(data, c, e.identity(r, w, g))
			b = msgp.AppendBytes(b, data)
		}
	}
	return b
}
