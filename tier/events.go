package tier

import (
	"sync"
	"sync/atomic"
	"time"
)

// Event is something that happened. Kind and Cause are those of [Counter]; there are no events of plain hits
// and misses, but of damage that was found: a miss because of "corrupt".
type Event struct {
	Time  time.Time
	Level string
	Kind  string
	Key   Key   // empty if the event is about the level
	Bytes int64 // of the object
	Cause string
}

const maxEvents = 1024 // that wait for who takes them

// events hands events to a function that may be slow.
type events struct {
	to      func(Event)
	queue   chan Event
	dropped atomic.Int64 // events for which the queue had no room
	work    sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

// newEvents returns events that nobody gets until start.
func newEvents(to func(Event)) *events {
	e := &events{to: to}
	if to != nil {
		e.queue = make(chan Event, maxEvents)
	}
	return e
}

// start begins to hand events on. Open does it when it can fail no more.
func (e *events) start() {
	if e.to == nil {
		return
	}
	e.work.Go(func() {
		for event := range e.queue {
			e.to(event)
		}
	})
}

// send queues an event. It never waits.
func (e *events) send(event Event) {
	if e.to == nil {
		return
	}
	event.Time = time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	select {
	case e.queue <- event:
	default:
		e.dropped.Add(1)
	}
}

// close waits until the events before it were taken.
func (e *events) close() {
	if e.to == nil {
		return
	}
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		close(e.queue)
	}
	e.mu.Unlock()
	e.work.Wait()
}
