package agent

import (
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/lrusync/upstream"
)

// lru is an LRU whose values are nothing but their sizes.
type lru = upstream.LRUCache[struct{}]

func (a *Agent) lruOps() map[string]operation {
	return map[string]operation{
		"lru.new":         {"lru capacity generation treat_as grow_anew", a.lruNew},
		"lru.put":         {"lru key size", on("lru", a.lrus, lruPut)},
		"lru.put_if_fits": {"lru key size", on("lru", a.lrus, lruPutIfFits)},
		"lru.get":         {"lru key", on("lru", a.lrus, lruGet)},
		"lru.has":         {"lru key", on("lru", a.lrus, lruHas)},
		"lru.touch":       {"lru key", on("lru", a.lrus, lruTouch)},
		"lru.pop":         {"lru key", on("lru", a.lrus, lruPop)},
		"lru.popitem":     {"lru key remove_pinned", on("lru", a.lrus, lruPopItem)},
		"lru.pin":         {"lru key", on("lru", a.lrus, lruPin)},
		"lru.clear":       {"lru key", on("lru", a.lrus, lruClear)},
		"lru.stat":        {"lru delta", on("lru", a.lrus, lruStat)},
		"lru.state":       {"lru", on("lru", a.lrus, lruState)},
		"lru.close":       {"lru", forget("lru", a.lrus)},
	}
}

// cacheOptions are the fields that make a cache.
func cacheOptions(p *params) (lrusync.Options, error) {
	o := lrusync.Options{Capacity: required[float64](p, "capacity"), Generation: p.generation()}
	return o, o.Validate()
}

func (a *Agent) lruNew(p *params) (reply, error) {
	name, anew := unused(p, "lru", a.lrus), optional(p, "grow_anew", false)
	o, err := cacheOptions(p)
	if err != nil {
		return nil, err
	}
	a.lrus[name] = upstream.NewLRUCache(o.Capacity, upstream.LRUOptions[struct{}]{GrowAnew: anew})
	return nil, nil
}

func lruPut(p *params, l *lru) (reply, error) {
	key, size := p.str("key"), required[int64](p, "size")
	return reply{"stored": true}, l.Put(key, struct{}{}, size)
}

func lruPutIfFits(p *params, l *lru) (reply, error) {
	key, size := p.str("key"), required[int64](p, "size")
	stored, err := l.PutIfFits(key, struct{}{}, size)
	return reply{"stored": stored}, err
}

// found is the reply about a key that may be absent.
func found(size int64, ok bool) reply {
	if !ok {
		return reply{"found": false}
	}
	return reply{"found": true, "size": size}
}

func lruGet(p *params, l *lru) (reply, error) {
	key := p.str("key")
	_, size, ok := l.Peek(key)
	l.Get(key)
	return found(size, ok), nil
}

// lruTouch leaves no ghost in any generation: the eviction that came across it
// would have no answer to give.
func lruTouch(p *params, l *lru) (reply, error) {
	l.Touch(p.str("key"))
	return nil, nil
}

func lruPop(p *params, l *lru) (reply, error) {
	key := p.str("key")
	_, size, ok := l.Peek(key)
	l.Pop(key)
	return found(size, ok), nil
}

func lruPopItem(p *params, l *lru) (reply, error) {
	evenPinned := optional(p, "remove_pinned", false)
	if evenPinned && l.Len() == 0 { // upstream's error has no text then
		return nil, invalidf("the lru is empty")
	}
	before := l.Size()
	key, _, err := l.PopItem(evenPinned)
	return reply{"key": key, "size": before - l.Size()}, err
}

func lruPin(p *params, l *lru) (reply, error) {
	key := p.str("key")
	if !l.Pin(key) {
		return nil, pinAbsentError(key)
	}
	return nil, nil
}

// pinAbsentError reports that the key to pin is absent.
type pinAbsentError string

func (e pinAbsentError) Error() string {
	return fmt.Sprintf("key %q is absent: put it before it is pinned", string(e))
}

// UpstreamText is the text of vLLM's ValueError for the same failure.
func (e pinAbsentError) UpstreamText() string {
	return fmt.Sprintf("Cannot pin key: %s not in cache.", string(e))
}

func lruStat(p *params, l *lru) (reply, error) {
	delta := optional(p, "delta", false)
	s := l.Stat(delta)
	return reply{"hits": s.Hits, "total": s.Total}, nil
}

func lruHas(p *params, l *lru) (reply, error) { return reply{"has": l.Has(p.str("key"))}, nil }

func lruClear(_ *params, l *lru) (reply, error) { l.Clear(); return nil, nil }

func lruState(_ *params, l *lru) (reply, error) {
	order, pinned, sizes := []string{}, []string{}, map[string]int64{}
	for k, e := range l.All() {
		order = append(order, k)
		sizes[k] = e.Size
		if e.Pinned {
			pinned = append(pinned, k)
		}
	}
	slices.Sort(pinned)
	return reply{"order": order, "size": l.Size(), "pinned": pinned, "sizes": sizes}, nil
}
