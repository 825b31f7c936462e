package lrusync

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/ringcache/ringcache/internal/ctxmutex"
)

// Sender is the frontend's half of a mirrored pair (P0). It keeps a mirror of what
// its [Receiver], or vLLM's, has cached: sizes and prompt updates, not the data.
//
// Methods may be called by any number of goroutines. Only Send and Clear wait
// while a request is being sent; what the other methods report then is what the
// peer will have once it has received that request.
// See docs/decisions.md, "A send holds the order, not the mirror".
type Sender struct {
	order ctxmutex.Mutex // of requests, held while one is sent

	mu     sync.Mutex // held for bookkeeping only
	mirror *mirror[sent]
	next   Envelope // of the next request, but for its Digest
	stats  Stats
	// While sending, mirror has the effects of a request which may yet have to be
	// taken back. meanwhile are the changes that came since, which are then made
	// again.
	sending   bool
	meanwhile []func()
}

// sent is what a Sender keeps of an item.
type sent struct {
	updates []byte
	seq     uint64 // of the ticket that carried the data last
	stale   bool   // counts for the order, but its data has to be sent again
}

// NewSender returns a sender whose peer is empty.
func NewSender(o Options) (*Sender, error) {
	m, err := newMirror[sent](o)
	if err != nil {
		return nil, err
	}
	return &Sender{mirror: m, next: Envelope{Sender: rand.Uint64()}}, nil
}

// Send works out which items of a request have to be sent, and sends it: enqueue
// is called while no other request can come in between, so that requests reach
// the peer in the order in which their effects were foreseen. enqueue should hand
// the request to the socket, or to a queue that keeps order, and return. An error
// of enqueue means that nothing was sent: then nothing has happened here either,
// and Send returns the error.
//
// What the peer will do is foreseen exactly, request by request: it touches all
// items in order of their positions, then takes each (get_and_update_features in
// vllm/multimodal/cache.py). vLLM's own frontend goes modality by modality and
// drifts from its engine when these orders differ.
//
// While another request is being sent Send waits, until ctx ends.
//
// Without anything sent or changed Send fails with
//   - [NeedDataError] if data is needed that is not at hand;
//   - [ErrTooLarge] for an item that is larger than the cache, in generations
//     whose engine fails then;
//   - [ErrHang] if the request would hang the engine (vLLM 0.12 to 0.23);
//   - ctx's error.
//
// enqueue must not call Send or Clear: these wait until enqueue returns, which never happens, or
// until their context ends.
func (s *Sender) Send(ctx context.Context, items []Item, enqueue func(Ticket) error) (Ticket, error) {
	if enqueue == nil {
		return Ticket{}, errNoEnqueue
	}
	var t Ticket
	err := s.inOrder(ctx, func() (err error) {
		if t, err = s.foresee(items); err != nil {
			return err
		}
		done := false
		defer func() { s.settle(t, done) }() // also if enqueue panics
		err = enqueue(t)
		done = err == nil
		return err
	})
	if err != nil {
		return Ticket{}, err
	}
	return t, nil
}

var errNoEnqueue = fmt.Errorf("%w: enqueue is nil", errInvalid)

// inOrder runs f while nothing else is sent.
func (s *Sender) inOrder(ctx context.Context, f func() error) error {
	if err := s.order.Lock(ctx, nil); err != nil {
		return err
	}
	defer s.order.Unlock()
	return f()
}

// foresee does to the mirror what the request will do to the peer. settle keeps
// that, or takes it back.
func (s *Sender) foresee(items []Item) (Ticket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := Ticket{Envelope: s.next, Omit: make([]bool, len(items)), Updates: make([][]byte, len(items))}
	t.Digest = s.mirror.digest
	s.mirror.begin()
	if err := s.take(items, t); err != nil {
		s.mirror.rollback()
		return Ticket{}, err
	}
	t.Added, t.Evicted = s.mirror.Changes()
	s.sending = true
	return t, nil
}

// take is [Receiver.take] with what the sender keeps of the items. It fills in
// t.Omit and t.Updates.
func (s *Sender) take(items []Item, t Ticket) error {
	if s.mirror.gen.Cache.Touch {
		touch := s.mirror.Touch
		if s.mirror.gen.Cache.GhostTouch {
			touch = s.mirror.TouchGhost
		}
		for _, it := range items {
			touch(it.Key)
		}
	}
	var need []string
	for i, it := range items {
		kept, _, ok := s.mirror.Peek(it.Key)
		switch {
		case ok && !kept.stale && !it.Fresh:
			s.mirror.Touch(it.Key)
			t.Omit[i], t.Updates[i] = true, kept.updates
		case it.HasData:
			now := sent{updates: it.Updates, seq: t.Seq}
			if _, err := s.mirror.receive(it.Key, now, it.Size); err != nil {
				return err
			}
			s.mirror.Replace(it.Key, now) // the peer may have kept its old copy
			t.Updates[i] = it.Updates
		default:
			need = append(need, it.Key)
		}
	}
	if need != nil {
		return &NeedDataError{need}
	}
	return nil
}

// settle ends what foresee began.
func (s *Sender) settle(t Ticket, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if done {
		s.stats.Total += int64(len(t.Omit))
		for _, omitted := range t.Omit {
			if omitted {
				s.stats.Hits++
			}
		}
	}
	switch {
	case !s.sending: // a repair has taken the request back
	case done:
		s.mirror.Commit()
		s.next.Seq++
		s.sending, s.meanwhile = false, nil
	default:
		s.takeBack()
	}
}

// takeBack undoes what foresee did, and makes the later changes again.
func (s *Sender) takeBack() {
	s.mirror.rollback()
	for _, f := range s.meanwhile {
		f()
	}
	s.sending, s.meanwhile = false, nil
}

// Clear empties both ends: enqueue sends what clears the peer, such as vLLM's
// reset_mm_cache or an envelope for [Receiver.Clear], in the same order as
// requests. As with Send, its error means that nothing has happened, ctx ends the
// wait for another request, and enqueue must neither send nor clear.
func (s *Sender) Clear(ctx context.Context, enqueue func(Envelope) error) error {
	if enqueue == nil {
		return errNoEnqueue
	}
	return s.inOrder(ctx, func() error {
		s.mu.Lock()
		next := Envelope{Sender: s.next.Sender, Epoch: s.next.Epoch + 1, Digest: emptyDigest}
		s.mu.Unlock()
		if err := enqueue(next); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mirror.Clear()
		s.mirror.digest = emptyDigest
		s.stats = Stats{}
		s.next = next
		return nil
	})
}

// Lookup returns what is kept of an item that the peer has: its prompt updates
// and its size. Lookup changes nothing. The slice must not be written to.
func (s *Sender) Lookup(key string) (updates []byte, size int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, size, ok := s.mirror.Peek(key)
	if !ok || v.stale {
		return nil, 0, false
	}
	return v.updates, size, true
}

// Stats counts the items that were sent, and as hits those of them whose data
// was omitted, since the last Clear.
func (s *Sender) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Contents lists what the peer has, oldest first, and the bytes of all together.
func (s *Sender) Contents() ([]KeySize, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mirror.contents(), s.mirror.Size()
}

// CheckStructure reports a broken invariant. There is none unless this package
// is at fault.
func (s *Sender) CheckStructure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sending {
		return s.mirror.CheckStructure()
	}
	return s.mirror.CheckSettled()
}
