package lmcache

import (
	"container/list"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/tier"
)

// Bounds of what events take: 32 MiB for tokens, and some more.
const (
	maxRecords     = 32 << 10
	maxEventTokens = 4 << 20   // of the records, and of the chunks that are known
	batchTokens    = 256 << 10 // of a message; it has one record at least
	maxBatch       = 1024      // records
	maxSubscribers = 64
)

// watchTime is how often it is looked which chunks are in memory still, while somebody wants to know.
const watchTime = time.Second

// unreadTime is how long a subscription that ends waits for its client to take the last message.
const unreadTime = time.Second

// eventCapability is how a client of 0.5.6 learns that it can subscribe.
const eventCapability = "kv_event_stream"

// events tell who subscribes which chunks came into memory, and which left it. LMCache's server and its clients
// call them KV events; a client hands them to its engine, from which routers get them. Nothing is kept before
// the first subscription.
//
// That a chunk has left is noticed by looking, while the counters of memory say that something has: the levels
// tell of no eviction.
//
// See docs/decisions.md, "Evictions are told by looking for what was told before".
type events struct {
	memory  tier.MemoryLevel // nil if there are no events
	changes func() int64     // grows when something may have left memory, or has come back
	every   time.Duration

	mu          sync.Mutex // guards what follows
	began       bool       // somebody has subscribed
	closed      bool
	incarnation int64
	next        int64    // the number of the next record
	log         []record // oldest first
	logTokens   int
	known       map[chunkKey]*list.Element // of *knownChunk
	recent      list.List                  // the one that was stored last is in front
	knownTokens int
	fresh       bool          // something was stored since the last look
	changed     chan struct{} // closed and replaced when there are new records
	subscribers map[int64]*subscriber
	watching    bool
	work        sync.WaitGroup
	ended       chan struct{} // closed with closed
}

// chunkKey is a chunk of KV, of all workers and groups.
type chunkKey struct{ model, salt, name string }

// knownChunk is a chunk that was stored, and whether it is in memory, as far as is known.
type knownChunk struct {
	chunkKey
	tokens  []byte // four bytes each, big-endian
	parent  string // its name; empty if there is none
	objects []tier.Key
	present bool
	changes int // of objects and present
}

// record is one event. Its chunk does not change in what is sent.
type record struct {
	number int64
	stored bool // or removed
	chunk  *knownChunk
}

// subscriber is a stream of events of a worker.
type subscriber struct{ end context.CancelFunc }

func (e *events) init(o Options) {
	e.memory, e.every = o.Memory, watchTime
	e.incarnation, e.next = time.Now().UnixNano(), 1
	e.known, e.changed, e.subscribers = map[chunkKey]*list.Element{}, make(chan struct{}), map[int64]*subscriber{}
	e.ended = make(chan struct{})
	if e.memory == nil {
		return
	}
	e.changes = func() int64 {
		u := e.memory.Usage()
		n := u.Evicted + u.Corrupt
		for _, c := range o.Store.Counters() {
			if c.Kind == "deleted" || c.Kind == "promoted" {
				n += c.Count
			}
		}
		return n
	}
}

// stored tells that a worker has stored objects of the chunks of its call.
func (e *events) stored(q *call, keys []tier.Key) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.began {
		return
	}
	stored := make(map[tier.Key]bool, len(keys))
	for _, k := range keys {
		stored[k] = true
	}
	size := q.worker.Layout.ChunkTokens * 4
	for i, o := range q.objects {
		if !stored[o.key] {
			continue
		}
		at := chunkKey{q.key.model, q.key.salt, o.key.Name}
		element := e.known[at]
		if element == nil {
			c := &knownChunk{chunkKey: at, tokens: slices.Clone(q.key.tokens[o.chunk*size : (o.chunk+1)*size])}
			if groups := len(q.worker.Layout.Groups); i >= groups {
				c.parent = q.objects[i-groups].key.Name
			} else if len(q.before) > 0 {
				c.parent = q.before[0]
			}
			element = e.recent.PushFront(c)
			e.known[at] = element
			e.knownTokens += len(c.tokens) / 4
		}
		e.recent.MoveToFront(element)
		c := element.Value.(*knownChunk)
		if !slices.Contains(c.objects, o.key) {
			c.objects = append(c.objects, o.key)
		}
		c.changes++
		if !c.present {
			c.present = true
			e.append(c, true)
		}
	}
	for e.knownTokens > maxEventTokens {
		c := e.recent.Remove(e.recent.Back()).(*knownChunk)
		delete(e.known, c.chunkKey)
		e.knownTokens -= len(c.tokens) / 4
		if c.present { // nobody would tell later
			e.append(c, false)
		}
	}
	e.fresh = true
}

// append appends a record. The caller has the lock.
func (e *events) append(c *knownChunk, stored bool) {
	e.log = append(e.log, record{e.next, stored, c})
	e.next++
	e.logTokens += e.log[len(e.log)-1].tokens()
	drop := max(0, len(e.log)-maxRecords)
	for _, r := range e.log[:drop] {
		e.logTokens -= r.tokens()
	}
	for ; e.logTokens > maxEventTokens; drop++ {
		e.logTokens -= e.log[drop].tokens()
	}
	e.log = e.log[drop:]
	close(e.changed)
	e.changed = make(chan struct{})
}

func (r record) tokens() int {
	if !r.stored {
		return 0
	}
	return len(r.chunk.tokens) / 4
}

// watch looks from time to time which chunks are in memory, as long as there are subscribers.
func (e *events) watch() {
	var last int64
	ticks := time.NewTicker(e.every)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-e.ended:
			return
		}
		e.mu.Lock()
		if len(e.subscribers) == 0 {
			e.watching = false
			e.mu.Unlock()
			return
		}
		fresh := e.fresh
		e.fresh = false
		e.mu.Unlock()
		if n := e.changes(); n != last || fresh {
			last = n
			e.look()
		}
	}
}

// look compares what is known with what memory has.
func (e *events) look() {
	type seen struct {
		chunk   *knownChunk
		changes int
		objects []tier.Key
	}
	e.mu.Lock()
	all := make([]seen, 0, len(e.known))
	for x := e.recent.Back(); x != nil; x = x.Prev() { // parents before children
		c := x.Value.(*knownChunk)
		all = append(all, seen{c, c.changes, slices.Clone(c.objects)})
	}
	e.mu.Unlock()
	for _, s := range all {
		present := !slices.ContainsFunc(e.memory.Stat(context.Background(), s.objects), func(f tier.Found) bool { return f.Err != nil })
		e.mu.Lock()
		switch c := s.chunk; {
		case c.changes != s.changes:
			e.fresh = true // it was stored meanwhile, so it is looked at again
		case c.present != present && e.known[c.chunkKey] != nil:
			c.present = present
			c.changes++
			e.append(c, present)
		}
		e.mu.Unlock()
	}
}

// read returns the records of a model behind a number, as many as a message may have. lost is set if there are
// some no more.
func (e *events) read(model string, cursor int64, most int) (*mp.KVEventBatch, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	first := e.next - int64(len(e.log))
	b := &mp.KVEventBatch{Enabled: true, Incarnation: e.incarnation, Lost: cursor+1 < first || cursor >= e.next, NextCursor: max(first-1, min(cursor, e.next-1))}
	tokens := 0
	for _, r := range e.log[min(max(0, cursor+1-first), int64(len(e.log))):] {
		if r.chunk.model == model {
			if tokens += r.tokens(); len(b.Events) == most || len(b.Events) > 0 && tokens > batchTokens {
				break
			}
			b.Events = append(b.Events, r.message())
		}
		b.NextCursor = r.number
	}
	return b, e.changed
}

// message is a record as it is sent.
func (r record) message() *mp.KVEventRecord {
	hash, _ := hex.DecodeString(r.chunk.name) // of a hash that was made here
	m := &mp.KVEventRecord{Seq: r.number, Kind: "removed", Medium: "CPU", ModelName: r.chunk.model, BlockHashes: [][]byte{hash}}
	if r.stored {
		m.Kind = "stored"
		if r.chunk.parent != "" {
			m.ParentBlockHash, _ = hex.DecodeString(r.chunk.parent)
		}
		for b := r.chunk.tokens; len(b) > 0; b = b[4:] {
			m.TokenIds = append(m.TokenIds, int64(binary.BigEndian.Uint32(b)))
		}
	}
	return m
}

// subscribe begins a subscription of a worker, in place of one that it has.
func (e *events) subscribe(instance int64, end context.CancelFunc) (*subscriber, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.subscribers[instance]
	switch {
	case e.closed:
		return nil, errors.New("lmcache: the server ends")
	case before != nil:
		before.end()
	case len(e.subscribers) >= maxSubscribers:
		return nil, fmt.Errorf("lmcache: %d workers have subscribed to events, and no more can", maxSubscribers)
	}
	s := &subscriber{end}
	e.subscribers[instance] = s
	e.began = true
	if !e.watching {
		e.watching = true
		e.work.Go(e.watch)
	}
	return s, nil
}

func (e *events) unsubscribe(instance int64, s *subscriber) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.subscribers[instance] == s {
		delete(e.subscribers, instance)
	}
}

// close ends all subscriptions.
func (e *events) close() {
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		close(e.ended)
	}
	for _, s := range e.subscribers {
		s.end()
	}
	e.mu.Unlock()
	e.work.Wait()
}

// hangUp closes the connection of a subscriber that reads nothing if the server ends: gRPC would wait for it.
func (e *events) hangUp(c *connection) {
	select {
	case <-e.ended:
		_ = c.close() // its owner notices
	default:
	}
}

func eventStream(service string) grpc.StreamDesc {
	return grpc.StreamDesc{StreamName: "SubscribeKvEvents", Handler: subscribeKVEvents(service), ServerStreams: true}
}

// subscribeKVEvents is the handler of a subscription, which lasts until the client or the server ends it.
func subscribeKVEvents(service string) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		g := srv.(*GRPC)
		c, err := callerOf(stream.Context())
		if err != nil {
			return status.Error(codes.FailedPrecondition, err.Error())
		}
		c.release = releaseOfService[service]
		c.room = newRoom(g.s, c)
		q := &mp.SubscribeKvEventsRequest{}
		err = receive(c, q)
		c.room.release()
		if err != nil {
			return err
		}
		g.s.note(c)
		return g.s.events.send(stream.Context(), q, func(ctx context.Context, b *mp.KVEventBatch) error {
			sent := make(chan error, 1)
			go func() { sent <- stream.SendMsg(b) }() // the end of this handler ends it
			select {
			case err := <-sent:
				return err
			case <-ctx.Done():
			}
			select {
			case err := <-sent:
				return err
			case <-time.After(unreadTime):
				g.s.events.hangUp(c.conn)
				return status.FromContextError(ctx.Err()).Err()
			}
		})
	}
}

// send sends the records of a model from a number on, and those that come. The context that it gives ends with the
// subscription.
func (e *events) send(ctx context.Context, q *mp.SubscribeKvEventsRequest, send func(context.Context, *mp.KVEventBatch) error) error {
	switch {
	case e.memory == nil:
		return status.Error(codes.Unimplemented, "lmcache: there are no events")
	case len(q.ModelName) > maxModel: // it is kept
		return status.Errorf(codes.InvalidArgument, "lmcache: the model's name has %d bytes, and %d are the most: %v",
			len(q.ModelName), maxModel, fs.ErrInvalid)
	case q.Cursor < 0 || q.MaxEvents < 1 || q.MaxEvents > maxBatch:
		return status.Errorf(codes.InvalidArgument, "lmcache: the cursor is %d, and the most events %d, of 1 to %d: %v", q.Cursor, q.MaxEvents, maxBatch, fs.ErrInvalid)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := e.subscribe(q.InstanceId, cancel)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	defer e.unsubscribe(q.InstanceId, s)
	cursor := q.Cursor
	for first := true; ; first = false {
		b, changed := e.read(q.ModelName, cursor, int(q.MaxEvents))
		cursor = b.NextCursor
		if first || len(b.Events) > 0 || b.Lost {
			if err := send(ctx, b); err != nil {
				return err
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}
