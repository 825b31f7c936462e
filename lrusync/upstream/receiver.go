package upstream

import (
	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/pycompat"
)

// ReceiverCache is the engine's cache, for vLLM's senders.
type ReceiverCache[V any] struct {
	receiver *lrusync.Receiver[V]
	gen      *pycompat.Generation
}

// NewReceiverCache returns an empty cache.
func NewReceiverCache[V any](o lrusync.Options) (*ReceiverCache[V], error) {
	r, err := lrusync.NewReceiver[V](o)
	if err != nil {
		return nil, err
	}
	g, err := pycompat.Resolve(o.Generation)
	if err != nil {
		return nil, err
	}
	return &ReceiverCache[V]{receiver: r, gen: g}, nil
}

// GetAndUpdate takes the features of one request and returns their values
// (get_and_update_features), see [lrusync.Receiver.Receive]. It fails with
//   - [MissError] if some came without data and are not cached;
//   - [lrusync.ErrTooLarge] in generations without PutIfFits.
func (c *ReceiverCache[V]) GetAndUpdate(fs []lrusync.Feature[V]) ([]V, error) {
	res, err := c.receiver.Receive(lrusync.Envelope{}, fs)
	switch {
	case err != nil:
		return nil, err
	case res.Missing != nil:
		return nil, missedByEngine(res.Missing, c.gen.Cache.MissError)
	}
	return res.Values, nil
}

// Clear forgets everything (clear_cache).
func (c *ReceiverCache[V]) Clear() { c.receiver.Clear(lrusync.Envelope{}) }

// Stats returns hits and queries, see [lrusync.Receiver.Stats].
func (c *ReceiverCache[V]) Stats() lrusync.Stats { return c.receiver.Stats() }

// Contents lists what is cached, oldest first, and the bytes of all together.
func (c *ReceiverCache[V]) Contents() ([]lrusync.KeySize, int64) { return c.receiver.Contents() }

// CheckStructure reports a broken invariant.
func (c *ReceiverCache[V]) CheckStructure() error { return c.receiver.CheckStructure() }
