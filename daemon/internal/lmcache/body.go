package lmcache

import (
	"errors"
	"slices"

	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/tier"
)

// Bytes within messages, of LMCache 0.5.7: a msgpack map of "version" 1 and, for a layout of one group,
// "tensors", one for each chunk of the range; otherwise "groups", each with "chunk_indices", strictly
// increasing, and "tensors".

const bodyVersion = 1

// bodyOverhead is more than a body has beside the bytes of its tensors, and more than a tensor has.
const bodyOverhead = 256

// appendBodies appends the objects of a load, which are in the order of their chunks.
func appendBodies(b []byte, l []kv.Group, objects []object, placed []tier.Placed, from int) []byte {
	size := bodyOverhead
	for _, p := range placed {
		size += len(p.Bytes) + bodyOverhead
	}
	b = slices.Grow(b, size)
	b = msgp.AppendMapHeader(b, 2)
	b = msgp.AppendString(b, "version")
	b = msgp.AppendInt(b, bodyVersion)
	if len(l) == 1 {
		b = msgp.AppendString(b, "tensors")
		return appendTensors(b, &l[0], placed)
	}
	b = msgp.AppendString(b, "groups")
	b = msgp.AppendArrayHeader(b, uint32(len(l)))
	for g := range l {
		var own []tier.Placed
		var chunks []int
		for i, o := range objects {
			if o.group == g {
				own, chunks = append(own, placed[i]), append(chunks, o.chunk-from)
			}
		}
		b = msgp.AppendMapHeader(b, 2)
		b = msgp.AppendString(b, "chunk_indices")
		b = msgp.AppendArrayHeader(b, uint32(len(chunks)))
		for _, n := range chunks {
			b = msgp.AppendInt(b, n)
		}
		b = msgp.AppendString(b, "tensors")
		b = appendTensors(b, &l[g], own)
	}
	return b
}

func appendTensors(b []byte, g *kv.Group, placed []tier.Placed) []byte {
	b = msgp.AppendArrayHeader(b, uint32(len(placed)))
	shape := g.Shape()
	for _, p := range placed {
		b = msgp.AppendMapHeader(b, 3)
		b = msgp.AppendString(b, "dtype")
		b = msgp.AppendString(b, g.DType)
		b = msgp.AppendString(b, "shape")
		b = msgp.AppendArrayHeader(b, uint32(len(shape)))
		for _, n := range shape {
			b = msgp.AppendInt(b, n)
		}
		b = msgp.AppendString(b, "data")
		b = msgp.AppendBytes(b, p.Bytes)
	}
	return b
}

// errBody reports bytes that are no body.
var errBody = errors.New("lmcache: the bytes of chunks are malformed")

// parseBodies returns the bytes of a message by chunk and group. They are slices of the message.
func parseBodies(b []byte, q *call) (map[[2]int][]byte, error) {
	d := decoder{rest: b, kind: errBody}
	layout := q.worker.Layout.Groups
	version, lists := -1, []tensorList{}
	d.fields(2, func(name string) {
		switch {
		case name == "version":
			version = d.integer()
		case name == "tensors" && len(layout) == 1:
			lists = append(lists, tensorList{tensors: d.tensors(q.to - q.from)})
		case name == "groups" && len(layout) > 1:
			for range d.array(len(layout)) {
				lists = append(lists, d.group(q.to-q.from))
			}
		default:
			d.fail("a field %.40q", name)
		}
	})
	switch {
	case d.err != nil:
		return nil, d.err
	case version != bodyVersion || len(lists) != len(layout) || len(d.rest) > 0:
		d.fail("version %d, %d groups and %d more bytes", version, len(lists), len(d.rest))
		return nil, d.err
	}
	out := map[[2]int][]byte{}
	for g, list := range lists {
		if len(layout) == 1 { // all chunks of the range
			list.chunks = make([]int, q.to-q.from)
			for i := range list.chunks {
				list.chunks[i] = i
			}
		}
		if len(list.chunks) != len(list.tensors) {
			d.fail("group %d has %d tensors for %d chunks", g, len(list.tensors), len(list.chunks))
			break
		}
		for i, t := range list.tensors {
			chunk := list.chunks[i]
			if chunk < 0 || chunk >= q.to-q.from || i > 0 && chunk <= list.chunks[i-1] {
				d.fail("the chunks of group %d are not in order, or beyond the range", g)
			}
			if t.dtype != layout[g].DType || !slices.Equal(t.shape, layout[g].Shape()) ||
				int64(len(t.data)) != layout[g].Bytes() {
				d.fail("a tensor of group %d is %s %v with %d bytes, and %s %v with %d were registered",
					g, t.dtype, t.shape, len(t.data), layout[g].DType, layout[g].Shape(), layout[g].Bytes())
			}
			out[[2]int{q.from + chunk, g}] = t.data
		}
	}
	return out, d.err
}

// tensorList has tensors, and the chunks that they are of, counted from the first one of the range.
type tensorList struct {
	chunks  []int
	tensors []tensor
}

type tensor struct {
	dtype string
	shape []int
	data  []byte
}

// mostDimensions bounds the shape of a tensor: no layout has more.
const mostDimensions = 4

func (d *decoder) tensors(most int) []tensor {
	n := d.array(most)
	var out []tensor
	for range n {
		var t tensor
		d.fields(3, func(name string) {
			switch name {
			case "dtype":
				t.dtype = d.text()
			case "shape":
				for range d.array(mostDimensions) {
					t.shape = append(t.shape, d.integer())
				}
			case "data":
				t.data = d.bytes()
			default:
				d.fail("a field %.40q of a tensor", name)
			}
		})
		if d.err != nil {
			return nil
		}
		out = append(out, t)
	}
	return out
}

func (d *decoder) group(most int) (list tensorList) {
	d.fields(2, func(name string) {
		switch name {
		case "chunk_indices":
			for range d.array(most) {
				list.chunks = append(list.chunks, d.integer())
			}
		case "tensors":
			list.tensors = d.tensors(most)
		default:
			d.fail("a field %.40q of a group", name)
		}
	})
	return list
}
