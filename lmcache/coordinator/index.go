package coordinator

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/kv/directory"
)

// index is what LMCache's coordinator tells of objects beyond who holds them: sizes, tokens, uses. Who holds them is in
// the directory, too, for look-ups of prefixes. The caller has a lock.
//
// See lmcache/v1/mp_coordinator/views/key_directory.py of 0.5.7rc2 for the rules.
type index struct {
	d       *directory.Directory
	most    int // objects; of places placesOfObject times as many
	objects map[string]*object
	order   []*object         // for pages
	chunks  map[string]*chunk // by hash
	tokens  int               // kept, in bytes
	l1      map[string]map[string]struct{}
	tiers   map[string]*tierStats
	full    int64 // objects that were not taken
}

// object is one key.
type object struct {
	key      kv.ObjectKey
	at       int // in the order
	chunk    *chunk
	places   []place
	accesses int64
}

// chunk is what objects with the same hash share.
type chunk struct {
	hash    string
	tokens  []byte // 4 bytes each
	objects map[string]*object
}

type tierStats struct {
	count int
	bytes int64
}

func newIndex(d *directory.Directory, most int) *index {
	return &index{
		d: d, most: most, objects: map[string]*object{}, chunks: map[string]*chunk{},
		l1:    map[string]map[string]struct{}{},
		tiers: map[string]*tierStats{"l1": {}, "l2": {}},
	}
}

// nameOf is the key of an object in the maps.
func nameOf(k kv.ObjectKey) string { return spaceOf(k) + string(k.Hash) }

// spaceOf is the space of the chunks of one model, rank, group and salt.
func spaceOf(k kv.ObjectKey) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(k.Rank))
	b = binary.BigEndian.AppendUint32(b, k.Group)
	b = append(append(b, k.Model...), '@') // neither of the two has one
	return string(append(append(b, k.Salt...), '@'))
}

// sharedHolder stands for what all instances reach.
const sharedHolder = "(shared)"

// holder is who a batch is about, for the directory.
func (b *batch) holder() (id directory.ID, location string) {
	id.Instance, location = b.Instance, b.Tier+"/"+*b.Backend
	if b.Shared {
		id.Instance = sharedHolder
	}
	return id, location
}

// apply applies a batch that was admitted: to the directory first, which may be full.
func (x *index) apply(b *batch) error {
	if b.Type == store || b.Type == remove {
		if err := x.report(b); err != nil {
			return err
		}
	}
	if x.l1[b.Instance] == nil {
		x.l1[b.Instance] = map[string]struct{}{}
	}
	for i, e := range b.Entries {
		name := nameOf(b.keys[i])
		switch b.Type {
		case store:
			if !b.refused[i] {
				x.store(b, name, b.keys[i], e)
			}
		case remove:
			x.remove(b, name)
		case access:
			if o := x.objects[name]; o != nil {
				o.accesses++
			}
		}
	}
	return nil
}

// report tells the directory what a batch changes, but for new objects for which there is no room here.
func (x *index) report(b *batch) error {
	b.refused = map[int]bool{}
	fresh := map[string]bool{}
	places := x.tiers["l1"].count + x.tiers["l2"].count
	var reports []directory.Report
	for i, k := range b.keys {
		name := nameOf(k)
		if o := x.objects[name]; b.Type == store && !fresh[name] && (o == nil || o.find(b) < 0) {
			if o == nil && len(x.objects)+len(fresh) >= x.most || places >= placesOfObject*x.most {
				x.full++
				b.refused[i] = true
				continue
			}
			places++
			if o == nil {
				fresh[name] = true
			}
		}
		reports = append(reports, directory.Report{
			Evicted: b.Type == remove, Key: directory.KeyOf(spaceOf(k), k.Hash), Number: -1,
		})
	}
	if len(reports) == 0 {
		return nil
	}
	id, location := b.holder()
	if _, known := x.d.Worker(id); !known {
		if err := x.d.Register(directory.Worker{ID: id, Lasting: true}); err != nil {
			return err
		}
	}
	return x.d.Apply(id, location, reports)
}

func (x *index) store(b *batch, name string, k kv.ObjectKey, e entry) {
	o := x.objects[name]
	if o == nil {
		c := x.chunks[string(k.Hash)]
		if c == nil {
			c = &chunk{hash: string(k.Hash), objects: map[string]*object{}}
			x.chunks[c.hash] = c
		}
		o = &object{key: k, chunk: c, at: len(x.order)}
		x.order = append(x.order, o)
		c.objects[name] = o
		x.objects[name] = o
	}
	p := place{
		Instance: b.Instance, Incarnation: *b.Incarnation, Tier: b.Tier, Backend: *b.Backend,
		Size: e.Size, Shared: b.Shared,
	}
	if at := o.find(b); at >= 0 {
		was := o.places[at]
		x.tiers[b.Tier].bytes += p.Size - was.Size
		o.places[at] = p
		x.forget(was, name, o)
	} else {
		o.places = append(o.places, p)
		x.tiers[b.Tier].count++
		x.tiers[b.Tier].bytes += p.Size
	}
	if b.Tier == "l1" {
		x.l1[b.Instance][name] = struct{}{}
	}
	x.bind(o.chunk, e.Tokens)
}

// bind keeps the tokens of a chunk, if they are tokens.
func (x *index) bind(c *chunk, tokens []int64) {
	if len(tokens) == 0 || len(tokens) > maxChunkTokens || x.tokens+4*len(tokens) > x.most*bytesForTokens {
		return
	}
	packed := make([]byte, 0, 4*len(tokens))
	for _, n := range tokens {
		if n < 0 || n > math.MaxUint32 {
			return
		}
		packed = binary.BigEndian.AppendUint32(packed, uint32(n))
	}
	x.tokens += len(packed) - len(c.tokens)
	c.tokens = packed
}

func (c *chunk) ids() []int64 {
	ids := make([]int64, len(c.tokens)/4)
	for i := range ids {
		ids[i] = int64(binary.BigEndian.Uint32(c.tokens[4*i:]))
	}
	return ids
}

// find returns the place that a batch is about, or -1. A shared one is the same whoever reports it.
func (o *object) find(b *batch) int {
	return slices.IndexFunc(o.places, func(p place) bool {
		return p.Shared == b.Shared && (b.Shared || p.Instance == b.Instance) && p.Tier == b.Tier &&
			p.Backend == *b.Backend
	})
}

func (x *index) remove(b *batch, name string) {
	o := x.objects[name]
	if o == nil {
		return
	}
	if at := o.find(b); at >= 0 {
		p := o.places[at]
		x.take(o, at)
		x.forget(p, name, o)
	}
	x.settle(name, o)
}

// forget takes an object from what its instance has in memory, after a place of it has gone that was the last
// one there. Any instance may have told of a shared place that another one takes away.
func (x *index) forget(was place, name string, o *object) {
	if was.Tier == "l1" && !slices.ContainsFunc(o.places, func(p place) bool {
		return p.Tier == "l1" && p.Instance == was.Instance
	}) {
		delete(x.l1[was.Instance], name)
	}
}

// take removes a place.
func (x *index) take(o *object, at int) {
	p := o.places[at]
	x.tiers[p.Tier].count--
	x.tiers[p.Tier].bytes -= p.Size
	o.places = slices.Delete(o.places, at, at+1)
}

// settle removes an object that is nowhere.
func (x *index) settle(name string, o *object) {
	if len(o.places) > 0 {
		return
	}
	delete(x.objects, name)
	last := x.order[len(x.order)-1]
	x.order[o.at], last.at = last, o.at
	x.order[len(x.order)-1] = nil
	x.order = x.order[:len(x.order)-1]
	delete(o.chunk.objects, name)
	if len(o.chunk.objects) == 0 {
		x.tokens -= len(o.chunk.tokens)
		delete(x.chunks, o.chunk.hash)
	}
}

// fence removes what an instance has told of its memory: the instance has ended, or begun anew. It returns how many
// chunks of it are elsewhere.
func (x *index) fence(instance string) (rest int) {
	for name := range x.l1[instance] {
		o := x.objects[name]
		if o == nil {
			continue
		}
		for at := len(o.places) - 1; at >= 0; at-- {
			if p := o.places[at]; p.Tier == "l1" && p.Instance == instance {
				x.take(o, at)
				if p.Shared {
					_ = x.d.Apply(directory.ID{Instance: sharedHolder}, "l1/"+p.Backend, []directory.Report{
						{Evicted: true, Key: directory.KeyOf(spaceOf(o.key), o.key.Hash), Number: -1},
					})
				}
			}
		}
		x.settle(name, o)
	}
	delete(x.l1, instance)
	return x.d.Clear(directory.ID{Instance: instance}, func(at string) bool { return strings.HasPrefix(at, "l1/") })
}

// result is what is known of a key.
func (x *index) result(k kv.ObjectKey, echo encodedKey) keyResult {
	r := keyResult{Key: echo, Placements: []place{}, Tokens: []int64{}}
	if o := x.objects[nameOf(k)]; o != nil {
		r.Placements, r.Accesses = o.sorted(), o.accesses
	}
	if c := x.chunks[string(k.Hash)]; c != nil {
		r.Tokens = c.ids()
	}
	return r
}

func (o *object) sorted() []place {
	return slices.SortedFunc(slices.Values(o.places), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Tier, b.Tier),
			cmp.Compare(a.Backend, b.Backend))
	})
}

// groups returns a key of each rank, and those that are stored and differ from it in nothing but the group, by rank and
// group. Any number of objects may have the hash, so it looks at each once.
func (x *index) groups(k kv.ObjectKey, ranks []kv.Rank) []kv.ObjectKey {
	groups := map[kv.Rank][]uint32{}
	if c := x.chunks[string(k.Hash)]; c != nil {
		for _, o := range c.objects {
			if o.key.Group != k.Group && o.key.Model == k.Model && o.key.Salt == k.Salt {
				groups[o.key.Rank] = append(groups[o.key.Rank], o.key.Group)
			}
		}
	}
	var all []kv.ObjectKey
	for _, rank := range ranks {
		for _, group := range slices.Sorted(slices.Values(append(groups[rank], k.Group))) {
			k := k
			k.Rank, k.Group = rank, group
			all = append(all, k)
		}
	}
	return all
}

// list returns a page of the objects that have a place which matches. As in LMCache, pages of an index that changes may
// skip objects, or have one twice. It reports whether the page is not too large.
func (x *index) list(match func(place) bool, offset, limit int) (r listResponse, ok bool) {
	r = listResponse{Keys: []keyInfo{}}
	room := maxAnswer
	for _, o := range x.order {
		if !slices.ContainsFunc(o.places, match) {
			continue
		}
		if r.Total >= offset && len(r.Keys) < limit {
			places := slices.DeleteFunc(slices.Clone(o.places), func(p place) bool { return !match(p) })
			if room -= 16 + 16*len(places); room < 0 {
				return r, false
			}
			r.Keys = append(r.Keys, keyInfo{
				Key: encode(o.key), Placements: places, Tokens: len(o.chunk.tokens) / 4, Accesses: o.accesses,
			})
		}
		r.Total++
	}
	return r, true
}

func (x *index) stats() statsResponse {
	r := statsResponse{
		Keys: len(x.objects), L1: map[string]int{},
		Placements: x.tiers["l1"].count + x.tiers["l2"].count,
		L1Count:    x.tiers["l1"].count, L1Bytes: x.tiers["l1"].bytes,
		L2Count: x.tiers["l2"].count, L2Bytes: x.tiers["l2"].bytes,
	}
	for instance, names := range x.l1 {
		r.L1[instance] = len(names)
	}
	return r
}
