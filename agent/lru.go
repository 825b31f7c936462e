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
		"lru.new":         a.lruNew,
		"lru.put":         a.onLRU(lruPut),
		"lru.put_if_fits": a.onLRU(lruPutIfFits),
		"lru.get":         a.onLRU(withKey(lruGet)),
		"lru.has":         a.onLRU(withKey(func(l *lru, key string) (reply, error) { return reply{"has": l.Has(key)}, nil })),
		"lru.touch":       a.onLRU(withKey(lruTouch)),
		"lru.pop":         a.onLRU(withKey(lruPop)),
		"lru.popitem":     a.onLRU(lruPopItem),
		"lru.pin":         a.onLRU(withKey(lruPin)),
		"lru.clear":       a.onLRU(func(_ *params, l *lru) (reply, error) { l.Clear(); return nil, nil }),
		"lru.stat":        a.onLRU(lruStat),
		"lru.state":       a.onLRU(func(_ *params, l *lru) (reply, error) { return lruState(l), nil }),
		"lru.close":       a.onLRU(func(p *params, _ *lru) (reply, error) { delete(a.lrus, p.str("lru")); return nil, nil }),
	}
}

func (a *Agent) onLRU(f func(*params, *lru) (reply, error)) operation {
	return func(p *params) (reply, error) {
		name := p.str("lru")
		l, ok := a.lrus[name]
		if p.err == nil && !ok {
			p.fail("no lru %q", name)
		}
		if p.err != nil {
			return nil, p.err
		}
		return f(p, l)
	}
}

func withKey(f func(l *lru, key string) (reply, error)) func(*params, *lru) (reply, error) {
	return func(p *params, l *lru) (reply, error) {
		key := p.str("key")
		if p.err != nil {
			return nil, p.err
		}
		return f(l, key)
	}
}

// cacheOptions are the fields that make a cache.
func cacheOptions(p *params) (lrusync.Options, error) {
	o := lrusync.Options{Capacity: required[float64](p, "capacity"), Generation: p.generation()}
	if p.err != nil {
		return o, p.err
	}
	return o, o.Validate()
}

func (a *Agent) lruNew(p *params) (reply, error) {
	name, anew := p.str("lru"), optional(p, "grow_anew", false)
	o, err := cacheOptions(p)
	if err != nil {
		return nil, err
	}
	if _, ok := a.lrus[name]; ok {
		return nil, invalidf("lru %q exists", name)
	}
	a.lrus[name] = upstream.NewLRUCache(o.Capacity, upstream.LRUOptions[struct{}]{GrowAnew: anew})
	return nil, nil
}

func lruPut(p *params, l *lru) (reply, error) {
	key, size := p.str("key"), required[int64](p, "size")
	if p.err != nil {
		return nil, p.err
	}
	if err := l.Put(key, struct{}{}, size); err != nil {
		return nil, err
	}
	return reply{"stored": true}, nil
}

func lruPutIfFits(p *params, l *lru) (reply, error) {
	key, size := p.str("key"), required[int64](p, "size")
	if p.err != nil {
		return nil, p.err
	}
	stored, err := l.PutIfFits(key, struct{}{}, size)
	if err != nil {
		return nil, err
	}
	return reply{"stored": stored}, nil
}

// found is the reply about a key that may be absent.
func found(size int64, ok bool) reply {
	if !ok {
		return reply{"found": false}
	}
	return reply{"found": true, "size": size}
}

func lruGet(l *lru, key string) (reply, error) {
	_, size, ok := l.Peek(key)
	l.Get(key)
	return found(size, ok), nil
}

// lruTouch leaves no ghost in any generation: the eviction that came across it
// would have no answer to give.
func lruTouch(l *lru, key string) (reply, error) {
	l.Touch(key)
	return nil, nil
}

func lruPop(l *lru, key string) (reply, error) {
	_, size, ok := l.Peek(key)
	l.Pop(key)
	return found(size, ok), nil
}

func lruPopItem(p *params, l *lru) (reply, error) {
	evenPinned := optional(p, "remove_pinned", false)
	switch {
	case p.err != nil:
		return nil, p.err
	case evenPinned && l.Len() == 0: // upstream's error has no text then
		return nil, invalidf("the lru is empty")
	}
	before := l.Size()
	key, _, err := l.PopItem(evenPinned)
	if err != nil {
		return nil, err
	}
	return reply{"key": key, "size": before - l.Size()}, nil
}

func lruPin(l *lru, key string) (reply, error) {
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
	if p.err != nil {
		return nil, p.err
	}
	s := l.Stat(delta)
	return reply{"hits": s.Hits, "total": s.Total}, nil
}

func lruState(l *lru) reply {
	order, pinned, sizes := []string{}, []string{}, map[string]int64{}
	for k, e := range l.All() {
		order = append(order, k)
		sizes[k] = e.Size
		if e.Pinned {
			pinned = append(pinned, k)
		}
	}
	slices.Sort(pinned)
	return reply{"order": order, "size": l.Size(), "pinned": pinned, "sizes": sizes}
}
