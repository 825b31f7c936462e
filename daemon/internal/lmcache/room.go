package lmcache

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/runtime/protoiface"

	"github.com/ringcache/ringcache/daemon/internal/fair"
	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
)

const (
	// RoomOfBodies are the bytes of the budget of large messages: those that the largest one takes.
	RoomOfBodies = copies * maxMessage

	// copies is how often a message is in memory while it is read or made.
	copies = 2

	// smallMessage are the bytes of a message that always has room.
	smallMessage = 64 << 10

	// maxDepth is more than messages are nested.
	maxDepth = 10

	// messageTime is how long a message that has room may be on its way.
	messageTime = 2 * time.Minute
)

// room is what the messages of a call take of the budget. A call has room for one message at a time, so it
// never waits for room while it keeps others from theirs.
// See docs/decisions.md, "Large messages of LMCache have a budget of their own".
type room struct {
	budget *fair.Budget
	share  *fair.Share
	most   int64           // bytes of a message
	done   <-chan struct{} // closed when the call ends
	taken  int64
	slow   *time.Timer
	close  func() error // the connection
}

// newRoom returns the room for the messages of a call.
func newRoom(s *Server, c caller) *room {
	return &room{most: int64(s.maxMessage), budget: s.o.Rooms.Bodies, share: &c.conn.client.Part.Bodies, done: c.ctx.Done(), close: c.conn.close}
}

// take waits for room for a message. It reports false when the call has ended.
func (r *room) take(bytes int64) bool {
	if bytes <= smallMessage {
		return true
	}
	if !r.budget.Acquire(r.done, r.share, copies*bytes) {
		return false
	}
	r.taken = copies * bytes
	r.slow = time.AfterFunc(messageTime, func() { _ = r.close() }) // who has room must use it
	return true
}

// more waits for room for one more part of a message. It does not wait while it has room for the parts before,
// which are small beside this one, or the other way round.
func (r *room) more(bytes int) error {
	before := r.taken / copies
	r.release()
	if !r.take(before + int64(bytes)) {
		return errEnding
	}
	return nil
}

var errEnding = errors.New("lmcache: the connection or the server ends")

// forAnswer waits for room for an answer, in place of that for the request, which is small beside it. It
// reports false when the call has ended.
func (r *room) forAnswer(bytes int64) bool {
	if r == nil || bytes <= smallMessage {
		return true
	}
	r.release()
	return r.take(bytes)
}

// release gives everything back.
func (r *room) release() {
	if r.taken > 0 {
		r.slow.Stop()
		r.budget.Release(r.share, r.taken)
		r.taken = 0
	}
}

// frames reads a call's message, of which gRPC's own functions do not say how large it is before they have all
// of it.
type frames interface {
	ReadMessageHeader(b []byte) error
	Read(n int) (mem.BufferSlice, error)
}

// receive reads the message of a call when there is room for it. Until then the client keeps it, but for
// smallMessage bytes.
func receive(c caller, q proto.Message) error {
	in, ok := grpc.ServerTransportStreamFromContext(c.ctx).(frames)
	if !ok {
		return status.Error(codes.Internal, "lmcache: this gRPC has another way to read messages")
	}
	var head [5]byte // whether it is compressed, and how many bytes follow
	if err := in.ReadMessageHeader(head[:]); err != nil {
		return err
	}
	n := int64(binary.BigEndian.Uint32(head[1:]))
	switch {
	case head[0] != 0:
		return status.Error(codes.Unimplemented, "lmcache: compressed messages are not read")
	case n > c.room.most:
		return status.Errorf(codes.ResourceExhausted, "lmcache: a message has %d bytes, and %d are the most", n, c.room.most)
	case !c.room.take(n):
		return status.FromContextError(context.Cause(c.ctx)).Err()
	}
	parts, err := in.Read(int(n))
	if err != nil {
		return err
	}
	b := parts.Materialize()
	parts.Free()
	m := q.ProtoReflect() // bytes of chunks stay where they are, which proto.Unmarshal would copy
	_, err = m.ProtoMethods().Unmarshal(protoiface.UnmarshalInput{
		Message: m, Buf: b, Flags: protoiface.UnmarshalAliasBuffer, Resolver: protoregistry.GlobalTypes, Depth: maxDepth,
	})
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "lmcache: %v", err)
	}
	return nil
}

// answerBytes returns the most bytes of the answer to a load; 0 if it has no bytes of chunks.
func (s *Server) answerBytes(q *mp.PrepareRetrieveRequest) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.state.Instances[instanceID(q.GetInstanceId())]
	if i == nil || !i.Inline || s.state.Chunk == 0 {
		return 0
	}
	var chunk int64
	for _, g := range i.Layout.Groups {
		chunk += g.Bytes() + bodyOverhead
	}
	chunks := max(0, q.GetKey().GetEnd()-q.GetKey().GetStart())/int64(s.state.Chunk) + 1
	if chunks > maxMessage/max(1, chunk) {
		return maxMessage // more than that is not loaded
	}
	return chunks * chunk
}

// takeTurn waits for a turn of the process, and returns what gives it back.
func (s *Server) takeTurn(c caller, q proto.Message) func() {
	turns, queue := s.o.Rooms.Turns, &c.conn.client.Part.Turns
	turns.Acquire(queue, make(chan struct{}, 1))
	return func() { turns.Release(queue, 1+proto.Size(q)/bytesOfTurn) }
}

// bytesOfTurn are bytes of messages that cost as much as an empty call.
const bytesOfTurn = 4 << 10
