package upstream_test

import (
	"errors"
	"testing"

	"github.com/ringcache/ringcache/fuzz/lrutest"
	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/lrusync/upstream"
	"github.com/ringcache/ringcache/pycompat"
)

// The steps of vLLM's frontend and engine as both ends of a pair for lrutest. Features go over the
// link, or nil at a clear.
type (
	testedSender struct {
		*upstream.SenderCache
		gen *pycompat.Generation
	}
	testedReceiver struct {
		*upstream.ReceiverCache[[]byte]
	}
)

func newTestedPair(g *pycompat.Generation) lrutest.NewPair {
	return func(capacity float64) (lrutest.Sender, lrutest.Receiver) {
		o := lrusync.Options{Capacity: capacity, Generation: g}
		s, errSender := upstream.NewSenderCache(o)
		r, errReceiver := upstream.NewReceiverCache[[]byte](o)
		if err := errors.Join(errSender, errReceiver); err != nil {
			panic(err)
		}
		return testedSender{s, g}, testedReceiver{r}
	}
}

// Send is what vLLM's frontend does, but that it has the data of an item ready even when the item
// is cached at first: vLLM fails if an item before it in the request pushes it out.
func (s testedSender) Send(items []lrutest.Item, link func(lrutest.Message) error) (need []string, err error) {
	for _, it := range items {
		if it.Value == nil {
			need = append(need, it.Key)
		}
		if float64(it.Size) > 40 && !s.gen.Cache.PutIfFits {
			return nil, lrusync.ErrTooLarge // before anything has changed
		}
	}
	if need != nil {
		return need, nil
	}
	m := lrutest.Message{}
	if s.gen.Cache.Touch {
		for _, it := range items {
			s.Touch(it.Key)
		}
	}
	fs := []lrusync.Feature[[]byte]{}
	for _, it := range items {
		omit, _, err := s.GetAndUpdate(it.Key, &upstream.Input{Size: it.Size})
		if err != nil {
			return nil, err
		}
		f := lrusync.Feature[[]byte]{Key: it.Key}
		if !omit {
			f = lrusync.Feature[[]byte]{Key: it.Key, HasData: true, Value: it.Value, Size: it.Size}
		}
		fs = append(fs, f)
		m.Keys, m.Omitted = append(m.Keys, it.Key), append(m.Omitted, omit)
	}
	m.Wire = fs
	return nil, link(m)
}

func (s testedSender) Answered(_ lrutest.Message, a lrutest.Answer) {
	for _, key := range a.Missing {
		s.Invalidate(key)
	}
}

func (s testedSender) Contents() []lrutest.Entry {
	if err := s.CheckStructure(); err != nil {
		panic(err)
	}
	return entriesOf(s.SenderCache.Contents())
}

func (r testedReceiver) Receive(m lrutest.Message) (a lrutest.Answer) {
	var miss *upstream.MissError
	values, err := r.GetAndUpdate(m.Wire.([]lrusync.Feature[[]byte]))
	switch {
	case errors.As(err, &miss):
		a.Missing = miss.Keys
		for _, f := range m.Wire.([]lrusync.Feature[[]byte]) {
			if a.Values = append(a.Values, f.Value); !f.HasData { // no value goes out with a miss
				a.Missing = append(a.Missing, f.Key)
			}
		}
	case err != nil:
		panic(err)
	}
	if err == nil {
		a.Values = values
	}
	return a
}

func (r testedReceiver) Contents() []lrutest.Entry {
	if err := r.CheckStructure(); err != nil {
		panic(err)
	}
	return entriesOf(r.ReceiverCache.Contents())
}

func entriesOf(contents []lrusync.KeySize, _ int64) (out []lrutest.Entry) {
	for _, e := range contents {
		out = append(out, lrutest.Entry{Key: e.Key, Size: e.Size})
	}
	return out
}

// TestStepsOfARequestStayEqual: in the order of the positions, and over a link that keeps order,
// the steps of vLLM stay in lockstep in every release. A drift shows as a miss, and nothing makes
// both ends equal again. From 0.28 on the request has its values when it is sent again; before, the
// engine dies.
func TestStepsOfARequestStayEqual(t *testing.T) {
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			without := []string{"refused-leaves-no-trace", "equal-again"}
			if !g.Cache.MissError {
				without = append(without, "requests-end")
			}
			lrutest.CheckPair(t, newTestedPair(g), lrutest.Options{Release: g.Version, Ops: 1500, Capacity: 40, Without: without})
		})
	}
}
