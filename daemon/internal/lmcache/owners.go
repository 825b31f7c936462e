package lmcache

import (
	"maps"
	"slices"
	"sync"
)

// owners are the clients that have look-ups of a request: a worker's load may end these. mu is a leaf lock.
type owners struct {
	mu sync.Mutex
	of map[string]map[*client]struct{} // by request
}

// add notes that a client has look-ups of a request.
func (o *owners) add(request string, c *client) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil {
		o.of = map[string]map[*client]struct{}{}
	}
	if o.of[request] == nil {
		o.of[request] = map[*client]struct{}{}
	}
	o.of[request][c] = struct{}{}
}

// remove forgets that a client has look-ups of a request.
func (o *owners) remove(request string, c *client) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.of[request], c)
	if len(o.of[request]) == 0 {
		delete(o.of, request)
	}
}

// clients returns who has look-ups of a request.
func (o *owners) clients(request string) []*client {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.of[request]))
}

// requests returns how many requests have look-ups.
func (o *owners) requests() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.of)
}
