package model

import (
	"fmt"

	"github.com/ringcache/ringcache/fuzz"
)

// Pair is vLLM's mirrored caches (vllm/multimodal/cache.py, from 0.31 on cache/lru.py) as a system
// that performs the operations pair.* and size_of of the agent's protocol.
type Pair struct {
	release Release
	options CacheOptions
	ends    map[string]*pairEnd
}

// pairEnd is one end of a mirrored pair, or a frontend that has no other end.
type pairEnd struct {
	lruCache
	role     string
	release  Release
	upstream bool
	python   python
	hung     error // the hang that ended it
}

// NewPair returns a system without caches. r stands in for the field generation where that is
// absent. Tensors have to come as hexadecimal text.
func NewPair(r Release, o CacheOptions) *Pair {
	return &Pair{release: r, options: o, ends: map[string]*pairEnd{}}
}

// Close does nothing.
func (m *Pair) Close() error { return nil }

// Do performs operations. Others than pair.* and size_of are an error.
func (m *Pair) Do(ops []fuzz.Op) ([]fuzz.Reply, error) { return doEach(ops, m.do) }

// pairFields are the fields of each operation.
var pairFields = map[string]string{
	"pair.new": "pair role capacity generation python", "pair.cached": "pair keys", "pair.touch": "pair key",
	"pair.update": "pair key value prompt_updates", "pair.features": "pair features", "pair.invalidate": "pair key",
	"pair.clear": "pair key", "pair.state": "pair key", "pair.close": "pair", "size_of": "value python",
}

func (m *Pair) do(op fuzz.Op) (map[string]any, error) {
	known, ok := pairFields[op.Name]
	if !ok {
		return nil, fmt.Errorf("model: %q is no operation of a mirrored pair", op.Name)
	}
	a := readArgs(op, known)
	if op.Name == "size_of" {
		return sizeOf(a)
	}
	name := field[string](a, "pair")
	if op.Name == "pair.new" {
		return nil, m.make(name, a)
	}
	e := m.ends[name]
	if e == nil {
		a.fail("there is no pair %q", name)
	}
	if a.err != nil {
		return nil, a.err
	}
	if op.Name == "pair.close" {
		delete(m.ends, name)
		return nil, nil
	}
	if e.hung != nil {
		return nil, e.hung
	}
	fields, err := e.perform(op.Name, a)
	if r, ok := err.(*refusal); ok && r.Kind == "hang" {
		e.hung = err
	}
	return fields, err
}

func sizeOf(a *args) (map[string]any, error) {
	p, v := a.python(), field[any](a, "value")
	if a.err != nil {
		return nil, a.err
	}
	s, err := p.value(v)
	if err != nil {
		return nil, err
	}
	return map[string]any{"bytes": s.size}, nil
}

func (m *Pair) make(name string, a *args) error {
	e := &pairEnd{role: field[string](a, "role"), release: a.release(m.release), python: a.python(),
		upstream: m.options.Upstream}
	e.lruCache = lruCache{capacity: a.capacity(), ghosts: e.upstream && e.release.GhostTouch}
	switch {
	case m.ends[name] != nil:
		a.fail("pair %q exists", name)
	case e.role != "sender" && e.role != "receiver" && e.role != "processor_only":
		a.fail("unknown role %q", e.role)
	}
	if a.err == nil {
		m.ends[name] = e
	}
	return a.err
}

func (e *pairEnd) perform(operation string, a *args) (map[string]any, error) {
	switch operation {
	case "pair.clear":
		return nil, e.clear()
	case "pair.state":
		s := e.lruCache.state()
		return map[string]any{"order": s["order"], "size": s["size"], "hits": e.hits, "total": e.total}, nil
	case "pair.features":
		if e.role != "receiver" {
			return nil, refuse("unsupported", "this is no receiver")
		}
		return e.features(a)
	}
	if e.role == "receiver" {
		return nil, refuse("unsupported", "this is a receiver")
	}
	if operation == "pair.cached" {
		return e.cached(a)
	}
	key := field[string](a, "key")
	switch {
	case a.err != nil:
		return nil, a.err
	case operation == "pair.update":
		return e.update(key, a)
	case e.upstream && (operation == "pair.touch" && !e.release.Touch || operation == "pair.invalidate" &&
		!e.release.Invalidate):
		return nil, refuse("unsupported", "vLLM %s has no %s", e.release.Version, operation)
	case operation == "pair.touch":
		e.touch(key)
	case operation == "pair.invalidate" && e.role == "sender": // the other one has no mirror that could lack it
		e.pop(key)
	}
	return nil, nil
}

func (e *pairEnd) cached(a *args) (map[string]any, error) {
	cached := []bool{}
	for _, k := range field[[]any](a, "keys") {
		key, ok := k.(string)
		if !ok {
			a.fail("key %v", k)
		}
		cached = append(cached, e.find(key) >= 0)
	}
	return map[string]any{"cached": cached}, a.err
}

// kept is what a frontend keeps of an item. A sender has no use for the value.
type kept struct {
	value   *sized
	updates any
	has     bool // there are updates
}

// update is get_and_update_item of a frontend: what is cached wins, else the value is stored. From
// 0.29 on, a value that exceeds the cache goes out without being stored.
func (e *pairEnd) update(key string, a *args) (map[string]any, error) {
	var in *sized
	if v, there := a.fields["value"]; there {
		var err error
		if in, err = e.python.value(v); err != nil {
			return nil, err
		}
	}
	out := map[string]any{"data": "sent"}
	var k kept
	if entry, hit := e.get(key); hit {
		k = entry.value.(kept)
		if e.role == "sender" {
			out["data"] = "omitted"
		}
	} else {
		if in == nil {
			return nil, missed([]string{key}, absentHere(key))
		}
		k.value = in
		k.updates, k.has = a.fields["prompt_updates"]
		if err := e.store(key, in.size, k); err != nil {
			return nil, err
		}
	}
	if e.role == "processor_only" {
		out["value"] = k.value.reply
	}
	if k.has {
		out["prompt_updates"] = k.updates
	}
	return out, nil
}

func (e *pairEnd) store(key string, size int64, value any) error {
	if !e.release.PutIfFits {
		return e.put(key, size, value)
	}
	_, err := e.putIfFits(key, size, value)
	return err
}

// absentHere is the text of vLLM's assertion.
func absentHere(key string) string {
	return fmt.Sprintf("Expected a cached item for mm_hash='%s'", key)
}
