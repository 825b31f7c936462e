package main

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/shmstore"
)

// ledger is the expected content of a segment, also after its writer was killed. It is built from the lines
// of writers.
type ledger struct {
	index   map[string]uint32 // ids of the objects that are there, by key
	unread  map[string]*sentRequest
	fences  map[int]map[string]bool // ids of the requests that each fence waits for
	history []object                // objects of the latest requests that were read
	at      int                     // index in history that is replaced next

	epoch       uint64
	lastRemoved string // the key whose removal was reported last
	detached    bool   // the writer ended as ordered
}

// sentRequest is a request from its sending until every reader has read it.
type sentRequest struct {
	id      string
	objects []object
	waiting map[*process]bool // readers that have not answered
	ended   bool              // it was aborted, or its writer is dead: nothing ends it a second time
}

const historySize = 400

func newLedger() *ledger {
	return &ledger{index: map[string]uint32{}, unread: map[string]*sentRequest{}, fences: map[int]map[string]bool{}}
}

func (l *ledger) addKey(o object) { l.index[o.Key] = o.ID }

func (l *ledger) removeKey(o object) error {
	if id, ok := l.index[o.Key]; !ok || id != o.ID {
		return fmt.Errorf("key %s is removed with id %d, but the ledger has id %d (%v)", o.Key, o.ID, id, ok)
	}
	delete(l.index, o.Key)
	l.lastRemoved = o.Key
	return nil
}

func (l *ledger) addRequest(id string, objects []object, readers []*process) (*sentRequest, error) {
	if l.unread[id] != nil {
		return nil, fmt.Errorf("request %s was sent twice", id)
	}
	f := &sentRequest{id: id, objects: objects, waiting: map[*process]bool{}}
	for _, r := range readers {
		f.waiting[r] = true
	}
	l.unread[id] = f
	return f, nil
}

// markRead notes that a reader has read a request. It returns the request if all readers have read it, and
// the fences that pass by that.
func (l *ledger) markRead(id string, by *process) (over *sentRequest, passed []int) {
	f := l.unread[id]
	if f == nil {
		return nil, nil // dropRequests has dropped it
	}
	delete(f.waiting, by)
	if len(f.waiting) > 0 {
		return nil, nil
	}
	delete(l.unread, id)
	l.addHistory(f.objects)
	for n, waits := range l.fences {
		delete(waits, id)
		if len(waits) == 0 {
			delete(l.fences, n)
			passed = append(passed, n)
		}
	}
	return f, passed
}

func (l *ledger) addHistory(objects []object) {
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
func (l *ledger) addFence(n int) (passed bool) {
	if len(l.unread) == 0 {
		return true
	}
	waits := map[string]bool{}
	for id := range l.unread {
		waits[id] = true
	}
	l.fences[n] = waits
	return false
}

// dropRequests drops all requests, since every reader is dead and the engine starts again. It returns the
// fences that pass by that.
func (l *ledger) dropRequests() (passed []int) {
	for _, f := range l.unread {
		l.addHistory(f.objects)
	}
	clear(l.unread)
	for n := range l.fences {
		passed = append(passed, n)
	}
	clear(l.fences)
	return passed
}

// writerEnded ends every request: the writer that would finish or abort it has ended.
func (l *ledger) writerEnded(killed bool) {
	l.detached = !killed
	clear(l.fences)
	for _, f := range l.unread {
		f.ended = true
	}
}

// checkAdoption compares the ledger with what the next writer found: its report, and all objects that have a
// key. The writer has compared the bytes of those.
func (l *ledger) checkAdoption(a shmstore.Adoption, all []object, indexed bool) error {
	ids := map[uint32]bool{}
	for _, f := range l.unread {
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
		return fmt.Errorf("%d objects are in use, but %d are in requests that were not read", a.InUse, len(ids))
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
	l.index, l.lastRemoved, l.detached = index, "", false
	return nil
}

// compare compares the keys in the segment with those that were reported. A writer that was killed may have
// removed one object, and published another, without a report. An object whose removal it reported last may
// still be there.
func (l *ledger) compare(index map[string]uint32) error {
	lost, unknown := 1, 1
	if l.detached {
		lost, unknown, l.lastRemoved = 0, 0, ""
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
		if _, ok := l.index[key]; !ok && key != l.lastRemoved {
			if unknown--; unknown < 0 {
				return fmt.Errorf("key %s with id %d was never reported to be there", key, id)
			}
		}
	}
	return nil
}
