package system

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ringcache/ringcache/fuzz"
)

// compared are the fields of each operation's reply that have to be the same. Of operations that
// are not here, only the kinds of errors are compared.
var compared = map[string][]string{
	"ring.alloc":  {"address", "id"},
	"ring.free":   {"freed"},
	"ring.header": {"id", "size"},
	"ring.state":  {"start", "end", "id_start", "id_end", "metadata"},

	"store.create":      {"segment_bytes"},
	"store.put":         {"address", "id", "signature"},
	"store.lookup":      {"address", "id", "signature"},
	"store.signature":   {"signature"},
	"store.cached":      {"cached"},
	"store.get":         {"value"},
	"store.free_unused": {"freed"},
	"store.peek":        {"hex"},
	"store.state":       {"key_index", "writer_flag", "reader_flag", "touched", "ring"},

	"lru.put":         {"stored"},
	"lru.put_if_fits": {"stored"},
	"lru.get":         {"found", "size"},
	"lru.has":         {"has"},
	"lru.pop":         {"found", "size"},
	"lru.popitem":     {"key", "size"},
	"lru.stat":        {"hits", "total"},
	"lru.state":       {"order", "size", "pinned", "sizes"},

	"pair.cached":   {"cached"},
	"pair.update":   {"data", "prompt_updates", "value"},
	"pair.features": {"values"},
	"pair.state":    {"order", "size", "hits", "total"},
	"size_of":       {"bytes"},
}

// same reports how two replies to an operation differ, "" if they agree. Of errors, the kinds have to be
// the same, and vLLM's own texts where both have one.
func same(op fuzz.Op, want, got fuzz.Reply) string {
	if strings.HasSuffix(op.Name, ".close") {
		return "" // also of what was closed before, for which replies differ
	}
	if kind(want) != kind(got) {
		return fmt.Sprintf("kinds of replies differ: %q and %q", kind(want), kind(got))
	}
	if want.Kind != "" {
		if want.Upstream != "" && got.Upstream != "" && want.Upstream != got.Upstream {
			return fmt.Sprintf("vLLM's texts differ: %q and %q", want.Upstream, got.Upstream)
		}
		return ""
	}
	if strings.HasPrefix(op.Name, "pair.") {
		want, got = withoutModality(want), withoutModality(got)
	}
	for _, field := range compared[op.Name] {
		if !want.Equal(got, field) {
			return fmt.Sprintf("%s differs", field)
		}
	}
	return ""
}

// withoutModality leaves out the modality of items, which those of vLLM do not have since 0.16. The
// agent's mirrored caches never encode an item, so there it stays what it was.
func withoutModality(r fuzz.Reply) fuzz.Reply {
	out := fuzz.Reply{Fields: maps.Clone(r.Fields)}
	if item, ok := r.Fields["value"].(map[string]any); ok {
		out.Fields["value"] = without(item, "modality")
	}
	if values, ok := r.Fields["values"].([]any); ok {
		values = slices.Clone(values)
		for i, v := range values {
			if item, ok := v.(map[string]any); ok {
				values[i] = without(item, "modality")
			}
		}
		out.Fields["values"] = values
	}
	return out
}

func without(m map[string]any, key string) map[string]any {
	m = maps.Clone(m)
	delete(m, key)
	return m
}

func kind(r fuzz.Reply) string {
	switch r.Kind {
	case "":
		return "ok"
	case "closed":
		// An object that was closed and one that never was are the same to a caller, and an agent
		// may have forgotten either: sequences share their names.
		return "invalid"
	}
	return r.Kind
}

// parts reports why two systems part at an operation although neither is wrong: what comes after
// it in the sequence is not compared. "" if they don't.
func (c Case) parts(op fuzz.Op, want, got fuzz.Reply) string {
	switch {
	case !c.VLLM:
		return ""
	case got.Kind == "hang":
		// Eviction in 0.12 to 0.23 never gets past a key that was touched while it was absent. The
		// adapter leaves it undone.
		return "vLLM would hang"
	case got.Fields["ghost"] == true && c.Ours:
		// As above: this module has no such keys to pop.
		return "vLLM pops a key that was touched while it was absent"
	case op.Name == "store.put" && want.Kind == "corrupt" && c.Release.PhantomStart:
		// The copy fails in the middle, or the end of an object overwrites its metadata.
		return "vLLM 0.11.0 puts an object beyond the end of its ring"
	case got.Kind == "unsupported" && want.Kind != "unsupported":
		return "vLLM has no " + op.Name
	}
	return ""
}

// withholds reports that an operation to which the lead replied is kept from vLLM.
func (c Case) withholds(op fuzz.Op, lead fuzz.Reply) bool {
	switch {
	case !c.VLLM:
		return false
	case op.Name == "store.touch" && lead.Kind == "stale" && c.Ours:
		// stale_touch of docs/hazards.md: from 0.12 to 0.31, vLLM counts a touch without a look at
		// the id, in the bytes of whatever lies at the address now. This module refuses.
		return c.Release.Counting == 1
	case op.Name == "pair.update" || op.Name == "pair.features":
		// An item without any value is invalid everywhere here (docs/agent.md), but in vLLM only
		// when it is to be stored.
		return lead.Kind == "invalid"
	case op.Name == "ring.header":
		// The chunks of 0.11.0 overlap, and it reads any bytes as a header.
		return lead.Kind == "corrupt"
	}
	return false
}

// difference compares the replies of two systems to a sequence. n is how many operations it
// compared, and parted why not all of them.
func (c Case) difference(ops []fuzz.Op, want, got []fuzz.Reply) (d *fuzz.Difference, n int, parted string) {
	for i, op := range ops {
		if parted := c.parts(op, want[i], got[i]); parted != "" {
			return nil, i, parted
		}
		if what := same(op, want[i], got[i]); what != "" {
			return &fuzz.Difference{Index: i, Op: op, Want: want[i], Got: got[i], What: what}, i, ""
		}
	}
	return nil, len(ops), ""
}
