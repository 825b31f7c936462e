package lrutest_test

import (
	"container/list"

	"github.com/ringcache/ringcache/fuzz/lrutest"
)

// foreign is an LRU cache over container/list as many have written it, with a defect of choice.
type foreign struct {
	bug         string
	capacity    int
	used        int
	order       *list.List // of *foreignEntry, oldest in front
	keys        map[string]*list.Element
	hits, total int64
}

type foreignEntry struct {
	key    string
	value  []byte
	pinned bool
}

func newForeign(bug string) lrutest.New {
	return func(capacity float64) lrutest.Cache {
		return &foreign{bug: bug, capacity: int(capacity), order: list.New(), keys: map[string]*list.Element{}}
	}
}

func (f *foreign) Put(key string, value []byte) bool {
	if len(value) > f.capacity && f.bug != "too large empties it" {
		return false
	}
	if _, ok := f.keys[key]; ok && f.bug == "panics on replace" {
		panic("it is there")
	}
	if old, ok := f.keys[key]; ok && f.bug == "evicts in place" {
		f.drop(old)
	}
	for !f.fits(key, value) {
		if _, ok := f.PopOldest(f.bug == "pinned evicted"); !ok {
			return false
		}
		if f.bug == "evicts one more" && f.order.Len() > 0 && len(value) == 3 {
			f.PopOldest(false)
		}
	}
	if e, ok := f.keys[key]; ok {
		if f.bug != "size not subtracted on replace" {
			f.used -= len(e.Value.(*foreignEntry).value)
		}
		if f.bug != "old value stays" {
			e.Value.(*foreignEntry).value = value
		} else {
			value = e.Value.(*foreignEntry).value
		}
		f.order.MoveToBack(e)
	} else {
		f.keys[key] = f.order.PushBack(&foreignEntry{key: key, value: value})
	}
	f.used += len(value)
	return true
}

func (f *foreign) fits(key string, value []byte) bool {
	grows := len(value)
	if e, ok := f.keys[key]; ok {
		grows -= len(e.Value.(*foreignEntry).value)
	}
	if f.bug == "one byte too many" {
		grows--
	}
	return grows <= 0 || f.used+grows <= f.capacity
}

func (f *foreign) Get(key string) ([]byte, bool) {
	f.total++
	e, ok := f.keys[key]
	if !ok {
		if f.bug == "miss counted as a hit" {
			f.hits++
		}
		return nil, false
	}
	f.hits++
	if f.bug == "hit counted twice" {
		f.hits++
	}
	if f.bug != "get does not refresh" {
		f.order.MoveToBack(e)
	}
	return e.Value.(*foreignEntry).value, true
}

func (f *foreign) Remove(key string) bool {
	e, ok := f.keys[key]
	if ok {
		f.drop(e)
	}
	return ok
}

func (f *foreign) drop(e *list.Element) {
	entry := f.order.Remove(e).(*foreignEntry)
	delete(f.keys, entry.key)
	if f.bug != "size not subtracted on remove" {
		f.used -= len(entry.value)
	}
}

func (f *foreign) Touch(key string) {
	e, ok := f.keys[key]
	switch {
	case ok && f.bug == "touch makes the oldest":
		f.order.MoveToFront(e)
	case ok:
		f.order.MoveToBack(e)
	case f.bug == "ghost touch":
		f.keys[key] = f.order.PushBack(&foreignEntry{key: key})
	}
}

func (f *foreign) Pin(key string) bool {
	e, ok := f.keys[key]
	if ok {
		e.Value.(*foreignEntry).pinned = true
	}
	return ok
}

func (f *foreign) PopOldest(evenPinned bool) (string, bool) {
	e := f.order.Front()
	if f.bug == "evicts newest" {
		e = f.order.Back()
	}
	for ; e != nil; e = e.Next() {
		if entry := e.Value.(*foreignEntry); evenPinned || !entry.pinned {
			f.drop(e)
			return entry.key, true
		}
	}
	return "", false
}

func (f *foreign) Clear() {
	f.order.Init()
	clear(f.keys)
	f.hits, f.total = 0, 0
	if f.bug != "clear keeps the size" {
		f.used = 0
	}
}

func (f *foreign) Entries() (out []lrutest.Entry) {
	for e := f.order.Front(); e != nil; e = e.Next() {
		entry := e.Value.(*foreignEntry)
		out = append(out, lrutest.Entry{Key: entry.key, Size: int64(len(entry.value)), Pinned: entry.pinned})
	}
	return out
}

func (f *foreign) Size() int64                 { return int64(f.used) }
func (f *foreign) Counts() (hits, total int64) { return f.hits, f.total }
