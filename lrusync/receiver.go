package lrusync

import "sync"

// Receiver is the engine's half of a mirrored pair (P1): it keeps the items that
// a [Sender], or vLLM's, sent once and names afterwards (MultiModalReceiverCache
// in vllm/multimodal/cache.py, from 0.31 LruKeyReplicatedReceiverCache in
// cache/lru.py).
//
// A Receiver serves one Sender at a time. A new one takes over; what an earlier
// one still sends is answered from what is here.
//
// Methods may be called by any number of goroutines, but requests must be
// passed in the order in which they arrived. Values are kept, not copied.
type Receiver[V any] struct {
	mu      sync.Mutex
	mirror  *mirror[V]
	next    Envelope        // what the next request in order has, but for its Digest
	retired map[uint64]bool // senders before this one
	met     bool            // a Sender has taken over
	drifted bool            // contents stay as reported until the sender has repaired its mirror
}

// NewReceiver returns an empty receiver.
func NewReceiver[V any](o Options) (*Receiver[V], error) {
	m, err := newMirror[V](o)
	if err != nil {
		return nil, err
	}
	return &Receiver[V]{mirror: m}, nil
}

// Receive takes the features of one request. e is the envelope of the sender's
// ticket, or zero for vLLM's sender.
//
// All features are touched in order, then each is taken
// (get_and_update_features). If some are missing the others are cached
// nevertheless; before vLLM 0.28 those behind the first that is missing are not,
// and there are no Values.
//
// A request of a [Sender] that is not the next one in order shows that both ends
// have drifted: it is served from what is here, without a change, and so is every
// other until the sender has acted on Result.Drift. A request with all data, or
// whose items are here, is served as if nothing had happened.
//
// The error is an [ErrTooLarge], in generations whose engine fails then.
func (r *Receiver[V]) Receive(e Envelope, fs []Feature[V]) (res Result[V], err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e == (Envelope{}) {
		res.Values, res.Missing, err = r.take(fs)
		return res, err
	}
	switch r.place(e) {
	case inOrder:
		r.next.Seq++
		res.Values, res.Missing, err = r.take(fs)
		return res, err
	case outOfOrder:
		r.drifted = true
		res.Drift = &Drift{Sender: r.next.Sender, Epoch: r.next.Epoch, Contents: r.mirror.contents()}
	}
	res.Values, res.Missing = r.peek(fs)
	return res, nil
}

func (r *Receiver[V]) key(f *Feature[V]) string {
	if r.mirror.gen.FeatureHash && f.Key != "" || f.Identifier == "" {
		return f.Key
	}
	return f.Identifier
}

// take does to the cache what vLLM's engine does. A [Sender] foresees it.
func (r *Receiver[V]) take(fs []Feature[V]) (values []V, missing []string, err error) {
	if r.mirror.gen.Cache.Touch {
		for i := range fs {
			r.mirror.Touch(r.key(&fs[i]))
		}
	}
	values = make([]V, len(fs))
	for i := range fs {
		f := &fs[i]
		if f.HasData {
			if values[i], err = r.mirror.receive(r.key(f), f.Value, f.Size); err != nil {
				return nil, nil, err
			}
			continue
		}
		v, ok := r.mirror.Get(r.key(f))
		switch {
		case ok:
			values[i] = v
		case r.mirror.gen.Cache.MissError:
			missing = append(missing, r.key(f))
		default: // this engine fails at the first; the rest is for the report
			_, missing = r.peek(fs[i:])
			return nil, missing, nil
		}
	}
	return values, missing, nil
}

// peek serves features from what is here, and changes nothing.
func (r *Receiver[V]) peek(fs []Feature[V]) (values []V, missing []string) {
	values = make([]V, len(fs))
	for i := range fs {
		f := &fs[i]
		if f.HasData {
			values[i] = f.Value
			continue
		}
		v, _, ok := r.mirror.Peek(r.key(f))
		if !ok {
			missing = append(missing, r.key(f))
		}
		values[i] = v
	}
	return values, missing
}

type arrival int

const (
	inOrder    arrival = iota
	outOfOrder         // drift
	late               // of an epoch that is over, or a second copy
)

// place returns how a request arrived, and enters its epoch if that is new.
func (r *Receiver[V]) place(e Envelope) arrival {
	switch {
	case r.retired[e.Sender], e.Sender == r.next.Sender && e.Epoch < r.next.Epoch:
		return late
	case !r.met, e.Sender != r.next.Sender, e.Epoch > r.next.Epoch:
		return r.enter(e)
	case r.drifted:
		return outOfOrder
	case e.Seq < r.next.Seq:
		return late
	case e.Seq == r.next.Seq && e.Digest == r.mirror.digest:
		return inOrder
	}
	return outOfOrder
}

// enter begins an epoch with the first request of it that arrives. If that is
// the first that was sent, and the sender starts from what is here or from
// nothing, both ends are equal again.
func (r *Receiver[V]) enter(e Envelope) arrival {
	if r.met && e.Sender != r.next.Sender {
		if r.retired == nil {
			r.retired = map[uint64]bool{}
		}
		r.retired[r.next.Sender] = true
	}
	r.met = true
	r.next = Envelope{Sender: e.Sender, Epoch: e.Epoch}
	r.mirror.restart()
	if e.Seq != 0 {
		return outOfOrder
	}
	if e.Digest == emptyDigest {
		r.mirror.Clear()
		r.mirror.digest = emptyDigest
	}
	if e.Digest != r.mirror.digest {
		return outOfOrder
	}
	r.drifted = false
	return inOrder
}

// Clear empties the receiver at a [Sender.Clear], whose envelope is e, or at
// vLLM's reset_mm_cache (clear_cache), where e is zero.
func (r *Receiver[V]) Clear(e Envelope) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case e == (Envelope{}):
		r.mirror.Clear()
	case r.met && e.Sender == r.next.Sender && e.Epoch <= r.next.Epoch:
		// Requests that were sent after the Clear came first and have done that.
	default:
		r.enter(e)
	}
}

// Stats counts hits and queries as vLLM's receiver does. Where fresh data wins,
// items that come with data are no queries.
func (r *Receiver[V]) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mirror.stats()
}

// Contents lists what is held, oldest first, and the bytes of all together.
func (r *Receiver[V]) Contents() ([]KeySize, int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mirror.contents(), r.mirror.Size()
}

// CheckStructure reports a broken invariant. There is none unless this package
// is at fault.
func (r *Receiver[V]) CheckStructure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mirror.CheckSettled()
}
