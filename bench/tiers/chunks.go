package main

import (
	"container/list"

	"github.com/ringcache/ringcache/bench/internal/policy"
)

// chunks is a cache that knows no parents: the chunk that was used last of all goes first, wherever it stands in its
// prompt. So what is found is the chunks up to the first one that is absent, and there may be others behind it.
type chunks struct {
	capacity, used int64
	order          list.List // of *policy.Item; the one that was used last is in front
	at             map[*policy.Item]*list.Element
}

func newChunks(capacity int64) *chunks {
	return &chunks{capacity: capacity, at: map[*policy.Item]*list.Element{}}
}

// Has reports whether a chunk is there.
func (c *chunks) Has(it *policy.Item) bool { return c.at[it] != nil }

// Used returns the bytes of the chunks that are there.
func (c *chunks) Used() int64 { return c.used }

// prefix returns how many of the first chunks of a prompt are there.
func (c *chunks) prefix(p prompt) (n int) {
	for n < len(p) && c.Has(p[n]) {
		n++
	}
	return n
}

// touch uses a chunk, which is stored if it is absent.
func (c *chunks) touch(it *policy.Item) {
	if e := c.at[it]; e != nil {
		c.order.MoveToFront(e)
		return
	}
	c.at[it] = c.order.PushFront(it)
	c.used += it.Size
}

// evict gives up the chunk whose use is longest ago.
func (c *chunks) evict() {
	it := c.order.Remove(c.order.Back()).(*policy.Item)
	delete(c.at, it)
	c.used -= it.Size
}

func (c *chunks) use(p prompt) (found int) {
	found = c.prefix(p)
	for _, it := range p {
		for !c.Has(it) && c.used+it.Size > c.capacity {
			c.evict()
		}
		c.touch(it)
	}
	return found
}

// stock does what the memory of LMCache's server 0.5.6 does with its defaults: a store of several chunks is granted if
// all of them have room, and else refused; at the end of a request all its chunks count as used, the first one last;
// and as long as four fifths of the bytes are taken, a fifth of the chunks go. The server looks once a second; here
// it looks after every request, so that it has as much free room as it can have.
type stock struct{ *chunks }

func newStock(capacity int64) stock { return stock{newChunks(capacity)} }

// step is the chunks of one store: vLLM stores what a step has computed, here 2048 tokens.
const step = 8

func (s stock) use(p prompt) (found int) {
	found = s.prefix(p)
	for at := found; at < len(p); at += step {
		var absent []*policy.Item
		for _, it := range p[at:min(at+step, len(p))] {
			if !s.Has(it) {
				absent = append(absent, it)
			}
		}
		if int64(len(absent))*p[0].Size > s.capacity-s.used {
			continue
		}
		for _, it := range absent {
			s.touch(it)
		}
	}
	for i := len(p) - 1; i >= 0; i-- {
		if s.Has(p[i]) {
			s.touch(p[i])
		}
	}
	if 5*s.used >= 4*s.capacity {
		for range max(1, len(s.at)/5) {
			s.evict()
		}
	}
	return found
}
