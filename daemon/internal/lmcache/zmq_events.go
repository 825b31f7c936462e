package lmcache

import (
	"context"
	"errors"
	"slices"

	"github.com/tinylib/msgp/msgp"
	"google.golang.org/grpc/status"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
)

// A subscription to events of KV by ZMQ is a call with many answers. Each has the number and the operation of the call,
// and a batch. The client takes the next one when it has sent a message of the number, an empty operation and "ack"; with
// "cancel" in its place the subscription ends. An answer without a batch is its end.
//
// See docs/decisions.md, "Events of KV by ZMQ are LMCache's, and engines publish them".

// subscription is the operation.
const subscription = "subscribe_kv_events"

// maxStreams bounds the subscriptions of a connection: a worker has one.
const maxStreams = 4

// maxEnding bounds the subscriptions of a connection with those that have ended and whose last answer is not
// sent: a client that takes nothing waits until it does.
const maxEnding = 2 * maxStreams

// zmqStream is a subscription of a client.
type zmqStream struct {
	taken chan struct{} // has room for one: the client has taken what was sent
	end   context.CancelFunc
}

// subscribe begins a subscription, which a goroutine of its own serves. Its error is for the client.
func (p *zmqPeer) subscribe(number, op []byte, arguments [][]byte) error {
	a := newArguments(arguments)
	q := &mp.SubscribeKvEventsRequest{InstanceId: a.integer(), ModelName: a.next().text(), Cursor: a.integer(), MaxEvents: a.integer()}
	if len(a.frames) > 0 {
		a.d.fail("%d arguments too many", len(a.frames))
	}
	if a.d.err != nil {
		return a.d.err
	}
	p.z.s.note(p.by)
	number, op = slices.Clone(number), slices.Clone(op) // the next message may have their memory
	select {
	case p.sending <- struct{}{}:
	case <-p.by.ctx.Done():
		return p.by.ctx.Err()
	}
	ctx, cancel := context.WithCancel(p.by.ctx)
	stream := &zmqStream{taken: make(chan struct{}, 1), end: cancel}
	if err := p.addStream(string(number), stream); err != nil {
		cancel()
		<-p.sending
		return err
	}
	p.calls.Go(func() {
		defer func() { <-p.sending }()
		defer cancel()
		err := p.z.s.events.send(ctx, q, func(ctx context.Context, batch *mp.KVEventBatch) error {
			if err := p.c.Send([][]byte{number, op, appendEvents(nil, batch)}); err != nil {
				_ = p.c.Close() // half a batch may be on its way
				return err
			}
			select {
			case <-stream.taken:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		p.removeStream(string(number), stream)
		last := [][]byte{number, op}
		if err != nil && !errors.Is(err, context.Canceled) {
			p.z.s.refused(subscription, err)
			last[1] = appendError(nil, errors.New(status.Convert(err).Message()))
		}
		if p.c.Send(last) != nil {
			_ = p.c.Close()
		}
	})
	return nil
}

// addStream adds a subscription, in place of one with the same number.
func (p *zmqPeer) addStream(number string, stream *zmqStream) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.streams[number]
	switch {
	case before != nil:
		before.end()
	case len(p.streams) >= maxStreams:
		return errStreams
	}
	p.streams[number] = stream
	return nil
}

func (p *zmqPeer) removeStream(number string, stream *zmqStream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.streams[number] == stream {
		delete(p.streams, number)
	}
}

// control handles what a client sends about a subscription. One that has ended is passed over.
func (p *zmqPeer) control(number []byte, rest [][]byte) {
	p.mu.Lock()
	stream := p.streams[string(number)]
	p.mu.Unlock()
	if stream == nil || len(rest) != 1 {
		return
	}
	switch string(rest[0]) {
	case "ack":
		select {
		case stream.taken <- struct{}{}:
		default: // it has acknowledged more than it got
		}
	case "cancel":
		stream.end()
	}
}

// appendEvents appends a batch.
func appendEvents(b []byte, batch *mp.KVEventBatch) []byte {
	b = msgp.AppendMapHeader(b, 5)
	b = msgp.AppendBool(msgp.AppendString(b, "enabled"), batch.Enabled)
	b = msgp.AppendInt64(msgp.AppendString(b, "incarnation"), batch.Incarnation)
	b = msgp.AppendInt64(msgp.AppendString(b, "next_cursor"), batch.NextCursor)
	b = msgp.AppendBool(msgp.AppendString(b, "lost"), batch.Lost)
	b = msgp.AppendArrayHeader(msgp.AppendString(b, "events"), uint32(len(batch.Events)))
	for _, r := range batch.Events {
		b = msgp.AppendMapHeader(b, 7)
		b = msgp.AppendInt64(msgp.AppendString(b, "seq"), r.Seq)
		b = msgp.AppendString(msgp.AppendString(b, "kind"), r.Kind)
		b = msgp.AppendString(msgp.AppendString(b, "medium"), r.Medium)
		b = msgp.AppendString(msgp.AppendString(b, "model_name"), r.ModelName)
		b = msgp.AppendArrayHeader(msgp.AppendString(b, "block_hashes"), uint32(len(r.BlockHashes)))
		for _, h := range r.BlockHashes {
			b = msgp.AppendBytes(b, h)
		}
		b = msgp.AppendString(b, "parent_block_hash")
		if r.ParentBlockHash == nil {
			b = msgp.AppendNil(b)
		} else {
			b = msgp.AppendBytes(b, r.ParentBlockHash)
		}
		b = msgp.AppendArrayHeader(msgp.AppendString(b, "token_ids"), uint32(len(r.TokenIds)))
		for _, n := range r.TokenIds {
			b = msgp.AppendInt64(b, n)
		}
	}
	return b
}
