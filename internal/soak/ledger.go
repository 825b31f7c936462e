package main

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/shmstore"
)

// ledger is what must be in a segment, whoever of its writers was killed. It is filled by the lines
// of writers.
type ledger struct {
	index   map[string]uint32 // ids, by the keys that are there
	flying  map[string]*flight
	fences  map[int]map[string]bool // flights that a fence waits for
	history []object                // of flights that have ended, the latest ones
	at      int                     // the next one of history to be replaced

	epoch    uint64
	gone     string // the last key that went
	detached bool   // the writer ended by plan
}

// flight is a request that was sent, until every reader has read it.
type flight struct {
	id      string
	objects []object
	waiting map[*process]bool // readers that have not answered
	ended   bool              // aborted, or its writer is dead
}

const historySize = 400

func newLedger() *ledger {
	return &ledger{index: map[string]uint32{}, flying: map[string]*flight{}, fences: map[int]map[string]bool{}}
}

func (l *ledger) added(o object) { l.index[o.Key] = o.ID }

func (l *ledger) removed(o object) error {
	if id, ok := l.index[o.Key]; !ok || id != o.ID {
		return fmt.Errorf("key %s goes with id %d, but the ledger has id %d (%v)", o.Key, o.ID, id, ok)
	}
	delete(l.index, o.Key)
	l.gone = o.Key
	return nil
}

func (l *ledger) sent(id string, objects []object, readers []*process) (*flight, error) {
	if l.flying[id] != nil {
		return nil, fmt.Errorf("request %s was sent twice", id)
	}
	f := &flight{id: id, objects: objects, waiting: map[*process]bool{}}
	for _, r := range readers {
		f.waiting[r] = true
	}
	l.flying[id] = f
	return f, nil
}

// read notes that a reader has read a flight. It returns the flight if it is over, and the
// fences that have passed by that.
func (l *ledger) read(id string, by *process) (over *flight, passed []int) {
	f := l.flying[id]
	if f == nil {
		return nil, nil // the readers were replaced meanwhile
	}
	delete(f.waiting, by)
	if len(f.waiting) > 0 {
		return nil, nil
	}
	delete(l.flying, id)
	l.remember(f.objects)
	for n, waits := range l.fences {
		delete(waits, id)
		if len(waits) == 0 {
			delete(l.fences, n)
			passed = append(passed, n)
		}
	}
	return f, passed
}

func (l *ledger) remember(objects []object) {
	for _, o := range objects {
		o.Uses = 1
		if len(l.history) < historySize {
			l.history = append(l.history, o)
			continue
		}
		l.history[l.at] = o
		l.at = (l.at + 1) % historySize
	}
}

// fence notes a fence, and reports whether it has passed already.
func (l *ledger) fence(n int) (passed bool) {
	if len(l.flying) == 0 {
		return true
	}
	waits := map[string]bool{}
	for id := range l.flying {
		waits[id] = true
	}
	l.fences[n] = waits
	return false
}

// forget drops all flights, since every reader is dead and the engine starts anew. It
// returns the fences that have passed by that.
func (l *ledger) forget() (passed []int) {
	for _, f := range l.flying {
		l.remember(f.objects)
	}
	clear(l.flying)
	for n := range l.fences {
		passed = append(passed, n)
	}
	clear(l.fences)
	return passed
}

// writerEnded makes every flight one of nobody's.
func (l *ledger) writerEnded(killed bool) {
	l.detached = !killed
	clear(l.fences)
	for _, f := range l.flying {
		f.ended = true
	}
}

// adopted judges what the next writer found: all that has a key, whose bytes it has compared.
func (l *ledger) adopted(a shmstore.Adoption, all []object, indexed bool) error {
	ids := map[uint32]bool{}
	for _, f := range l.flying {
		for _, o := range f.objects {
			ids[o.ID] = true
		}
	}
	switch {
	case a.Dropped > 0 || a.Damaged > 0:
		return fmt.Errorf("%d objects were dropped, %d were damaged: wherever a writer is killed, its entries are whole", a.Dropped, a.Damaged)
	case a.Kept < len(all):
		return fmt.Errorf("%d objects were kept, but %d have keys", a.Kept, len(all))
	case a.InUse < len(ids):
		return fmt.Errorf("%d objects are in use, but %d are in flight", a.InUse, len(ids))
	case a.Epoch <= l.epoch:
		return fmt.Errorf("epoch %d follows %d", a.Epoch, l.epoch)
	case l.detached && !a.Clean:
		return errors.New("the segment is not clean, but its writer has detached")
	}
	l.epoch = a.Epoch
	index := map[string]uint32{}
	for _, o := range all {
		index[o.Key] = o.ID
	}
	if len(index) != len(all) {
		return fmt.Errorf("%d objects have %d keys", len(all), len(index))
	}
	if indexed {
		if err := l.compare(index); err != nil {
			return err
		}
	}
	l.index, l.gone, l.detached = index, "", false
	return nil
}

// compare compares what has a key with what was reported. A writer that was killed may have
// removed one object, and published one, without a report of it; and the object that it reported
// last to be gone may be there.
func (l *ledger) compare(index map[string]uint32) error {
	lost, unknown := 1, 1
	if l.detached {
		lost, unknown, l.gone = 0, 0, ""
	}
	for key, id := range l.index {
		got, ok := index[key]
		if !ok {
			lost--
		}
		if ok && got != id || lost < 0 {
			return fmt.Errorf("key %s had id %d, and has %d now (%v)", key, id, got, ok)
		}
	}
	for key, id := range index {
		if _, ok := l.index[key]; !ok && key != l.gone {
			if unknown--; unknown < 0 {
				return fmt.Errorf("key %s with id %d was never reported to be there", key, id)
			}
		}
	}
	return nil
}
