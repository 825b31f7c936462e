package resp

import (
	"container/list"
	"errors"
	"sync"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// pins are the objects that EXISTS has affirmed, and that stay in memory for a GET that follows: the oldest first.
type pins struct {
	holder Holder
	most   int

	mu    sync.Mutex // also of the holder
	at    map[tier.Key]*list.Element
	order list.List // of pinned
}

type pinned struct {
	key  tier.Key
	time time.Time
}

// add pins an object that is in memory. It reports whether it could: for room, older pins go.
func (p *pins) add(k tier.Key, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.at[k]; e != nil {
		e.Value.(*pinned).time = now
		p.order.MoveToBack(e)
	}
	for {
		switch err := p.holder.Pin([]tier.Key{k})[0].Err; {
		case err == nil:
			p.note(k, now)
			return true
		case !errors.Is(err, tier.ErrFull) || p.order.Len() == 0:
			p.end(p.at[k]) // it was lost, if there was one
			p.holder.Unpin([]tier.Key{k})
			return false
		}
		p.end(p.order.Front())
	}
}

// note notes a pin of the holder. The caller has the lock.
func (p *pins) note(k tier.Key, now time.Time) {
	if p.at[k] != nil {
		return
	}
	if p.at == nil {
		p.at = map[tier.Key]*list.Element{}
	}
	p.at[k] = p.order.PushBack(&pinned{k, now})
	if p.order.Len() > p.most {
		p.end(p.order.Front())
	}
}

// dropOldest ends the oldest pin, for room. It reports whether there was one.
func (p *pins) dropOldest() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.order.Front()
	p.end(e)
	return e != nil
}

// drop ends the pin of an object.
func (p *pins) drop(k tier.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(p.at[k])
}

// expire ends the pins of before.
func (p *pins) expire(before time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for e := p.order.Front(); e != nil && e.Value.(*pinned).time.Before(before); e = p.order.Front() {
		p.end(e)
	}
}

// close ends all.
func (p *pins) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for e := p.order.Front(); e != nil; e = p.order.Front() {
		p.end(e)
	}
	p.holder.Close()
}

// end ends a pin, if there is one. The caller has the lock.
func (p *pins) end(e *list.Element) {
	if e == nil {
		return
	}
	k := e.Value.(*pinned).key
	p.order.Remove(e)
	delete(p.at, k)
	p.holder.Unpin([]tier.Key{k})
}
