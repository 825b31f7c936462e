package daemon

import (
	"runtime"

	"github.com/ringcache/ringcache/daemon/internal/fair"
	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/daemon/wire"
)

// What requests take, whatever the number of connections. What is small always has room: 1024 connections
// with a small request and a small reply each have 32 MiB. What is larger comes from a budget, which
// processes share, and waits until there is room.
const (
	roomOfRequests = 12 << 20 // bytes of requests that are being read or handled
	roomOfReplies  = 24 << 20 // bytes of replies until the client has taken them
	roomOfLooks    = 12 << 20 // bytes of what stat looks for and has found

	smallRequest = 16 << 10 // bytes of a body
	smallWork    = 64 << 10 // bytes of a body and of what handling it takes
	smallReply   = 16 << 10

	bytesOfName  = 400 // that handling a name or an object takes, beside its texts
	bytesOfLease = 300 // that listing a lease takes
	bytesOfLook  = 300 // that looking a name up takes, beside its texts

	// mostReply is the bound of the size of a reply that may be no larger than wire.MaxReply: the bound is generous.
	mostReply = wire.MaxReply + 2<<20

	// What an idle connection keeps.
	keptRequest = 4 << 10 // bytes of a body
	keptNames   = 64      // of a decoded request
	keptReply   = 4 << 10 // bytes
)

// Requests are handled in turns, by process. A large one is handled in pieces, with a turn for each, so that
// others come between.
const (
	piece       = 64      // names that are handled at once
	namesOfTurn = 8       // names that cost as much as an empty request
	bytesOfTurn = 4 << 10 // bytes of messages that cost as much as an empty request
)

// rooms are the budgets of a server, and its turns.
type rooms struct {
	turns                    *fair.Turns // of requests
	lookers                  *fair.Turns // of lookups of stat, which wait for disks and servers
	requests, replies, looks *fair.Budget

	burst bool // see burstEnded
}

func newRooms() rooms {
	return rooms{
		turns: fair.NewTurns(turnsAtOnce()), lookers: fair.NewTurns(lookers),
		requests: fair.NewBudget(roomOfRequests), replies: fair.NewBudget(roomOfReplies), looks: fair.NewBudget(roomOfLooks),
	}
}

// turnsAtOnce is how many requests are handled at a time: more than there are processors, since a request may
// wait for a lock.
func turnsAtOnce() int { return 2 * runtime.GOMAXPROCS(0) }

// used returns the bytes that are taken.
func (r *rooms) used() (n int64) {
	for _, b := range []*fair.Budget{r.requests, r.replies, r.looks} {
		now, _ := b.Used()
		n += now
	}
	return n
}

// muchAtOnce are bytes that are worth a collection of garbage when they are free again.
const muchAtOnce = 4 << 20

// burstEnded reports, once, that nothing is taken any more after much was. One goroutine calls it.
func (r *rooms) burstEnded() bool {
	for _, b := range []*fair.Budget{r.requests, r.replies, r.looks} {
		r.burst = b.Lately() >= muchAtOnce || r.burst
	}
	if !r.burst || r.used() > 0 {
		return false
	}
	r.burst = false
	return true
}

// part is what a process has of the rooms.
type part struct {
	connections              int // guarded by the lock of the server
	turns, lookers           fair.Queue
	requests, replies, looks fair.Share
}

// partOf returns the part of a client for one more connection, which ends with leavePart. The caller has the lock.
func (s *Server) partOf(c *registry.Client) *part {
	p := s.parts[c]
	if p == nil {
		p = &part{}
		s.parts[c] = p
	}
	p.connections++
	return p
}

// leavePart ends what partOf began. The caller has the lock.
func (s *Server) leavePart(c *registry.Client) {
	p := s.parts[c]
	if p.connections--; p.connections == 0 {
		delete(s.parts, c)
	}
}

// work is what the request of a connection takes now: its turn, and its room. It is of the connection's goroutine.
type work struct {
	rooms *rooms
	part  *part
	stop  <-chan struct{} // closed when the server ends
	wake  chan struct{}

	cost    int   // of the turn so far
	request int64 // bytes taken
	reply   int64
}

// admit takes room for reading a large body and handling it. It reports false when the server ends.
func (w *work) admit(body int) bool {
	n := int64(body + wire.MaxNames*bytesOfName)
	if !w.rooms.requests.Acquire(w.stop, &w.part.requests, n) {
		return false
	}
	w.request = n
	return true
}

// begin takes a turn.
func (w *work) begin(body int) {
	w.rooms.turns.Acquire(&w.part.turns, w.wake)
	w.cost = 1 + body/bytesOfTurn
}

// pause lets others have a turn, after so many names.
func (w *work) pause(names int) {
	w.rooms.turns.Yield(&w.part.turns, w.wake, w.cost+names/namesOfTurn)
	w.cost = 0
}

// end gives the turn back. cost is that of what was done since the last pause.
func (w *work) end(cost int) { w.rooms.turns.Release(&w.part.turns, w.cost+cost) }

// take takes room, and gives the turn back while it waits for that. It reports false when the server ends.
func (w *work) take(b *fair.Budget, s *fair.Share, n int64) bool {
	if b.TryAcquire(s, n) {
		return true
	}
	w.end(0)
	ok := b.Acquire(w.stop, s, n)
	w.rooms.turns.Acquire(&w.part.turns, w.wake)
	w.cost = 0
	return ok
}

// widen takes room for handling a request that is small as such. What has room already does not wait for more.
func (w *work) widen(n int64) (ok bool) {
	switch {
	case n <= max(smallWork, w.request):
		return true
	case w.request > 0:
		ok = w.rooms.requests.TryAcquire(&w.part.requests, n-w.request)
	default:
		ok = w.take(w.rooms.requests, &w.part.requests, n)
	}
	if ok {
		w.request = n
	}
	return ok
}

// widenReply takes room for a reply.
func (w *work) widenReply(n int64) bool {
	if n <= smallReply {
		return true
	}
	if !w.take(w.rooms.replies, &w.part.replies, n) {
		return false
	}
	w.reply = n
	return true
}

// handled gives back what reading and handling took.
func (w *work) handled() {
	if w.request > 0 {
		w.rooms.requests.Release(&w.part.requests, w.request)
		w.request = 0
	}
}

// sent gives back what the reply took.
func (w *work) sent() {
	if w.reply > 0 {
		w.rooms.replies.Release(&w.part.replies, w.reply)
		w.reply = 0
	}
}

// pieces calls do for each piece of n names, with a turn for each, until an error. It calls do at least once.
func (w *work) pieces(n int, do func(from, to int) error) error {
	for from := 0; ; from += piece {
		to := min(from+piece, n)
		if err := do(from, to); err != nil {
			return err
		}
		if to == n {
			w.cost += (to - from) / namesOfTurn
			return nil
		}
		w.pause(to - from)
	}
}
