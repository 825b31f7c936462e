package coordinator

import "github.com/ringcache/ringcache/kv/directory"

// gate decides which batches are applied (lmcache/v1/mp_coordinator/ingest/event_gate.py of 0.5.7rc2). The caller has a
// lock.
type gate struct {
	index    *index
	streams  map[string]*stream
	departed map[string]int64 // the incarnation of those that have gone: what comes late of their memory is stale
}

// stream is how far the batches of an instance are.
type stream struct {
	incarnation, seq, dropped int64
	counted                   bool // dropped is known
	gap                       bool
}

type verdict int

const (
	admitted verdict = iota
	duplicate
	stale
)

// take applies a batch, or says why not.
func (g *gate) take(b *batch) (verdict, error) {
	if last, gone := g.departed[b.Instance]; gone {
		if *b.Incarnation > last {
			delete(g.departed, b.Instance)
		} else if b.Tier == "l1" {
			return stale, nil
		}
	}
	s := g.streams[b.Instance]
	tracked := s != nil
	switch {
	case s == nil:
		if len(g.streams) >= maxInstances {
			return stale, errInstances
		}
	case *b.Incarnation < s.incarnation:
		return stale, nil
	case *b.Incarnation > s.incarnation:
		g.index.fence(b.Instance)
		s = nil
	case b.Seq <= s.seq:
		return duplicate, nil
	}
	if s == nil {
		s = &stream{incarnation: *b.Incarnation, counted: tracked || b.Seq == 1}
		g.streams[b.Instance] = s
	}
	lost := b.Seq > s.seq+1 || s.counted && b.Dropped > s.dropped
	s.seq, s.dropped, s.counted = b.Seq, b.Dropped, true
	err := g.index.apply(b)
	if lost {
		s.gap = true
		g.index.d.Lost(directory.ID{Instance: b.Instance}, func(string) bool { return true })
	}
	return admitted, err
}

// drop forgets an instance that has gone, but for what outlives it.
func (g *gate) drop(instance string) {
	g.index.fence(instance)
	if s := g.streams[instance]; s != nil {
		delete(g.streams, instance)
		for other := range g.departed { // any: what comes late comes soon
			if len(g.departed) < maxInstances {
				break
			}
			delete(g.departed, other)
		}
		g.departed[instance] = s.incarnation
	}
}
