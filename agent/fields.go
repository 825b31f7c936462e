package agent

import "strings"

// opFields are the names that the fields of each operation may have, besides op and
// seq. docs/agent.md has the same.
var opFields = map[string]string{
	"ring.new":    "ring size generation treat_as name first_id",
	"ring.alloc":  "ring size",
	"ring.free":   "ring ids all limit",
	"ring.header": "ring address",
	"ring.clear":  "ring",
	"ring.state":  "ring",
	"ring.close":  "ring",

	"store.create": "store size max_object readers generation treat_as name policy secret lock align threshold " +
		"rereads quarantine_ttl max_objects quota owner",
	"store.adopt": "store size max_object readers generation treat_as name policy threshold " +
		"rereads quarantine_ttl max_objects quota owner",
	"store.detach":          "store",
	"store.open":            "store name size max_object readers generation treat_as lock",
	"store.put":             "store key value request tenant",
	"store.cached":          "store key",
	"store.lookup":          "store key request",
	"store.signature":       "store key",
	"store.verify":          "store key address id signature",
	"store.get":             "store address id key signature",
	"store.touch":           "store key address id signature",
	"store.release_touches": "store",
	"store.free_unused":     "store",
	"store.clear":           "store",
	"store.close":           "store",
	"store.unlink":          "store",
	"store.reserve":         "store key value request tenant",
	"store.fill":            "store key field offset hex",
	"store.publish":         "store key",
	"store.discard":         "store key",
	"store.begin":           "store request",
	"store.commit":          "store request",
	"store.rollback":        "store request",
	"store.finish":          "store request",
	"store.abort":           "store request",
	"store.fence":           "store",
	"store.reset_readers":   "store readers",
	"store.evict":           "store key",
	"store.state":           "store",
	"store.peek":            "store offset length",

	"lru.new":         "lru capacity generation treat_as grow_anew",
	"lru.put":         "lru key size",
	"lru.put_if_fits": "lru key size",
	"lru.get":         "lru key",
	"lru.has":         "lru key",
	"lru.touch":       "lru key",
	"lru.pop":         "lru key",
	"lru.popitem":     "lru key remove_pinned",
	"lru.pin":         "lru key",
	"lru.clear":       "lru key",
	"lru.stat":        "lru delta",
	"lru.state":       "lru",
	"lru.close":       "lru",

	"pair.new":        "pair role capacity generation treat_as python",
	"pair.cached":     "pair keys",
	"pair.touch":      "pair key",
	"pair.update":     "pair key value prompt_updates",
	"pair.features":   "pair features",
	"pair.invalidate": "pair key",
	"pair.clear":      "pair key",
	"pair.state":      "pair key",
	"pair.close":      "pair",
	"size_of":         "value python",

	"serde.encode":   "value generation treat_as threshold",
	"serde.decode":   "frames kind generation treat_as",
	"serde.metadata": "hex",
	"address_item":   "address id signature generation treat_as modality",

	"request.encode": "request generation treat_as threshold",
	"request.decode": "frames generation treat_as",
	"request.fields": "generation treat_as",
	"outputs.encode": "outputs generation treat_as threshold",
	"outputs.decode": "frames generation treat_as",

	"hash": "kwargs algorithm generation treat_as",
}

func fieldsOf(op string) []string { return strings.Fields(opFields[op]) }
