package linear_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/linear"
	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

const itemBytes = 400

// TestCachesAreLinearizable: one client makes an item and all others get that one, until it is forgotten; and
// the engine of a mirrored cache always has what it is not sent.
func TestCachesAreLinearizable(t *testing.T) {
	for _, s := range []system{
		{"processor_only", []porcupine.Model{linear.SingleFlight(false)}, cache("processor_only", 1<<20, true)},
		{"processor_only that evicts", []porcupine.Model{linear.SingleFlight(true)},
			cache("processor_only", 900, true)},
		{"shm", []porcupine.Model{linear.SingleFlight(false)}, cache("shm", 1<<20, true)},
		{"shm that evicts", []porcupine.Model{linear.SingleFlight(true)}, cache("shm", 4096, true)},
		{"lru", []porcupine.Model{linear.LRU(100), linear.SingleFlight(false)}, cache("lru", 1<<20, false)},
		{"lru that evicts", []porcupine.Model{linear.LRU(2)}, cache("lru", 1000, false)},
	} {
		t.Run(s.name, func(t *testing.T) { s.test(t) })
	}
}

// worker is what is behind a cache.
type worker struct {
	receiver *lrusync.Receiver[*serde.Item] // of mode lru
	reader   *objstore.Reader               // of mode shm
}

// take returns the value of the item that a request brings, and whether it was sent.
func (w *worker) take(b mmcache.Batch) (value uint64, sent bool, err error) {
	item := b.Items[0].Item()
	switch {
	case w.receiver != nil:
		f := lrusync.Feature[*serde.Item]{Key: b.Items[0].Key, HasData: item != nil, Value: item}
		if f.HasData {
			if f.Size, err = lrusync.ItemSize(item, lrusync.Python{}); err != nil {
				return 0, false, err
			}
		}
		res, err := w.receiver.Receive(b.Envelope, []lrusync.Feature[*serde.Item]{f})
		if err != nil || len(res.Missing) > 0 || res.Drift != nil {
			return 0, false, fmt.Errorf("the engine misses %v, drift %v: %w", res.Missing, res.Drift, err)
		}
		return valueOf(res.Values[0]), f.HasData, nil
	case b.Items[0].Handle != nil:
		v, err := w.reader.Get(b.Items[0].Key, *b.Items[0].Handle)
		if err != nil {
			return 0, false, err
		}
		value = valueOf(v.Item())
		return value, true, errors.Join(v.Check(), v.Release())
	}
	return valueOf(item), true, nil
}

func valueOf(it *serde.Item) uint64 {
	e, _ := it.Lookup("pixel_values")
	return binary.LittleEndian.Uint64(e.Data.(*serde.Tensor).Data[itemBytes-8:])
}

// cache starts a cache. With byMaking a call has made an item if the producer ran, else if
// the item was sent.
func cache(mode string, capacity float64, byMaking bool) func(*scope) (func(int) perform, func()) {
	return func(t *scope) (func(int) perform, func()) {
		o := mmcache.Options{Mode: mode, Capacity: capacity}
		o.Shared = mmcache.SharedOptions{Readers: 1, Name: fmt.Sprintf("mm-%d", rand.Uint64()), Dir: t.dir,
			QuarantineTTL: -1}
		c, err := mmcache.Open(o)
		require.NoError(t, err)
		t.atEnd(func() { _ = c.Abandon() })
		var w worker
		switch mode {
		case "lru":
			w.receiver, err = lrusync.NewReceiver[*serde.Item](lrusync.Options{Capacity: capacity})
		case "shm":
			w.reader, err = objstore.Open(o.Shared.Name,
				objstore.ReaderOptions{Dir: t.dir, RingSize: int(capacity), Readers: 1})
			t.atEnd(func() { _ = w.reader.Close() })
		}
		require.NoError(t, err)
		client := func(int) perform {
			return func(rng *rand.Rand, do func(any, func() (any, error)) error) error {
				call := linear.CacheCall{Key: fmt.Sprint("key ", rng.IntN(4)), Forget: rng.IntN(6) == 0}
				return do(call, func() (any, error) {
					if call.Forget {
						c.Invalidate(call.Key)
						return linear.CacheResult{}, nil
					}
					return use(c, &w, call.Key, byMaking)
				})
			}
		}
		return client, func() {
			require.NoError(t, c.CheckStructure())
			if w.reader != nil {
				require.NoError(t, w.reader.Close())
			}
			require.NoError(t, c.Close())
		}
	}
}

// use is a request for one item.
func use(c mmcache.Cache, w *worker, key string, byMaking bool) (any, error) {
	ctx := context.Background()
	req, err := c.Begin(ctx, requestID(), mmcache.Want{Key: key, Bytes: itemBytes + 100, Modality: "image"})
	if err != nil {
		return nil, err
	}
	defer req.Rollback()
	made := false
	item, err := req.Item(ctx, key, func(_ context.Context, b *mmcache.Builder) error {
		made = true
		err := b.Layout(&serde.Item{Modality: "image",
			Elems: []serde.Elem{{Key: "pixel_values", Data: &serde.Tensor{DType: "uint8", Shape: []int{itemBytes}}}}},
			nil)
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(b.Tensor("pixel_values")[itemBytes-8:], values.Add(1))
		return nil
	})
	if err != nil {
		return nil, err
	}
	r := linear.CacheResult{Uncached: item.Refused != nil}
	err = req.Commit(ctx, func(b mmcache.Batch) (err error) {
		r.Value, r.Made, err = w.take(b)
		return err
	})
	if byMaking {
		r.Made = made
	}
	req.Finish()
	return r, err
}
