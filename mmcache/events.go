package mmcache

import "sync"

// Event is a change of what is cached, in the order in which it happened. With them
// a router can find out where an item is warm.
type Event struct {
	// Kind is what happened:
	//
	//	added    the item is cached now
	//	evicted  the item is no longer cached; it made room, was invalidated or missed
	//	refused  the item was made but could not be cached
	//	cleared  nothing is cached any more
	//	lost     the subscriber was too slow, or the engine turned out to have other
	//	         items than the cache assumed (Mirrored.Repair). What the subscriber made
	//	         of earlier events is not true any more; Cache.Keys is.
	Kind    string
	Key     string // of added, evicted, refused
	Refused error  // of refused, see Item.Refused
	Epoch   uint64 // of cleared: the one that begins
	Lost    int64  // of lost: how many events were dropped; 0 after a Repair
}

const (
	eventAdded   = "added"
	eventEvicted = "evicted"
	eventRefused = "refused"
	eventCleared = "cleared"
	eventLost    = "lost"
)

// events hands events to subscribers without ever waiting for one.
type events struct {
	mu     sync.Mutex
	subs   map[*subscriber]struct{}
	closed bool
}

type subscriber struct {
	ch   chan Event
	lost int64
}

func (e *events) emit(ev Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for s := range e.subs {
		s.offer(ev)
	}
}

func (s *subscriber) offer(ev Event) {
	if s.lost > 0 {
		select {
		case s.ch <- Event{Kind: eventLost, Lost: s.lost}:
			s.lost = 0
		default:
			s.lost++
			return
		}
	}
	select {
	case s.ch <- ev:
	default:
		s.lost++
	}
}

// subscribe returns a channel of events and what ends it.
func (e *events) subscribe(buffer int) (<-chan Event, func()) {
	s := &subscriber{ch: make(chan Event, max(buffer, 1))}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		close(s.ch)
		return s.ch, func() {}
	}
	if e.subs == nil {
		e.subs = map[*subscriber]struct{}{}
	}
	e.subs[s] = struct{}{}
	return s.ch, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if _, ok := e.subs[s]; ok {
			delete(e.subs, s)
			close(s.ch)
		}
	}
}

func (e *events) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for s := range e.subs {
		close(s.ch)
	}
	clear(e.subs)
	e.closed = true
}
