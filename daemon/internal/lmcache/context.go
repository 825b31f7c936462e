package lmcache

import (
	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/kv"
)

// slot is where the bytes of a chunk are to be written to or read from, for a client that maps the segment.
type slot struct {
	offset, length int64
	layout         *kv.Group
	chunk          int // of the chunks that the call is about
	group          int
}

// appendContext appends the map that tells a worker of slots: "slots", and as the call and the layout want,
// "chunk_indices" and "group_ids" in the same order.
func appendContext(b []byte, slots []slot, chunks, groups bool) []byte {
	fields := uint32(1)
	if chunks {
		fields++
	}
	if groups {
		fields++
	}
	b = msgp.AppendMapHeader(b, fields)
	b = msgp.AppendString(b, "slots")
	b = msgp.AppendArrayHeader(b, uint32(len(slots)))
	for _, s := range slots {
		b = msgp.AppendMapHeader(b, 4)
		b = msgp.AppendString(b, "offset")
		b = msgp.AppendInt64(b, s.offset)
		b = msgp.AppendString(b, "length")
		b = msgp.AppendInt64(b, s.length)
		b = msgp.AppendString(b, "shape")
		shape := s.layout.Shape()
		b = msgp.AppendArrayHeader(b, uint32(len(shape)))
		for _, n := range shape {
			b = msgp.AppendInt(b, n)
		}
		b = msgp.AppendString(b, "dtype")
		b = msgp.AppendString(b, s.layout.DType)
	}
	if chunks {
		b = msgp.AppendString(b, "chunk_indices")
		b = msgp.AppendArrayHeader(b, uint32(len(slots)))
		for _, s := range slots {
			b = msgp.AppendInt(b, s.chunk)
		}
	}
	if groups {
		b = msgp.AppendString(b, "group_ids")
		b = msgp.AppendArrayHeader(b, uint32(len(slots)))
		for _, s := range slots {
			b = msgp.AppendInt(b, s.group)
		}
	}
	return b
}

// Options of a request.
const (
	skipLoadOption = "lmcache.skip_load"                   // whether it wants nothing loaded
	computedOption = "lmcache.hint.engine_computed_tokens" // how many tokens the engine has itself, for counters
)

// parseOptions reads the options of a request, a msgpack map. Options that can't be read say nothing.
func parseOptions(b []byte) (skipLoad bool, computed int) {
	n, b, err := msgp.ReadMapHeaderBytes(b)
	for ; err == nil && n > 0; n-- {
		var key []byte
		if key, b, err = msgp.ReadStringZC(b); err != nil {
			break
		}
		switch string(key) {
		case skipLoadOption:
			if v, _, bad := msgp.ReadBoolBytes(b); bad == nil {
				skipLoad = v
			}
		case computedOption:
			if v, _, bad := msgp.ReadInt64Bytes(b); bad == nil {
				computed = int(max(0, min(v, maxTokens)))
			}
		}
		b, err = msgp.Skip(b)
	}
	return skipLoad, computed
}
