package lrusync

import "sync"

// Feature is one item of a request as it arrives.
type Feature[V any] struct {
	// Key is the item's cache key, vLLM's mm_hash. Identifier is the key of its
	// encoder output, which differs from Key under LoRA; it stands in for an
	// empty Key, and is the cache key before vLLM 0.14.
	Key, Identifier string
	// Has says that the item came with data: Value, of Size bytes by
	// [ItemSize].
	Has   bool
	Value V
	Size  int64
}

// Receiver is the engine's half of a mirrored pair (P1): it keeps the items that
// a [Sender], or vLLM's, sent once and names afterwards.
//
// [Receiver.Features] is vLLM's own way (MultiModalReceiverCache in
// vllm/multimodal/cache.py, from 0.31 LruKeyReplicatedReceiverCache in
// cache/lru.py) and serves vLLM's senders. [Receiver.Apply] does the same for a
// Sender of this package, and notices drift.
//
// It serves one Sender at a time. A new one takes over; what an earlier one still
// sends is answered from what is here.
//
// Methods may be called by any number of goroutines, but requests must be
// passed in the order in which they arrived. Values are kept, not copied.
type Receiver[V any] struct {
	mu         sync.Mutex
	m          *mirror[V]
	byMMHash   bool
	next       Envelope        // what the next request in order has
	retired    map[uint64]bool // senders before this one
	introduced bool            // a sender has been heard of
	frozen     bool            // drifted: contents stay as reported until the sender knows
}

// NewReceiver returns an empty receiver.
func NewReceiver[V any](o Options) (*Receiver[V], error) {
	m, err := newMirror[V](o)
	if err != nil {
		return nil, err
	}
	return &Receiver[V]{m: m, byMMHash: m.gen.FeatureHash}, nil
}

func (r *Receiver[V]) key(f *Feature[V]) string {
	switch {
	case r.byMMHash && f.Key != "", f.Identifier == "":
		return f.Key
	}
	return f.Identifier
}

// Features takes the features of one request and returns their values
// (get_and_update_features): all are touched in order, then each is taken. It
// fails with
//   - [MissError] if some came without data and are not cached. The others are
//     stored; before vLLM 0.28 those behind the first that is missing are not;
//   - [TooLargeError] in generations without PutIfFits.
func (r *Receiver[V]) Features(fs []Feature[V]) ([]V, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out, missing, err := r.take(fs)
	if err == nil && missing != nil {
		err = missedByReceiver(missing, r.m.gen.Cache.MissError)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (r *Receiver[V]) take(fs []Feature[V]) (out []V, missing []string, err error) {
	r.m.touchAll(len(fs), func(i int) string { return r.key(&fs[i]) }, false)
	out = make([]V, len(fs))
	for i := range fs {
		f := &fs[i]
		if f.Has {
			if out[i], err = r.m.receive(r.key(f), f.Value, f.Size); err != nil {
				return nil, nil, err
			}
			continue
		}
		v, ok := r.m.Get(r.key(f))
		if !ok {
			missing = append(missing, r.key(f))
			if !r.m.gen.Cache.MissError {
				return nil, append(missing, r.absent(fs[i+1:])...), nil
			}
			continue
		}
		out[i] = v
	}
	return out, missing, nil
}

// absent lists what is missing without changing anything.
func (r *Receiver[V]) absent(fs []Feature[V]) (missing []string) {
	for i := range fs {
		if k := r.key(&fs[i]); !fs[i].Has && !r.m.Has(k) {
			missing = append(missing, k)
		}
	}
	return missing
}

// Result is what became of a request in [Receiver.Apply].
type Result[V any] struct {
	Values []V
	// Missing are the keys of features that came without data and are not
	// there; their Values are zero. The sender has to send the request again.
	Missing []string
	// Drift, if not nil, is for [Sender.Repair].
	Drift *Drift
}

// Apply takes the features of one request of a [Sender] of this package, whose
// ticket had the envelope e. A request that is not the next one in order shows
// that both ends have drifted: it is served from what is here, without a change,
// and so is every other until the sender has been told by Result.Drift. A
// request with all data, or whose items are here, does not even notice.
//
// The error is that of Features, but for MissError.
func (r *Receiver[V]) Apply(e Envelope, fs []Feature[V]) (res Result[V], err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.order(e) {
	case inOrder:
		r.next.Seq++
		res.Values, res.Missing, err = r.take(fs)
		return res, err
	case outOfOrder:
		r.frozen = true
		res.Drift = &Drift{Sender: r.next.Sender, Epoch: r.next.Epoch, Contents: r.m.contents()}
	}
	res.Values = make([]V, len(fs))
	for i := range fs {
		if res.Values[i] = fs[i].Value; !fs[i].Has {
			res.Values[i], _, _ = r.m.Peek(r.key(&fs[i]))
		}
	}
	res.Missing = r.absent(fs)
	return res, nil
}

type arrival int

const (
	inOrder    arrival = iota
	outOfOrder         // drift
	late               // of an epoch that is over, or a second copy
)

// order places a request, and enters its epoch if it is a new one.
func (r *Receiver[V]) order(e Envelope) arrival {
	switch {
	case r.retired[e.Sender], e.Sender == r.next.Sender && e.Epoch < r.next.Epoch:
		return late
	case !r.introduced, e.Sender != r.next.Sender, e.Epoch > r.next.Epoch:
		return r.enter(e)
	case r.frozen:
		return outOfOrder
	case e.Seq < r.next.Seq:
		return late
	case e.Seq == r.next.Seq && e.Digest == r.m.digest:
		return inOrder
	}
	return outOfOrder
}

// enter begins an epoch with the first request of it that arrives. If it is the
// first that was sent, and the sender starts from what is here or from nothing,
// all is well again.
func (r *Receiver[V]) enter(e Envelope) arrival {
	if r.introduced && e.Sender != r.next.Sender {
		if r.retired == nil {
			r.retired = map[uint64]bool{}
		}
		r.retired[r.next.Sender] = true
	}
	r.introduced = true
	r.next = Envelope{Sender: e.Sender, Epoch: e.Epoch}
	r.m.restart()
	if e.Seq != 0 {
		return outOfOrder
	}
	if e.Digest == emptyDigest {
		r.m.Clear()
		r.m.digest = emptyDigest
	}
	if e.Digest != r.m.digest {
		return outOfOrder
	}
	r.frozen = false
	return inOrder
}

// Reset empties the receiver at a [Sender.Barrier].
func (r *Receiver[V]) Reset(e Envelope) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.introduced && e.Sender == r.next.Sender && e.Epoch <= r.next.Epoch {
		return // requests behind the barrier came first and have done that
	}
	r.enter(e)
}

// Clear empties the receiver (clear_cache), for senders other than this
// package's.
func (r *Receiver[V]) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.m.Clear()
}

// Stats returns hits and queries as vLLM's receiver has them in its cache. Where
// fresh data wins, items that come with data are no queries.
func (r *Receiver[V]) Stats(delta bool) Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.m.Stats(delta)
}

// Contents lists what is held, oldest first, and the bytes of all together.
func (r *Receiver[V]) Contents() ([]KeySize, int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.m.contents(), r.m.Size()
}

// CheckStructure reports a broken invariant; there is none unless this package
// is at fault.
func (r *Receiver[V]) CheckStructure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.m.CheckStructure()
}
