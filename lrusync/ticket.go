package lrusync

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/internal/turn"
)

// Item is one item of a request, in the order of the prompt positions.
type Item struct {
	Key string
	// Have says that the data is at hand, so that it can be sent. Size is then
	// its bytes by [ItemSize], and Updates are the prompt updates to keep with
	// it, opaque and not copied.
	Have    bool
	Size    int64
	Updates []byte
	// Fresh sends the data even if the peer has it.
	Fresh bool
}

// Envelope identifies a request to a [Receiver] of this package, which uses it
// to notice that requests were lost or overtook each other. It has to travel
// with the request. vLLM's receiver has no use for it.
type Envelope struct {
	Sender uint64 // random for each Sender
	Epoch  uint64 // rises with each Barrier and each repair
	Seq    uint64 // of the request within the epoch
	Digest uint64 // of all that happened before, within the epoch
}

// Ticket is the place of a request in the order that both ends keep.
type Ticket struct {
	Envelope
	// Omit says for each item that the peer has it: send None in its place.
	Omit []bool
	// Updates are the prompt updates of each item.
	Updates [][]byte
	// Added and Evicted are the keys that the peer has, or has no longer, once
	// it received the request.
	Added, Evicted []string
}

// Send works out which items of a request have to be sent, and sends it: enqueue
// is called while no other request can come in between, so that requests reach
// the peer in the order in which their effects were foreseen. It should hand the
// request to the socket, or to a queue that keeps order, and return. An error of
// it means that nothing was sent: then nothing has happened here either, and
// Send returns it.
//
// What the peer will do is foreseen exactly, request by request: it touches all
// items in order of their positions, then takes each (get_and_update_features in
// vllm/multimodal/cache.py). vLLM's own frontend goes modality by modality and
// drifts from its engine when these orders differ.
//
// Without anything sent or changed it fails with
//   - [NeedDataError] if data is needed that is not at hand;
//   - [TooLargeError] for an item that is larger than the cache, in generations
//     whose engine fails then;
//   - [GhostError] if the request would hang the engine (vLLM 0.12 to 0.23).
func (s *Sender) Send(items []Item, enqueue func(Ticket) error) (Ticket, error) {
	return s.SendContext(context.Background(), items, enqueue)
}

// SendContext is Send that waits for its turn, while another request is being
// sent, until ctx ends. Its error is then ctx's. Send, SendContext and Barrier fail
// with [ErrNested] when enqueue calls them.
func (s *Sender) SendContext(ctx context.Context, items []Item, enqueue func(Ticket) error) (t Ticket, err error) {
	if enqueue == nil {
		return Ticket{}, fmt.Errorf("%w: enqueue is nil", ErrInvalid)
	}
	err = s.inOrder(ctx, func() error {
		t, err = s.send(items, enqueue)
		return err
	})
	return t, err
}

// inOrder runs f while nothing else is sent.
func (s *Sender) inOrder(ctx context.Context, f func() error) error {
	err := s.order.Do(ctx, f)
	if errors.Is(err, turn.ErrHeld) {
		return ErrNested
	}
	return err
}

func (s *Sender) send(items []Item, enqueue func(Ticket) error) (Ticket, error) {
	t, err := s.begin(items)
	if err != nil {
		return Ticket{}, err
	}
	done := false
	defer func() { s.end(done, t) }() // also when enqueue panics
	if err := enqueue(t); err != nil {
		return Ticket{}, err
	}
	done = true
	return t, nil
}

// begin does to the mirror what the request will do to the peer; end keeps that,
// or takes it back.
func (s *Sender) begin(items []Item) (Ticket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	digest := s.m.digest
	s.m.begin()
	t, err := s.foresee(items)
	if err != nil {
		s.takeBack(digest)
		return Ticket{}, err
	}
	t.Envelope = s.at
	t.Digest = digest
	s.sending = true
	return t, nil
}

func (s *Sender) takeBack(digest uint64) {
	s.m.rollback()
	s.m.digest = digest
}

func (s *Sender) end(sent bool, t Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.sending {
		return // a repair has taken it back
	}
	s.sending = false
	again := s.again
	s.again = nil
	if sent {
		s.m.commit()
		for _, omitted := range t.Omit {
			if omitted {
				s.m.stats.Hits++
			}
		}
		s.m.stats.Total += int64(len(t.Omit))
		s.at.Seq++
		return
	}
	s.takeBack(t.Digest)
	for _, f := range again {
		f()
	}
}

// foresee does to the mirror what the request does to the peer, but counts no
// query.
func (s *Sender) foresee(items []Item) (Ticket, error) {
	stats := s.m.stats
	t := Ticket{Omit: make([]bool, len(items)), Updates: make([][]byte, len(items))}
	var need []string
	s.m.touchAll(len(items), func(i int) string { return items[i].Key }, true)
	for i, it := range items {
		v, _, ok := s.m.Peek(it.Key)
		if ok && !v.stale && !it.Fresh {
			s.m.Touch(it.Key)
			t.Omit[i], t.Updates[i] = true, v.updates
			continue
		}
		if !it.Have {
			need = append(need, it.Key)
			continue
		}
		t.Updates[i] = it.Updates
		if err := s.carry(it); err != nil {
			return Ticket{}, err
		}
	}
	if need != nil {
		return Ticket{}, &NeedDataError{need}
	}
	s.m.stats = stats
	t.Added, t.Evicted = s.m.changes()
	return t, nil
}

// carry foresees the arrival of an item with data.
func (s *Sender) carry(it Item) error {
	v := sent{updates: it.Updates, seq: s.at.Seq}
	if _, err := s.m.receive(it.Key, v, it.Size); err != nil {
		return err
	}
	if n := s.m.entries[it.Key]; n != nil { // the peer may have kept its old copy
		s.m.record(undoSet, n)
		n.value = v
	}
	return nil
}

// Missed takes note of the peer's answer that items of a request were not there:
// the request has to be sent again with their data. Keys whose data went out
// after that request are there by now. at is the envelope of the request's
// ticket.
//
// For a [Receiver] of this package that also reports [Drift], use Repair instead.
func (s *Sender) Missed(at Envelope, keys []string) {
	keys = slices.Clone(keys) // for a change that is made again
	s.change(func() {
		if at.Sender != s.at.Sender || at.Epoch != s.at.Epoch {
			return // a barrier or a repair has cleared that up
		}
		for _, k := range keys {
			if v, _, ok := s.m.Peek(k); ok && v.seq <= at.Seq {
				s.m.Pop(k)
			}
		}
	})
}

// Renew makes the next request that uses a key carry its data, since the peer's
// copy is no longer wanted. The new data must belong to the same prompt updates:
// vLLM before 0.31 keeps its old copy all the same, and no vLLM can tell that it
// lost a request which would have replaced it.
func (s *Sender) Renew(key string) {
	s.change(func() {
		if n := s.m.entries[key]; n != nil {
			n.value.stale = true
		}
	})
}

// Barrier clears both ends: enqueue sends what clears the peer, such as vLLM's
// reset_mm_cache or an envelope for [Receiver.Reset], in the same order as
// requests. As with Send, its error means that nothing has happened.
func (s *Sender) Barrier(enqueue func(Envelope) error) error {
	return s.BarrierContext(context.Background(), enqueue)
}

// BarrierContext is Barrier that waits for its turn, while a request is being sent,
// until ctx ends.
func (s *Sender) BarrierContext(ctx context.Context, enqueue func(Envelope) error) error {
	if enqueue == nil {
		return fmt.Errorf("%w: enqueue is nil", ErrInvalid)
	}
	return s.inOrder(ctx, func() error {
		s.mu.Lock()
		next := Envelope{Sender: s.at.Sender, Epoch: s.at.Epoch + 1, Digest: emptyDigest}
		s.mu.Unlock()
		if err := enqueue(next); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.m.Clear()
		s.m.digest = emptyDigest
		s.at = next
		return nil
	})
}

// Drift is the report of a [Receiver] that requests were lost or came in another
// order than they were sent. It has stopped caching; Contents, oldest first, is
// what it holds.
type Drift struct {
	Sender, Epoch uint64
	Contents      []KeySize
}

// Repair makes the peer's contents the common ground again, and reports false if
// that has been done already. The next request starts a new epoch there; one that
// is being sent now still belongs to the old.
func (s *Sender) Repair(d Drift) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.Sender != s.at.Sender || d.Epoch != s.at.Epoch {
		return false
	}
	if s.sending { // the peer no longer caches what comes in this epoch
		s.sending = false
		s.m.rollback()
		for _, f := range s.again {
			f()
		}
		s.again = nil
	}
	kept := map[string]sent{}
	for k, e := range s.m.All() {
		kept[k] = e.Value
	}
	stats, reported := s.m.stats, s.m.reported
	s.m.Clear()
	s.m.stats, s.m.reported = stats, reported
	for _, k := range d.Contents {
		v, ok := kept[k.Key]
		// Without its prompt updates an item is of no use here, but it is there.
		v.stale = v.stale || !ok
		v.seq = 0
		if err := s.m.Put(k.Key, v, k.Size); err != nil {
			// Its peer can't hold that. The digests will differ, and it is asked
			// again.
			s.m.Clear()
			break
		}
	}
	s.m.restart()
	s.at.Epoch++
	s.at.Seq = 0
	return true
}
