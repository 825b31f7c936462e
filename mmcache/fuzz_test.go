package mmcache_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/lrutest"
	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

// testedMirrored is a cache of mode lru as the sender of a pair for lrutest.
type testedMirrored struct {
	*mmcache.Mirrored
	open map[*mmcache.Request]bool // sent, and not answered
}

// end finishes what the link has lost, and requires that nothing stays.
func (c testedMirrored) end(t *testing.T) {
	for r := range c.open {
		r.Finish()
	}
	require.NoError(t, c.CheckStructure())
	require.Zero(t, c.Stats().InFlight)
	require.NoError(t, c.Close())
}

// testedWire is what goes over the link: a batch, or the envelope of a Clear.
type testedWire struct {
	request *mmcache.Request // nil at a Clear
	batch   mmcache.Batch
}

var (
	errNotAtHand = errors.New("the data is not at hand")
	errLater     = errors.New("the test sends it again itself")
)

// Send ends the request when the link refuses it, and when the answer comes.
func (c testedMirrored) Send(items []lrutest.Item, link func(lrutest.Message) error) (need []string, err error) {
	m := lrutest.Message{}
	var wants []mmcache.Want
	for _, it := range items {
		m.Keys = append(m.Keys, it.Key)
		wants = append(wants, mmcache.Want{Key: it.Key, Bytes: it.Size + 1, Modality: "image"})
	}
	r, err := c.Begin(ctx, nextID(), wants...)
	if err != nil {
		return nil, err
	}
	lack := map[string]bool{}
	for _, it := range items {
		_, err := r.Item(ctx, it.Key, func(_ context.Context, b *mmcache.Builder) error {
			if it.Value == nil {
				lack[it.Key] = true
				return errNotAtHand
			}
			err := b.Layout(layout(len(it.Value)), []byte(it.Key))
			if err == nil {
				copy(b.Tensor("pixel_values"), it.Value)
			}
			return err
		})
		if err != nil && !errors.Is(err, errNotAtHand) {
			r.Rollback()
			return nil, err
		}
	}
	if len(lack) == 0 {
		err = r.Commit(ctx, func(b mmcache.Batch) error {
			m.Omitted = nil
			for _, w := range b.Items {
				m.Omitted = append(m.Omitted, w.Item() == nil)
			}
			m.Wire = testedWire{r, b}
			return link(m)
		})
	}
	if len(lack) > 0 || err != nil {
		r.Rollback()
	} else {
		c.open[r] = true
	}
	if len(lack) > 0 { // also while it was sent
		for key := range lack {
			need = append(need, key)
		}
		return need, nil
	}
	return nil, err
}

func (c testedMirrored) Answered(m lrutest.Message, a lrutest.Answer) {
	if drift, ok := a.Report.(*lrusync.Drift); ok && drift != nil {
		c.Repair(*drift)
	}
	r := m.Wire.(testedWire).request
	if a.Missing != nil {
		if err := r.Missed(ctx, a.Missing, func(mmcache.Batch) error { return errLater }); !errors.Is(err, errLater) && !errors.Is(err, errNotAtHand) {
			panic(err)
		}
	}
	if r != nil {
		r.Finish()
		delete(c.open, r)
	}
}

func (c testedMirrored) Clear(link func(lrutest.Message) error) error {
	return c.Mirrored.Clear(ctx, func(e lrusync.Envelope) error {
		return link(lrutest.Message{Wire: testedWire{batch: mmcache.Batch{Envelope: e}}})
	})
}

func (c testedMirrored) Contents() (out []lrutest.Entry) {
	for key, size := range c.Keys() {
		out = append(out, lrutest.Entry{Key: key, Size: size})
	}
	return out
}

// testedEngine is the engine of these tests as the receiver.
type testedEngine struct{ *engine }

func (e testedEngine) Receive(m lrutest.Message) (a lrutest.Answer) {
	wire := m.Wire.(testedWire)
	if wire.request == nil {
		e.receiver.Clear(wire.batch.Envelope)
		return a
	}
	res := e.take(wire.batch)
	a = lrutest.Answer{Missing: res.Missing, Report: res.Drift}
	for _, it := range res.Values {
		var value []byte
		if it != nil {
			elem, _ := it.Lookup("pixel_values")
			value = elem.Data.(*serde.Tensor).Data
		}
		a.Values = append(a.Values, value)
	}
	return a
}

func (e testedEngine) Contents() (out []lrutest.Entry) {
	contents, _ := e.receiver.Contents()
	for _, k := range contents {
		out = append(out, lrutest.Entry{Key: k.Key, Size: k.Size})
	}
	return out
}

// TestMirroredOverALossyLink: requests through a whole cache of mode lru stay in lockstep with the
// engine, and drifts are noticed, repaired, and seen by nobody.
func TestMirroredOverALossyLink(t *testing.T) {
	lrutest.CheckPair(t, func(capacity float64) (lrutest.Sender, lrutest.Receiver) {
		c, err := mmcache.OpenMirrored(mmcache.Options{Capacity: capacity})
		if err != nil {
			t.Fatal(err)
		}
		m := testedMirrored{c, map[*mmcache.Request]bool{}}
		t.Cleanup(func() { m.end(t) })
		return m, testedEngine{newEngine(t, capacity)}
	}, lrutest.Options{Release: "0.33.0", Ops: 3000})
}
