package explore_test

import (
	"fmt"

	"github.com/ringcache/ringcache/fuzz/explore"
)

// counting is how a release counts the uses of an object (W, the writer's) and the reads (R, in
// the chunk). A writer frees an object once R >= W * readers. The comment at each function lists what it does
// itself; the steps around it are in [protocol.program].
//
// Source: vllm/distributed/device_communicators/shm_object_storage.py and vllm/multimodal/cache.py
// of the releases named.
type counting struct {
	name string
	// touch and getCached are the writer's for an object that it has already.
	touch, getCached func(o *object)
	// readerTouch is a reader's before it gets the object, under the readers' lock. nil: it
	// counts nothing.
	readerTouch func(o *object, readers int) (counted bool)
	// notes: what is touched is noted, and stays.
	notes bool
	// leases: what a request uses stays until every reader has answered it.
	leases bool
	// counts: the counts decide, too.
	counts bool
}

// object is what writer and readers have of one image.
type object struct {
	w, r, leases *explore.Var[int]
	touched      *explore.Var[bool]
}

var (
	uncounted = func(*object) {}
	count     = func(o *object) { o.w.Set(o.w.Get() + 1) }

	// c0: vLLM 0.11. Nobody touches.
	c0 = counting{name: "0.11", touch: uncounted, getCached: count, counts: true}
	// c1: vLLM 0.12 to 0.31. A touch counts on both sides; but the first use of an object was
	// not touched by the writer, so each reader is to skip one: it skips while R < readers.
	c1 = counting{name: "0.12 to 0.31", touch: count, getCached: count, counts: true,
		readerTouch: func(o *object, readers int) bool {
			r := o.r.Get()
			if r >= readers {
				o.r.Set(r + 1)
			}
			return r >= readers
		}}
	// c2: vLLM 0.32 on. A touch counts nowhere; the writer notes it until it gets the object.
	c2 = counting{name: "0.32 on", counts: true, notes: true,
		touch:     func(o *object) { o.touched.Set(true) },
		getCached: func(o *object) { o.touched.Set(false); count(o) }}
	// fifo: objstore.FIFO counts as the release does and has leases as well.
	fifo = counting{name: "objstore.FIFO", touch: uncounted, getCached: count, counts: true, leases: true}
	// pool: objstore.Pool and shmstore decide by leases.
	pool = counting{name: "objstore.Pool", touch: uncounted, getCached: count, leases: true}
)

// reclaimable reports whether the writer may free the object.
func (c counting) reclaimable(o *object, readers int) bool {
	if c.leases && o.leases.Get() > 0 || c.notes && o.touched.Get() {
		return false
	}
	return !c.counts || o.r.Get() >= o.w.Get()*readers
}

// request is one for the image.
type request struct {
	// children share the handle (sampling with n > 1, or a request that is resumed): each
	// reader reads once for each.
	children int
	// uses is how often the writer counts for that; 0 is 1.
	uses int
	// twice: the image is in it twice. All touches come before the first get.
	twice bool
}

var plain, fannedOut = request{children: 1}, request{children: 2}

// protocol is a case: requests for one image, which is new in the first of them.
type protocol struct {
	counting
	readers  int
	requests []request
	// ends, if not nil, gets R at the end of every order, and nothing is asserted.
	ends map[int]bool
}

// program declares a writer and its readers. The Go variables of it depend on where the
// processes stand, and on nothing else.
func (c protocol) program(run *explore.Run) {
	o := &object{w: explore.NewVar(run, "W", 0), r: explore.NewVar(run, "R", 0)}
	if c.notes {
		o.touched = explore.NewVar(run, "touched", false)
	}
	if c.leases {
		o.leases = explore.NewVar(run, "leases", 0)
	}
	sent, read, issued, answers := 0, 0, 0, make([]int, len(c.requests))
	issue := func(q request) {
		for range q.uses - 1 {
			count(o)
		}
		issued += q.children * c.readers
	}
	run.Process("writer", func(p *explore.Process) {
		for k, q := range c.requests {
			known := k > 0
			if c.leases {
				p.Step("begin request %d", k+1)
				o.leases.Set(o.leases.Get() + 1)
			}
			if known {
				p.Step("touch, request %d", k+1)
				c.touch(o)
			}
			for range items(q) {
				if known {
					p.Step("get_cached, request %d", k+1)
					c.getCached(o)
				} else {
					p.Step("put, request %d: W = 1", k+1)
					o.w.Set(1)
				}
				issue(q)
				known = true
			}
			p.Step("send request %d", k+1)
			sent++
		}
		for k := range c.requests {
			if c.leases {
				p.Wait(func() bool {
					return answers[k] == c.readers
				}, "finish request %d: every reader has answered", k+1)
				o.leases.Set(o.leases.Get() - 1)
			}
		}
	})
	for i := range c.readers {
		run.Process(fmt.Sprintf("reader %c", 'A'+i), func(p *explore.Process) {
			for k, q := range c.requests {
				received := func() bool { return sent > k }
				for range q.children {
					c.read(p, o, k, q, received, &read)
				}
				answers[k]++
			}
		})
	}
	if c.ends != nil {
		run.AtEnd("ends", "", func() error { c.ends[o.r.Get()] = true; return nil })
		return
	}
	run.Always("premature-free", "the chunk is used again under a reader, which fails and takes the engine down",
		func() error {
			if unread := issued - read; unread > 0 && c.reclaimable(o, c.readers) {
				return fmt.Errorf("the writer may free the object (R = %d, W x readers = %d), but %d reads of handles are still to come", o.r.Get(), o.w.Get()*c.readers, unread)
			}
			return nil
		})
	run.AtEnd("never-free", "the chunk is never freed, and in a FIFO nothing behind it is", func() error {
		if !c.reclaimable(o, c.readers) {
			return fmt.Errorf("every reader has read every handle, but R = %d stays below W x readers = %d",
				o.r.Get(), o.w.Get()*c.readers)
		}
		return nil
	})
	run.AtEnd("balanced", "what is counted too much leaves later uses unprotected", func() error {
		if c.counts && !c.leases && o.r.Get() != o.w.Get()*c.readers {
			return fmt.Errorf("R = %d, W x readers = %d", o.r.Get(), o.w.Get()*c.readers)
		}
		return nil
	})
}

// read is a reader with one child of request k, once it has the request.
func (c protocol) read(p *explore.Process, o *object, k int, q request, received func() bool, read *int) {
	if c.readerTouch != nil {
		for range items(q) {
			p.Wait(received, "touch, request %d", k+1)
			if c.readerTouch(o, c.readers) {
				p.Saw("counts")
			} else {
				p.Saw(fmt.Sprintf("R < %d, does not count", c.readers))
			}
		}
	}
	for range items(q) {
		p.Wait(received, "get, request %d: R += 1", k+1)
		o.r.Set(o.r.Get() + 1)
		*read++
	}
}

func items(q request) int {
	if q.twice {
		return 2
	}
	return 1
}
