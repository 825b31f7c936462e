package shmstore

import (
	"hash/maphash"
	"iter"
	"slices"
	"strings"
	"unique"
)

// key is the key of an object. What is in front of the first zero byte of a key is the same in many keys, as the
// space of a level's objects, and the process has it once.
type key struct {
	shared unique.Handle[string] // with the zero byte; the zero value if there is none
	own    string
}

func newKey(text string) key {
	n := strings.IndexByte(text, 0) + 1
	if n == 0 {
		return key{own: text}
	}
	return key{unique.Make(text[:n]), strings.Clone(text[n:])}
}

// front returns what the key shares with others.
func (k key) front() string {
	if k.shared == (unique.Handle[string]{}) {
		return ""
	}
	return k.shared.Value()
}

// text returns the key as it was put.
func (k key) text() string { return k.front() + k.own }

func (k key) len() int { return len(k.front()) + len(k.own) }

func (k key) is(text string) bool {
	own, ok := strings.CutPrefix(text, k.front())
	return ok && own == k.own
}

// index finds objects by key. It has the hashes of keys, since the objects have the keys: so an entry takes two
// thirds of what it would take with a string. The seed is random, so that nobody can choose keys of one hash.
type index struct {
	seed   maphash.Seed
	byHash map[uint64]*Object
	others map[string]*Object // those whose hash another one has
}

func newIndex() *index {
	return &index{seed: maphash.MakeSeed(), byHash: map[uint64]*Object{}, others: map[string]*Object{}}
}

// find returns the object of a key, nil if there is none.
func (x *index) find(text string) *Object {
	if x == nil {
		return nil
	}
	if o := x.byHash[maphash.String(x.seed, text)]; o != nil && o.key.is(text) {
		return o
	}
	if len(x.others) == 0 {
		return nil
	}
	return x.others[text]
}

// add adds an object, whose key is not there.
func (x *index) add(o *Object) {
	if at := x.hash(o.key); x.byHash[at] == nil {
		x.byHash[at] = o
	} else {
		x.others[o.Key()] = o
	}
}

// remove removes an object that is there.
func (x *index) remove(o *Object) {
	if at := x.hash(o.key); x.byHash[at] == o {
		delete(x.byHash, at)
	} else {
		delete(x.others, o.Key())
	}
}

func (x *index) len() int { return len(x.byHash) + len(x.others) }

// all yields every object. They may be removed meanwhile.
func (x *index) all() iter.Seq[*Object] {
	return func(yield func(*Object) bool) {
		for _, o := range x.byHash {
			if !yield(o) {
				return
			}
		}
		for _, o := range x.others {
			if !yield(o) {
				return
			}
		}
	}
}

// keys returns the keys, sorted.
func (x *index) keys() (all []string) {
	for o := range x.all() {
		all = append(all, o.Key())
	}
	slices.Sort(all)
	return all
}

func (x *index) hash(k key) uint64 {
	if k.shared == (unique.Handle[string]{}) {
		return maphash.String(x.seed, k.own)
	}
	var h maphash.Hash
	h.SetSeed(x.seed)
	_, _ = h.WriteString(k.front())
	_, _ = h.WriteString(k.own)
	return h.Sum64()
}
