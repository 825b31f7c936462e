package lmcache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/daemon/internal/tracing"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/tier"
)

// lookup is one look-up of a request: chunks that its loads may rely on, pinned by a lease of the scheduler's
// session. Each look-up has its own, so a chunk that two have found stays until both are done with it.
type lookup struct {
	lease    string
	from, to int        // chunks that were asked for
	names    []string   // of these chunks, or of those that were found, from the first one on
	spaces   [][]string // of the groups, for each worker
	windows  []int      // of the groups
	// left is how many reads of an object are still to come, for each worker and its objects, chunk by chunk
	// and in these group by group; 0 is not pinned.
	left    [][]uint8
	begun   time.Time
	pending bool // lower levels are being asked
	answer  int  // chunks, counted from 0, if it is not pending
	readers uint8
	memory  int // chunks, counted from 0, that were there at once; -1 if it was not looked yet
	asked   asked
	span    tracing.Span // of the call that began it
}

// key returns the key of an object of a worker.
func (l *lookup) key(worker, i int) tier.Key {
	groups := len(l.windows)
	return tier.Key{Space: l.spaces[worker][i%groups], Name: l.names[i/groups]}
}

// chunk returns which chunk an object is of.
func (l *lookup) chunk(i int) int { return l.from + i/len(l.windows) }

// pinned yields the objects that it pins.
func (l *lookup) pinned(yield func(k tier.Key)) {
	for w, left := range l.left {
		for i, n := range left {
			if n > 0 {
				yield(l.key(w, i))
			}
		}
	}
}

// object is an object of a chunk: of one group.
type object struct {
	key   tier.Key
	chunk int
	group int
}

// objectsOf returns the objects of the chunks from a number on, in their order, each group by group. spaces
// are those of the groups.
func objectsOf(spaces, chunks []string, from int) []object {
	out := make([]object, 0, len(chunks)*len(spaces))
	for i, name := range chunks {
		for g, space := range spaces {
			out = append(out, object{key: tier.Key{Space: space, Name: name}, chunk: from + i, group: g})
		}
	}
	return out
}

// leaseName is the name of a lease of a request.
func leaseName(kind, request string, number int) string {
	if len(request) > 100 {
		sum := sha256.Sum256([]byte(request))
		request = hex.EncodeToString(sum[:16])
	}
	return kind + " " + strconv.Itoa(number) + " " + request
}

// lookUp begins a look-up. What goes wrong is a look-up that found nothing: an engine ignores an error, and
// asks for the result all the same.
func (s *Server) lookUp(by caller, k *mp.IpcCacheServerKey) error {
	c, err := s.clientOf(by)
	if err != nil {
		return err
	}
	defer c.mu.Unlock()
	s.setLooks(c)
	key, err := parseKey(k, s.releaseOf(c))
	if err == nil {
		req := c.requests[key.request]
		if req == nil {
			req = &request{}
			c.requests[key.request] = req
			s.owners.add(key.request, c)
		}
		if s.releaseOf(c) == since056 { // it means what it says last
			c.drop(req)
		}
		c.forgetDone(req)
		var l *lookup
		if l, err = s.newLookup(c, key, by.span); err == nil {
			req.add(l)
			return nil
		}
	}
	if req := c.requests[k.GetRequestId()]; req != nil {
		req.add(&lookup{}) // what an earlier one has found is no answer to this one
	}
	s.refused("Lookup", err)
	if errors.Is(err, errUndecided) {
		return nil
	}
	return err
}

// setLooks notes that a client is a scheduler.
func (s *Server) setLooks(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.looks = true
}

// releaseOf returns the release of a client.
func (s *Server) releaseOf(c *client) release {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.version
}

// maxObjects bounds the objects of a look-up, of all workers, and maxOpen the look-ups of a request.
const (
	maxObjects = 1 << 20
	maxOpen    = 64
)

// newLookup looks up what a key is about. The caller has c.mu.
func (s *Server) newLookup(c *client, key rangeKey, span tracing.Span) (*lookup, error) {
	size := s.chunkSize()
	l := &lookup{
		from: key.from / size, to: key.to / size, readers: uint8(key.readers), begun: time.Now(), memory: -1, span: span,
		asked: asked{size, len(key.tokens) / 4, key.computed},
	}
	l.answer = l.from
	layouts := s.workers.layoutsOf(key, c.conn)
	reason := noReason
	switch {
	case layouts == nil:
		reason = noWorker
	case l.to == 0:
		reason = noChunk
	case key.skipLoad:
		reason = noLoad
	}
	if key.skipLoad {
		l.answer = 0
	}
	if reason != noReason || l.from == l.to {
		wanted := l.to
		if reason == noWorker {
			wanted = l.from
		}
		s.counts.lookedUp(l.asked, l.from, wanted, l.from, l.from, reason)
		return l, nil
	}
	for _, g := range layouts[0].Groups {
		l.windows = append(l.windows, g.Window)
	}
	objects := (l.to - l.from) * len(l.windows)
	switch {
	case objects*len(layouts) > maxObjects:
		s.refused("Lookup", fmt.Errorf("lmcache: %d chunks of %d workers and %d groups are asked for, and %d objects are the most: %w",
			l.to-l.from, len(layouts), len(l.windows), maxObjects, fs.ErrInvalid))
		return l, nil
	case len(c.requests[key.request].lookups) >= maxOpen:
		return nil, fmt.Errorf("lmcache: a request has %d look-ups that are not done: %w", maxOpen, fs.ErrInvalid)
	}
	var err error
	if l.names, err = s.chains.names(key.request, key.tokens, l.from, l.to); err != nil {
		return nil, err
	}
	for worker, layout := range layouts {
		spaces, err := spacesOf(layout, worker, key.salt)
		if err != nil {
			return nil, err
		}
		l.spaces = append(l.spaces, spaces)
		l.left = append(l.left, make([]uint8, objects))
	}
	l.lease = c.freeLease(key.request)
	s.pin(c, l)
	return l, nil
}

// freeLease returns the name of a lease for one more look-up of a request.
func (c *client) freeLease(request string) string {
	for n := 0; ; n++ {
		name := leaseName("look-up", request, n)
		if !slices.ContainsFunc(c.requests[request].lookups, func(l *lookup) bool { return l.lease == name }) {
			return name
		}
	}
}

func (r *request) add(l *lookup) { r.lookups = append(r.lookups, l) }

// pin pins what a look-up finds, as far as every worker has it, and decides whether that is the answer. The
// caller has c.mu.
func (s *Server) pin(c *client, l *lookup) {
	groups := len(l.windows)
	longest, err := kv.LongestPrefix(l.windows, len(l.spaces), l.from, l.to, func(group, worker, _ int, found []bool) error {
		keys := make([]tier.Key, len(found))
		for i := range keys {
			keys[i] = l.key(worker, i*groups+group)
		}
		l.span.Want(keys...)
		placed, err := c.session.Pin(l.lease, keys, s.o.Lock, l.windows[group] == 0)
		for i, p := range placed {
			if p.Err == nil {
				l.left[worker][i*groups+group] = l.readers
			}
			// What is being fetched counts as there: otherwise the other workers would not be asked, and
			// theirs not fetched.
			found[i] = p.Err == nil || errors.Is(p.Err, tier.ErrPending) && !errors.Is(p.Err, tier.ErrReserved)
		}
		return err
	})
	n := l.from
	if err == nil {
		n, err = kv.LongestPrefix(l.windows, len(l.spaces), l.from, l.to, func(group, worker, _ int, found []bool) error {
			for i := range found {
				found[i] = l.left[worker][i*groups+group] > 0
			}
			return nil
		})
	}
	if err != nil {
		s.refused("Lookup", err)
		longest, n = l.from, l.from
	}
	if l.memory < 0 {
		l.memory = n
		l.span.Count(l.to-l.from, n-l.from)
	}
	late := time.Since(l.begun) > s.patience
	if l.pending = longest > n && !late; l.pending {
		return
	}
	s.decide(c, l, n, longest > n)
}

// decide makes n chunks the answer of a look-up, and gives up what is not part of it: what is pending, too,
// with giveUp.
func (s *Server) decide(c *client, l *lookup, n int, giveUp bool) {
	l.answer = n
	groups := len(l.windows)
	for w, left := range l.left {
		var rest []tier.Key
		for i := range left {
			if left[i] == 0 && giveUp {
				rest = append(rest, l.key(w, i))
			}
		}
		c.unpin(l, w, func(i int) bool { return !needs(l.windows[i%groups], l.chunk(i), n) }, l.readers)
		if len(rest) > 0 {
			_ = c.session.Unpin(l.lease, rest) // it fails if all leases have ended
		}
		l.left[w] = slices.Clone(left[:(n-l.from)*groups])
	}
	s.counts.lookedUp(l.asked, l.from, l.to, l.memory, n, noReason)
	objects := int64(len(l.spaces) * groups)
	use := registry.Use{Hits: int64(n-l.from) * objects, Misses: int64(l.to-n) * objects}
	c.session.Count(l.spaces[0][0], use, false)
	l.names = slices.Clone(l.names[:n-l.from])
}

func keysOf(objects []object) []tier.Key {
	keys := make([]tier.Key, len(objects))
	for i, o := range objects {
		keys[i] = o.key
	}
	return keys
}

// unpin counts reads of those objects of a worker that which chooses, and unpins what is not read any more.
// The caller has c.mu.
func (c *client) unpin(l *lookup, worker int, which func(i int) bool, reads uint8) {
	var keys []tier.Key
	for i, left := range l.left[worker] {
		if left == 0 || !which(i) {
			continue
		}
		l.left[worker][i] -= min(reads, left)
		if l.left[worker][i] == 0 {
			keys = append(keys, l.key(worker, i))
		}
	}
	switch {
	case l.isDone(): // its lease would stay for what is reserved, too
		c.release(l.lease)
	case len(keys) > 0 && c.session != nil:
		_ = c.session.Unpin(l.lease, keys) // it fails if all leases have ended
	}
}

// isDone reports whether nothing is pinned any more, nor will be.
func (l *lookup) isDone() bool {
	return !l.pending && !slices.ContainsFunc(l.left, func(left []uint8) bool {
		return slices.ContainsFunc(left, func(n uint8) bool { return n > 0 })
	})
}

// status returns the chunks that a request has found, counted from 0; nil while lower levels are being asked.
// Of an unknown request it is 0, and so it is when the client is refused: an engine takes an error for
// pending, and asks for ever.
func (s *Server) status(by caller, requestID string) *int64 {
	found := int64(0)
	c, err := s.clientOf(by)
	if err != nil {
		s.refused("QueryPrefetchStatus", err)
		return &found
	}
	defer c.mu.Unlock()
	if req := c.requests[requestID]; req != nil && len(req.lookups) > 0 {
		l := req.lookups[len(req.lookups)-1]
		if l.pending {
			s.pin(c, l)
		}
		if l.pending {
			return nil
		}
		found = int64(l.answer)
	}
	return &found
}

// waitForStatus is status, and asks again until lower levels have answered, for some seconds at most.
func (s *Server) waitForStatus(ctx context.Context, by caller, requestID string, seconds float64) *int64 {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(0, min(seconds, maxWait.Seconds()))*float64(time.Second)))
	defer cancel()
	for {
		n := s.status(by, requestID)
		if n != nil {
			return n
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// maxWait bounds a call that waits.
const maxWait = 30 * time.Second

// freeLocks ends what a request's look-ups rely on, within ranges of tokens: once for each range that names a
// chunk.
func (s *Server) freeLocks(by caller, q *mp.FreeLookupLocksRequest) error {
	c, err := s.clientOf(by)
	if err != nil {
		return err
	}
	defer c.mu.Unlock()
	k := q.GetKey()
	req := c.requests[k.GetRequestId()]
	if req == nil {
		return nil
	}
	size := int64(s.chunkSize())
	for _, t := range append(q.GetExtraRanges(), &mp.TokenRange{Start: k.GetStart(), End: k.GetEnd()}) {
		from, to := t.GetStart()/size, t.GetEnd()/size
		c.free(req, map[freed]bool{}, 0, func(l *lookup, _, i int) bool {
			n := int64(l.chunk(i))
			return n >= from && n < to
		})
	}
	c.forgetDone(req)
	return nil
}

// freed is an object of which a read was ended already.
type freed struct {
	worker int
	key    tier.Key
}

// free ends one look-up of each object that which chooses and that is not in done: that of the oldest that
// has it still. reads are how many reads were done, 0 all.
func (c *client) free(req *request, done map[freed]bool, reads uint8, which func(l *lookup, worker, i int) bool) {
	for _, l := range req.lookups {
		n := reads
		if n == 0 {
			n = l.readers
		}
		for w := range l.left {
			c.unpin(l, w, func(i int) bool {
				if !which(l, w, i) {
					return false
				}
				at := freed{w, l.key(w, i)}
				was := done[at]
				done[at] = true
				return !was
			}, n)
		}
	}
}

// forgetDone forgets the look-ups of a request of which nothing is pinned any more, but for the last one,
// whose answer may still be asked for.
func (c *client) forgetDone(req *request) {
	last := len(req.lookups) - 1
	at := -1
	req.lookups = slices.DeleteFunc(req.lookups, func(l *lookup) bool {
		at++
		return at != last && l.isDone()
	})
}

// drop ends all look-ups of a request. The caller has c.mu.
func (c *client) drop(req *request) {
	var leases []string
	for _, l := range req.lookups {
		if l.lease != "" {
			leases = append(leases, l.lease)
		}
	}
	if len(leases) > 0 {
		c.release(leases...)
	}
	req.lookups = nil
}

// maxLookups is how many look-ups of a request before a restart are looked for.
const maxLookups = 8

// endSession ends the look-ups of a request. What is being stored goes on.
func (s *Server) endSession(by caller, requestID string) error {
	c, err := s.clientOf(by)
	if err != nil {
		return err
	}
	defer c.mu.Unlock()
	if req := c.requests[requestID]; req != nil {
		c.drop(req)
		delete(c.requests, requestID)
	} else { // from before a restart
		leases := make([]string, maxLookups)
		for i := range leases {
			leases[i] = leaseName("look-up", requestID, i)
		}
		c.release(leases...)
	}
	s.forgetChain(requestID)
	s.owners.remove(requestID, c)
	return nil
}
