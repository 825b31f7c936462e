package storetest_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/fuzz/storetest"
)

// tiny is a store as another author might write it: a list of objects over a []byte, in the order
// of their places, of which the first that are not needed are evicted for room. Its bugs are
// switched on by name.
type tiny struct {
	bug      string
	memory   []byte
	max      int
	readers  int
	objects  []*item
	nextID   uint64
	requests map[string]*lease
}

type item struct {
	key            string
	at, size       int
	id             uint64
	uses, reads    int
	off            int // reads that are missing and never come
	leases         int
	waits, evicted bool
}

func newTiny(bug string) storetest.New {
	return func(c storetest.Config) (storetest.Store, error) {
		return &tiny{bug: bug, memory: make([]byte, c.Size), max: c.MaxObject, readers: c.Readers,
			requests: map[string]*lease{}}, nil
	}
}

func (s *tiny) find(key string) *item {
	for _, o := range s.objects {
		if o.key == key {
			return o
		}
	}
	return nil
}

func (s *tiny) needed(o *item) int { return o.uses*s.readers - o.off }

func (s *tiny) idle(o *item) bool {
	if s.bug == "evicts what is leased" && o.reads > 0 {
		return true
	}
	complete := o.reads >= s.needed(o)
	if s.bug == "one read is enough" {
		complete = o.reads > 0 && o.reads >= o.uses-o.off
	}
	return o.leases == 0 && (!o.waits || complete)
}

func (s *tiny) settle(o *item) {
	if s.idle(o) {
		o.waits = false
		o.off = o.uses*s.readers - o.reads
	}
}

// place finds room between what must stay, and evicts what is in it.
func (s *tiny) place(n int) (int, bool) {
	at := 0
	for _, o := range s.objects {
		if s.idle(o) && s.bug != "full although there is room" {
			continue
		}
		if o.at-at >= n {
			break
		}
		at = o.at + o.size
	}
	if at+n > len(s.memory) {
		return 0, false
	}
	s.objects = slices.DeleteFunc(s.objects, func(o *item) bool {
		o.evicted = o.at < at+n && at < o.at+o.size
		return o.evicted
	})
	return at, true
}

func (s *tiny) put(key string, value []byte) (*item, error) {
	if s.find(key) != nil && s.bug != "a key twice" {
		return nil, storetest.ErrExists
	}
	if len(value) > s.max {
		return nil, storetest.ErrTooLarge
	}
	if s.bug == "a refused put leaves the key" && len(value) > len(s.memory)/2 && s.find("k1") != nil && key != "k1" {
		s.objects = append(s.objects, &item{key: key, at: len(s.memory), id: 1 << 40})
		return nil, storetest.ErrFull
	}
	at, ok := s.place(max(1, len(value)))
	if !ok {
		return nil, storetest.ErrFull
	}
	copy(s.memory[at:], value)
	o := &item{key: key, at: at, size: max(1, len(value)), id: s.nextID, uses: 1}
	if len(value) == 0 {
		o.size = 0
	}
	s.nextID++
	s.objects = append(s.objects, o)
	slices.SortFunc(s.objects, func(a, b *item) int { return a.at - b.at })
	return o, nil
}

func (s *tiny) handle(o *item) storetest.Handle {
	return storetest.Handle{Address: uint64(o.at), ID: o.id}
}

func (s *tiny) Put(key string, value []byte) (storetest.Handle, error) {
	o, err := s.put(key, value)
	if err != nil {
		return storetest.Handle{}, err
	}
	o.waits = true
	return s.handle(o), nil
}

func (s *tiny) Lookup(key string) (storetest.Handle, error) {
	o := s.find(key)
	if o == nil {
		return storetest.Handle{}, storetest.ErrNotFound
	}
	if o.uses++; s.bug == "a lookup of what waits is not counted" && o.waits {
		o.uses--
	}
	o.waits = true
	return s.handle(o), nil
}

func (s *tiny) Get(_ int, _ string, h storetest.Handle) ([]byte, error) {
	for _, o := range s.objects {
		stale := s.bug == "a stale handle is served" && uint64(o.at) == h.Address
		if o.id == h.ID && uint64(o.at) == h.Address || stale {
			value := bytes.Clone(s.memory[o.at : o.at+o.size])
			o.reads++
			s.settle(o)
			return value, nil
		}
	}
	return nil, storetest.ErrStale
}

func (s *tiny) State() (storetest.State, error) {
	var out storetest.State
	for _, o := range s.objects {
		out.Objects = append(out.Objects, storetest.Object{
			Key: o.key, Handle: s.handle(o), Value: s.memory[min(o.at, len(s.memory)):min(o.at+o.size,
				len(s.memory))], Uses: o.uses, Reads: o.reads,
		})
	}
	return out, nil
}

func (s *tiny) Close() error { return nil }

func (s *tiny) Evict(key string) (bool, error) {
	o := s.find(key)
	if o == nil || !s.idle(o) {
		return false, nil
	}
	s.objects = slices.DeleteFunc(s.objects, func(x *item) bool { return x == o })
	return true, nil
}

func (s *tiny) Clear() error {
	if len(s.requests) > 0 {
		return errors.New("requests are open")
	}
	s.objects = nil
	if s.bug == "ids restart on clear" {
		s.nextID = 0
	}
	return nil
}

func (s *tiny) Fence() error {
	for _, o := range s.objects {
		if o.waits {
			o.waits = false
			s.settle(o)
		}
	}
	return nil
}

type lease struct {
	s         *tiny
	id        string
	uses      map[*item]int
	committed bool
}

func (s *tiny) Begin(id string) (storetest.Request, error) {
	r := &lease{s: s, id: id, uses: map[*item]int{}}
	s.requests[id] = r
	return r, nil
}

func (r *lease) use(o *item) storetest.Handle {
	if r.uses[o] == 0 {
		o.leases++
	}
	r.uses[o]++
	return r.s.handle(o)
}

func (r *lease) Put(key string, value []byte) (storetest.Handle, error) {
	if r.committed {
		return storetest.Handle{}, errors.New("the request was committed")
	}
	o, err := r.s.put(key, value)
	if err != nil {
		return storetest.Handle{}, err
	}
	return r.use(o), nil
}

func (r *lease) Lookup(key string) (storetest.Handle, error) {
	o := r.s.find(key)
	switch {
	case r.committed:
		return storetest.Handle{}, errors.New("the request was committed")
	case o == nil:
		return storetest.Handle{}, storetest.ErrNotFound
	}
	o.uses++
	return r.use(o), nil
}

func (r *lease) Commit() error {
	if r.committed {
		return errors.New("the request was committed")
	}
	r.committed = true
	return nil
}

func (r *lease) end(committed bool, each func(o *item, uses int)) error {
	if r.committed != committed {
		return fmt.Errorf("committed: %v", r.committed)
	}
	for o, uses := range r.uses {
		if o.leases--; r.s.bug == "an abort lets go" {
			o.leases = 0
		}
		each(o, uses)
		r.s.settle(o)
	}
	delete(r.s.requests, r.id)
	return nil
}

func (r *lease) Rollback() error {
	return r.end(false, func(o *item, uses int) {
		if o.uses -= uses; r.s.bug == "a rollback leaves a use" && uses > 1 {
			o.uses++
		}
		if r.s.bug == "a rollback leaves the lease" && uses > 1 {
			o.leases++
		}
	})
}

func (r *lease) Finish() error { return r.end(true, func(*item, int) {}) }

func (r *lease) Abort() error {
	return r.end(true, func(o *item, _ int) { o.waits = r.s.bug != "an aborted request holds nothing" })
}
