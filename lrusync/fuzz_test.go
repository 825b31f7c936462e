package lrusync_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz/lrutest"
	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/pycompat"
)

// testedSender and testedReceiver are both ends as lrutest wants them.
type (
	testedSender struct {
		*lrusync.Sender
		fresh bool // items with the key c are sent even if they are there
	}
	testedReceiver struct{ *lrusync.Receiver[[]byte] }

	// testedWire is what goes over the link: the features of a request, or nil at a Clear.
	testedWire struct {
		envelope lrusync.Envelope
		features []lrusync.Feature[[]byte]
	}
)

func newTestedPair(g *pycompat.Generation, fresh bool) lrutest.NewPair {
	return func(capacity float64) (lrutest.Sender, lrutest.Receiver) {
		o := lrusync.Options{Capacity: capacity, Generation: g}
		s, errSender := lrusync.NewSender(o)
		r, errReceiver := lrusync.NewReceiver[[]byte](o)
		if err := errors.Join(errSender, errReceiver); err != nil {
			panic(err)
		}
		return testedSender{s, fresh}, testedReceiver{r}
	}
}

func (s testedSender) Send(in []lrutest.Item, link func(lrutest.Message) error) (need []string, err error) {
	items := make([]lrusync.Item, len(in))
	m := lrutest.Message{Keys: make([]string, len(in))}
	for i, it := range in {
		items[i] = lrusync.Item{Key: it.Key, HasData: it.Value != nil, Size: it.Size, Updates: []byte(it.Key), Fresh: s.fresh && it.Key == "c"}
		m.Keys[i] = it.Key
	}
	var ticket lrusync.Ticket
	ticket, err = s.Sender.Send(ctx, items, func(t lrusync.Ticket) error {
		m.Omitted = t.Omit
		wire := testedWire{envelope: t.Envelope, features: make([]lrusync.Feature[[]byte], len(in))}
		for i, it := range in {
			wire.features[i] = lrusync.Feature[[]byte]{Key: it.Key}
			if !t.Omit[i] {
				wire.features[i] = lrusync.Feature[[]byte]{Key: it.Key, HasData: true, Value: it.Value, Size: it.Size}
			}
		}
		m.Wire = wire
		return link(m)
	})
	var missing *lrusync.NeedDataError
	switch {
	case errors.As(err, &missing):
		return missing.Keys, nil
	case err == nil:
		s.checkTicket(ticket, in)
	}
	return nil, err
}

// checkTicket panics if what the ticket promises is not what the mirror has now.
func (s testedSender) checkTicket(t lrusync.Ticket, in []lrutest.Item) {
	for _, key := range t.Added {
		if _, _, ok := s.Lookup(key); !ok {
			panic("added, and not there: " + key)
		}
	}
	for _, key := range t.Evicted {
		if _, _, ok := s.Lookup(key); ok {
			panic("evicted, and there: " + key)
		}
	}
	for i, it := range in {
		if string(t.Updates[i]) != it.Key {
			panic("the updates of " + it.Key + " are " + string(t.Updates[i]))
		}
	}
}

func (s testedSender) Answered(m lrutest.Message, a lrutest.Answer) {
	if drift, ok := a.Report.(*lrusync.Drift); ok && drift != nil {
		s.Repair(*drift)
	}
	if a.Missing != nil {
		s.Missed(m.Wire.(testedWire).envelope, a.Missing)
	}
}

func (s testedSender) Clear(link func(lrutest.Message) error) error {
	return s.Sender.Clear(ctx, func(e lrusync.Envelope) error { return link(lrutest.Message{Wire: testedWire{envelope: e}}) })
}

func (s testedSender) Contents() []lrutest.Entry {
	if err := s.CheckStructure(); err != nil {
		panic(err)
	}
	return entriesOf(s.Sender.Contents())
}

func (r testedReceiver) Receive(m lrutest.Message) lrutest.Answer {
	wire := m.Wire.(testedWire)
	if wire.features == nil {
		r.Clear(wire.envelope)
		return lrutest.Answer{}
	}
	res, err := r.Receiver.Receive(wire.envelope, wire.features)
	if err != nil {
		panic(err) // the sender has foreseen that
	}
	return lrutest.Answer{Values: res.Values, Missing: res.Missing, Report: res.Drift}
}

func (r testedReceiver) Contents() []lrutest.Entry {
	if err := r.CheckStructure(); err != nil {
		panic(err)
	}
	return entriesOf(r.Receiver.Contents())
}

func entriesOf(contents []lrusync.KeySize, _ int64) (out []lrutest.Entry) {
	for _, e := range contents {
		out = append(out, lrutest.Entry{Key: e.Key, Size: e.Size})
	}
	return out
}

// TestPairOfEveryRelease: what the sender foresees is what the receiver does, in every release and
// over a link that loses and reorders messages; nothing is missing while it does not.
func TestPairOfEveryRelease(t *testing.T) {
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			lrutest.CheckPair(t, newTestedPair(g, false), lrutest.Options{Release: g.Version, Ops: 1500})
			o := lrutest.Options{Release: g.Version, Ops: 700, Without: []string{"nothing-sent-twice"}}
			lrutest.CheckPair(t, newTestedPair(g, true), o)
		})
	}
	t.Run("rapid", func(t *testing.T) {
		rapid.Check(t, lrutest.MachinePair(newTestedPair(nil, false), lrutest.Options{Release: "0.33.0"}))
	})
}

func FuzzPair(f *testing.F) {
	lrutest.FuzzPair(f, newTestedPair(nil, false), lrutest.Options{Release: "0.33.0"})
}
