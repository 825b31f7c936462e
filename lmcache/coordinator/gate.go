package coordinator

import (
	"time"

	"github.com/ringcache/ringcache/kv/directory"
)

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
	last                      time.Time // when a batch came
}

type verdict int

const (
	admitted verdict = iota
	duplicate
	stale
)

// take applies a batch, or says why not. A batch that fails is lost.
func (g *gate) take(b *batch, now time.Time) (verdict, error) {
	if last, gone := g.departed[b.Instance]; gone {
		if *b.Incarnation > last {
			g.back(b.Instance)
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
	s.seq, s.dropped, s.counted, s.last = b.Seq, b.Dropped, true, now
	err := g.index.apply(b)
	if lost || err != nil {
		s.gap = true
		if b.Shared {
			g.index.d.Lost(directory.ID{Instance: sharedHolder})
		}
	}
	if s.gap { // also where this batch was the first one of which the directory has heard
		g.index.d.Lost(directory.ID{Instance: b.Instance})
	}
	return admitted, err
}

// back tells that an instance that had gone has come back.
func (g *gate) back(instance string) {
	delete(g.departed, instance)
	g.index.d.Away(directory.ID{Instance: instance}, false)
}

// drop forgets an instance that has gone, but for what outlives it.
func (g *gate) drop(instance string) {
	id := directory.ID{Instance: instance}
	if g.index.fence(instance) == 0 {
		g.index.d.Deregister(id) // names that come and go would fill the directory
	} else {
		g.index.d.Away(id, true)
	}
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
