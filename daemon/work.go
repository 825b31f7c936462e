package daemon

import (
	"runtime"

	"github.com/ringcache/ringcache/daemon/internal/fair"
	"github.com/ringcache/ringcache/daemon/internal/lmcache"
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

func newRooms() *fair.Rooms {
	return &fair.Rooms{
		Turns: fair.NewTurns(turnsAtOnce()), Lookers: fair.NewTurns(lookers),
		Requests: fair.NewBudget(roomOfRequests), Replies: fair.NewBudget(roomOfReplies),
		Looks:  fair.NewBudget(roomOfLooks),
		Bodies: fair.NewBudget(lmcache.RoomOfBodies), // only LMCache's protocol has such messages
	}
}

// turnsAtOnce is how many requests are handled at a time: more than there are processors, since a request may
// wait for a lock.
func turnsAtOnce() int { return 2 * runtime.GOMAXPROCS(0) }

// work is what the request of a connection takes now: its turn, and its room. It is of the connection's goroutine.
type work struct {
	rooms *fair.Rooms
	part  *fair.Part
	stop  <-chan struct{} // closed when the server ends
	wake  chan struct{}

	cost    int   // of the turn so far
	request int64 // bytes taken
	reply   int64
}

// admit takes room for reading a large body and handling it. It reports false when the server ends.
func (w *work) admit(body int) bool {
	n := int64(body + wire.MaxNames*bytesOfName)
	if !w.rooms.Requests.Acquire(w.stop, &w.part.Requests, n) {
		return false
	}
	w.request = n
	return true
}

// begin takes a turn.
func (w *work) begin(body int) {
	w.rooms.Turns.Acquire(&w.part.Turns, w.wake)
	w.cost = 1 + body/bytesOfTurn
}

// pause lets others have a turn, after so many names.
func (w *work) pause(names int) {
	w.rooms.Turns.Yield(&w.part.Turns, w.wake, w.cost+names/namesOfTurn)
	w.cost = 0
}

// end gives the turn back. cost is that of what was done since the last pause.
func (w *work) end(cost int) { w.rooms.Turns.Release(&w.part.Turns, w.cost+cost) }

// take takes room, and gives the turn back while it waits for that. It reports false when the server ends.
func (w *work) take(b *fair.Budget, s *fair.Share, n int64) bool {
	if b.TryAcquire(s, n) {
		return true
	}
	w.end(0)
	ok := b.Acquire(w.stop, s, n)
	w.rooms.Turns.Acquire(&w.part.Turns, w.wake)
	w.cost = 0
	return ok
}

// widen takes room for handling a request that is small as such. What has room already does not wait for more.
func (w *work) widen(n int64) (ok bool) {
	switch {
	case n <= max(smallWork, w.request):
		return true
	case w.request > 0:
		ok = w.rooms.Requests.TryAcquire(&w.part.Requests, n-w.request)
	default:
		ok = w.take(w.rooms.Requests, &w.part.Requests, n)
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
	if !w.take(w.rooms.Replies, &w.part.Replies, n) {
		return false
	}
	w.reply = n
	return true
}

// handled gives back what reading and handling took.
func (w *work) handled() {
	if w.request > 0 {
		w.rooms.Requests.Release(&w.part.Requests, w.request)
		w.request = 0
	}
}

// sent gives back what the reply took.
func (w *work) sent() {
	if w.reply > 0 {
		w.rooms.Replies.Release(&w.part.Replies, w.reply)
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
