package lmcache

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"sync"

	"github.com/ringcache/ringcache/tier"
)

// Counts are what a Server has done since its start, and what it has now. Tokens, chunks and reasons are those
// of the metrics of LMCache's own server.
type Counts struct {
	Lookups    int64    // that have an answer
	EarlyExits [3]int64 // of Lookups: without a look at the cache, by EarlyExitReasons

	// Tokens of look-ups. Requested and hits are of whole chunks, and without those that the engine has
	// itself.
	Requested, HitMemory, HitLower int64
	Prompt, RequestHit             int64 // of whole requests, with what engines have themselves

	Loaded      int64 // chunks of requests that workers were given
	Read        int64 // objects of them
	NoRoom      int64 // objects for which there was no room when a worker wanted to store them
	NotRead     int64 // objects that a worker wanted to load, and that were gone
	WriteLocked int64 // or not stored yet

	// Now.
	Requests int // that have look-ups
	Pending  int // look-ups that wait for lower levels
	Workers  int // that are registered
	Events   int // of KV, that a subscriber could still get
}

// EarlyExitReasons are why a look-up does not look at the cache: no worker of the model is registered that can
// load, the prompt has no whole chunk, the request wants nothing loaded.
var EarlyExitReasons = [...]string{"no_gpu_context", "empty_chunk_hashes", "load_policy_recompute"}

const (
	noReason = iota - 1
	noWorker
	noChunk
	noLoad
)

// counts has the Counts of a Server.
type counts struct {
	mu sync.Mutex
	n  Counts
}

func (c *counts) add(do func(n *Counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do(&c.n)
}

// asked are the tokens of a look-up.
type asked struct {
	chunk, prompt int
	computed      int // that the engine has itself, by its own account
}

// lookedUp counts a look-up that has its answer: of the chunks [from, to) those before memory were there at
// once, and those before n are the hits.
func (c *counts) lookedUp(a asked, from, to, memory, n, reason int) {
	memory = min(max(memory, from), n)
	c.add(func(all *Counts) {
		all.Lookups++
		all.Requested += int64(to-from) * int64(a.chunk)
		all.HitMemory += int64(memory-from) * int64(a.chunk)
		all.HitLower += int64(n-memory) * int64(a.chunk)
		all.Prompt += int64(a.prompt)
		all.RequestHit += int64(max(min(a.computed, a.prompt), n*a.chunk))
		if reason != noReason {
			all.EarlyExits[reason]++
		}
	})
}

// notLoaded counts the objects that a worker wanted to load in vain.
func (c *counts) notLoaded(placed []tier.Placed) {
	c.add(func(n *Counts) {
		for _, p := range placed {
			switch {
			case errors.Is(p.Err, tier.ErrPending):
				n.WriteLocked++
			case errors.Is(p.Err, tier.ErrNotFound), errors.Is(p.Err, fs.ErrNotExist):
				n.NotRead++
			}
		}
	})
}

// Worker is a registered worker.
type Worker struct {
	ID           int64
	Model        string
	World, Block int
	MLA          bool // it has one plane in place of keys and values
}

// Name is the ID as a text.
func (w Worker) Name() string { return instanceID(w.ID) }

// Workers lists the registered workers in the order of their IDs.
func (s *Server) Workers() []Worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Worker, 0, len(s.state.Instances))
	for key, i := range s.state.Instances {
		id, err := strconv.ParseInt(key, 10, 64)
		if err != nil || len(i.Layout.Groups) == 0 {
			continue // of a file that something else wrote
		}
		g := i.Layout.Groups[0]
		out = append(out, Worker{id, i.Layout.Model, i.Layout.World, g.BlockTokens, g.Planes == 1})
	}
	slices.SortFunc(out, func(a, b Worker) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// ChunkSize returns the tokens of a chunk: as configured, until the first engine has asked.
func (s *Server) ChunkSize() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.state.Chunk, s.o.ChunkSize)
}

// Counts returns what the server has done.
func (s *Server) Counts() Counts {
	s.counts.mu.Lock()
	n := s.counts.n
	s.counts.mu.Unlock()
	s.events.mu.Lock()
	n.Events = len(s.events.log)
	s.events.mu.Unlock()
	var all []*client
	s.mu.Lock()
	n.Requests, n.Workers = s.owners.requests(), len(s.state.Instances)
	for _, c := range s.served {
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		c.mu.Lock()
		for _, req := range c.requests {
			n.Pending += len(slices.DeleteFunc(slices.Clone(req.lookups), func(l *lookup) bool { return !l.pending }))
		}
		c.mu.Unlock()
	}
	return n
}
