package lmcache

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/tier"
)

// lookup is one look-up of a request: chunks that its loads may rely on, pinned by a lease of the scheduler's session. Each
// look-up has its own, so a chunk that two have found stays until both are done with it.
type lookup struct {
	lease    string
	from, to int        // chunks that were asked for
	workers  [][]object // for each worker, the objects of those chunks, in the order of the chunks
	// left is how many reads of an object are still to come, for each worker and object; 0 is not pinned.
	left    [][]uint8
	layouts []kv.Layout // of the workers
	pending bool        // lower levels are being asked
	answer  int         // chunks, counted from 0, if it is not pending
	readers uint8
}

// object is an object of a chunk: of one group.
type object struct {
	key   tier.Key
	chunk int
	group int
}

// objectsOf returns the objects of the chunks from a number on, in their order, each group by group. spaces are those of
// the groups.
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

// lookUp begins a look-up. What goes wrong is a look-up that found nothing: an engine ignores an error, and asks for the
// result all the same.
func (s *Server) lookUp(by caller, k *mp.IpcCacheServerKey) error {
	c, err := s.clientOf(by)
	if err != nil {
		return err
	}
	defer c.mu.Unlock()
	req := c.requests[k.GetRequestId()]
	if req == nil {
		req = &request{}
	}
	key, err := parseKey(k, s.releaseOf(c))
	if err == nil {
		c.requests[key.request] = req
		s.own(key.request, c)
		if s.releaseOf(c) == since056 { // it means what it says last
			c.drop(req)
		}
		var l *lookup
		if l, err = s.newLookup(c, key); err == nil {
			req.add(l)
			return nil
		}
	}
	s.refused("Lookup", err)
	if errors.Is(err, errUndecided) {
		return nil
	}
	return err
}

// releaseOf returns the release of a client.
func (s *Server) releaseOf(c *client) release {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.version
}

// own notes whose look-ups the loads of a request end.
func (s *Server) own(request string, c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owners[request] = c
}

// newLookup looks up what a key is about. The caller has c.mu.
func (s *Server) newLookup(c *client, key rangeKey) (*lookup, error) {
	size := s.chunkSize()
	l := &lookup{from: key.from / size, to: key.to / size, readers: uint8(key.readers)}
	l.answer = l.from
	if key.skipLoad {
		l.answer = 0
		return l, nil
	}
	l.layouts = s.layoutsOf(key, c.conn)
	if l.layouts == nil || l.from == l.to {
		return l, nil
	}
	chunks, err := s.chains.names(key.request, key.tokens, l.from, l.to)
	if err != nil {
		return nil, err
	}
	for worker, layout := range l.layouts {
		spaces, err := spacesOf(layout, worker, key.salt)
		if err != nil {
			return nil, err
		}
		objects := objectsOf(spaces, chunks, l.from)
		l.workers = append(l.workers, objects)
		l.left = append(l.left, make([]uint8, len(objects)))
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

// pin pins what a look-up finds, as far as every worker has it, and decides whether that is the answer. The caller has
// c.mu.
func (s *Server) pin(c *client, l *lookup) {
	windows := make([]int, len(l.layouts[0].Groups))
	for g := range windows {
		windows[g] = l.layouts[0].Groups[g].Window
	}
	pending := map[[2]int][]bool{} // by group and worker
	exists := func(group, worker, first int, found []bool) error {
		var places []int
		var keys []tier.Key
		for i, o := range l.workers[worker] {
			if o.group == group && o.chunk < first+len(found) {
				places, keys = append(places, i), append(keys, o.key)
			}
		}
		placed, err := c.session.Pin(l.lease, keys, s.o.Lock, windows[group] == 0)
		waits := make([]bool, len(found))
		for i, p := range placed {
			if found[i] = p.Err == nil; found[i] {
				l.left[worker][places[i]] = l.readers
			}
			waits[i] = errors.Is(p.Err, tier.ErrPending) && !errors.Is(p.Err, tier.ErrReserved)
		}
		pending[[2]int{group, worker}] = waits
		return err
	}
	n, err := kv.LongestPrefix(windows, len(l.workers), l.from, l.to, exists)
	if err != nil {
		s.refused("Lookup", err)
		n = l.from
	}
	// It is pending if it may become longer when what is pending is there.
	if l.pending = err == nil && n < l.to && s.mayGrow(l, windows, pending, n); l.pending {
		return
	}
	l.answer = n
	for w, objects := range l.workers {
		groups := l.layouts[w].Groups
		c.unpin(l, w, func(i int) bool { o := objects[i]; return !needs(groups[o.group], o.chunk, n) }, l.readers)
	}
}

// mayGrow reports whether a prefix of n chunks would be longer with all that is pending.
func (s *Server) mayGrow(l *lookup, windows []int, pending map[[2]int][]bool, n int) bool {
	longer, err := kv.LongestPrefix(windows, len(l.workers), l.from, l.to, func(group, worker, first int, found []bool) error {
		waits := pending[[2]int{group, worker}]
		for i := range found {
			at := i*len(windows) + group
			found[i] = l.left[worker][at] > 0 || i < len(waits) && waits[i]
		}
		return nil
	})
	return err == nil && longer > n
}

func keysOf(objects []object) []tier.Key {
	keys := make([]tier.Key, len(objects))
	for i, o := range objects {
		keys[i] = o.key
	}
	return keys
}

// unpin counts reads of those objects of a worker that which chooses, and unpins what is not read any more. The caller
// has c.mu.
func (c *client) unpin(l *lookup, worker int, which func(i int) bool, reads uint8) {
	var keys []tier.Key
	for i, o := range l.workers[worker] {
		if l.left[worker][i] == 0 || !which(i) {
			continue
		}
		l.left[worker][i] -= min(reads, l.left[worker][i])
		if l.left[worker][i] == 0 {
			keys = append(keys, o.key)
		}
	}
	if len(keys) > 0 && c.session != nil {
		_ = c.session.Unpin(l.lease, keys) // it fails if all leases have ended
	}
}

// status returns the chunks that a request has found, counted from 0; nil while lower levels are being asked. Of an
// unknown request it is 0.
func (s *Server) status(by caller, requestID string) (*int64, error) {
	c, err := s.clientOf(by)
	if err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	found := int64(0)
	if req := c.requests[requestID]; req != nil && len(req.lookups) > 0 {
		l := req.lookups[len(req.lookups)-1]
		if l.pending {
			s.pin(c, l)
		}
		if l.pending {
			return nil, nil
		}
		found = int64(l.answer)
	}
	return &found, nil
}

// waitForStatus is status, and asks again until lower levels have answered, for some seconds at most.
func (s *Server) waitForStatus(by caller, requestID string, seconds float64) (*int64, error) {
	end := time.Now().Add(time.Duration(max(0, min(seconds, maxWait.Seconds())) * float64(time.Second)))
	for {
		n, err := s.status(by, requestID)
		if n != nil || err != nil || !time.Now().Before(end) {
			return n, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// maxWait bounds a call that waits.
const maxWait = 30 * time.Second

// freeLocks ends what a request's look-ups rely on, within ranges of tokens: once for each range that names a chunk.
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
		c.free(req, allWorkers, t.GetStart()/size, t.GetEnd()/size, 0)
	}
	c.forgetDone(k.GetRequestId(), req)
	return nil
}

// free ends one look-up of each chunk of [from, to), of one worker or all: that of the oldest that has it still. reads are
// how many reads were done, 0 all.
func (c *client) free(req *request, worker int, from, to int64, reads uint8) {
	done := map[[2]int]bool{} // worker and object
	for _, l := range req.lookups {
		for w := range l.workers {
			if worker != allWorkers && w != worker {
				continue
			}
			n := reads
			if n == 0 {
				n = l.readers
			}
			c.unpin(l, w, func(i int) bool {
				o := l.workers[w][i]
				at := [2]int{w, o.chunk<<8 | o.group}
				if int64(o.chunk) < from || int64(o.chunk) >= to || done[at] {
					return false
				}
				done[at] = true
				return true
			}, n)
		}
	}
}

// forgetDone forgets the look-ups of a request of which nothing is pinned any more, but for the last one, whose answer
// may still be asked for.
func (c *client) forgetDone(id string, req *request) {
	last := len(req.lookups) - 1
	at := -1
	req.lookups = slices.DeleteFunc(req.lookups, func(l *lookup) bool {
		at++
		return at != last && !l.pending && !slices.ContainsFunc(l.left, func(left []uint8) bool {
			return slices.ContainsFunc(left, func(n uint8) bool { return n > 0 })
		})
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owners[requestID] == c {
		delete(s.owners, requestID)
	}
	return nil
}
