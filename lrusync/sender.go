package lrusync

import (
	"math/rand/v2"
	"sync"

	"github.com/ringcache/ringcache/internal/turn"
)

// Sender is the frontend's half of a mirrored pair (P0): it knows which items its
// [Receiver], or vLLM's, has, and keeps their prompt updates, but not their data.
//
// There are two ways to use it, not to be mixed on one Sender. [Sender.Send] does
// a whole request at once and can't drift by itself. Cached, Touch, Update,
// Invalidate and Clear are the steps of vLLM's own class one by one
// (MultiModalProcessorSenderCache in vllm/multimodal/cache.py, from 0.31
// LruKeyReplicatedSenderCache in cache/lru.py), for those who replace it in its
// place.
//
// Methods may be called by any number of goroutines. Only Send and Barrier wait
// while a request is being sent; what the other methods report then is what the
// peer will have once it has received that request.
type Sender struct {
	order *turn.Lock // of requests and barriers, held while one is sent

	mu sync.Mutex // held for bookkeeping only
	m  *mirror[sent]
	at Envelope // of the next request; Digest is taken from m
	// sending says that the mirror has the effects of a request which is being
	// sent, and may have to be taken back. again are the changes that came
	// meanwhile, which are made again after that.
	sending bool
	again   []func()
}

// change changes the mirror, also while a request is being sent.
func (s *Sender) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	if s.sending {
		s.again = append(s.again, f)
	}
}

// sent is what the frontend keeps of an item.
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
	return &Sender{order: turn.New(), m: m, at: Envelope{Sender: rand.Uint64()}}, nil
}

// Cached reports for each key whether the peer has it. It changes nothing
// (is_cached).
func (s *Sender) Cached(keys ...string) []bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]bool, len(keys))
	for i, k := range keys {
		_, out[i] = s.has(k)
	}
	return out
}

func (s *Sender) has(key string) (sent, bool) {
	v, _, ok := s.m.Peek(key)
	return v, ok && !v.stale
}

// Lookup returns what is kept of an item that the peer has: its prompt updates
// and its size. It changes nothing. The slice must not be written to.
func (s *Sender) Lookup(key string) (updates []byte, size int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, size, ok := s.m.Peek(key)
	if !ok || v.stale {
		return nil, 0, false
	}
	return v.updates, size, true
}

// Touch makes a key the newest if it is there (touch_sender_cache_item; vLLM 0.12
// on). Where upstream leaves a ghost ([GhostError]) this does not.
func (s *Sender) Touch(key string) {
	s.change(func() { s.m.Touch(key) })
}

// Input is an item that was processed, as [Sender.Update] takes it.
type Input struct {
	Size    int64  // bytes, by [ItemSize]
	Updates []byte // prompt updates, opaque; kept, not copied
}

// Update decides about one item of a request (get_and_update_item): omit says
// that the peer has it, so that nothing is sent; updates are those that were
// stored with it. in is nil if the caller has no data since Cached said that
// none is needed.
//
//   - [MissError] if the item is absent and in is nil;
//   - [TooLargeError] in generations without PutIfFits; in the others the item is
//     sent and not cached.
func (s *Sender) Update(key string, in *Input) (omit bool, updates []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.m.Get(key); ok {
		return true, v.updates, nil
	}
	if in == nil {
		return false, nil, missedBySender(key)
	}
	return false, in.Updates, s.m.insertNew(key, sent{updates: in.Updates, seq: s.at.Seq}, in.Size)
}

// Invalidate forgets a key that the peer reported as missing (invalidate; vLLM
// 0.28 on).
func (s *Sender) Invalidate(key string) {
	s.change(func() { s.m.Pop(key) })
}

// Clear forgets everything (clear_cache). The peer has to be cleared too; see
// [Sender.Barrier].
func (s *Sender) Clear() {
	s.change(func() { s.m.Clear() })
}

// Stats returns hits and queries, as make_stats does.
func (s *Sender) Stats(delta bool) Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m.Stats(delta)
}

// Contents lists what the peer has, oldest first, and the bytes of all together.
func (s *Sender) Contents() ([]KeySize, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m.contents(), s.m.Size()
}

// CheckStructure reports a broken invariant; there is none unless this package
// is at fault.
func (s *Sender) CheckStructure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sending { // its transaction is open
		s.m.tx = false
		defer func() { s.m.tx = true }()
	}
	return s.m.CheckStructure()
}
