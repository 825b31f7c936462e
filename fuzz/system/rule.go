package system

import (
	"fmt"
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
	for _, field := range compared[op.Name] {
		if !want.Equal(got, field) {
			return fmt.Sprintf("%s differs", field)
		}
	}
	return ""
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
		// Eviction in 0.12 to 0.23 never gets past a key that was touched and is absent. The agent
		// and the adapter leave it undone.
		return "vLLM would hang"
	case got.Kind == "unsupported" && want.Kind != "unsupported":
		return "vLLM has no " + op.Name
	case op.Name == "store.touch" && want.Kind == "stale" && got.Kind == "" && c.Release.Counting == 1:
		// stale_touch of docs/hazards.md: vLLM before 0.32 counts without a look at the id, in the
		// bytes of whatever lies there now. Ours refuses.
		return "vLLM writes into another object"
	}
	return ""
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
