package directory

import (
	"hash/maphash"
	"slices"
)

// table has the holders of each chunk. A holder is a number: a location of a worker. Most chunks have one holder, which
// stands in the map itself; more stand in a sorted list.
//
// The map is cut into parts, so that a part can be swept, or grow, while a look-up waits for 100 microseconds at most.
type table struct {
	seed  maphash.Seed // so that nobody knows which keys share a part
	parts [parts]part
	pairs int // of a chunk and a holder, those of ended holders too
}

const (
	parts  = 1024
	isList = 1 << 31 // a value of part.chunks is a place in part.lists
)

type part struct {
	chunks map[Key]uint32 // the holder, or isList and a place in lists
	lists  [][]uint32     // sorted, of two holders at least; nil is free
	free   []uint32       // places in lists
	peak   int            // the most chunks since the map was made
}

func (t *table) of(k Key) *part { return &t.parts[maphash.Bytes(t.seed, k[:])%parts] }

// holders returns who holds a chunk. single is where a list of one holder gets its room.
func (t *table) holders(k Key, single []uint32) []uint32 {
	p := t.of(k)
	value, found := p.chunks[k]
	switch {
	case !found:
		return nil
	case value&isList != 0:
		return p.lists[value&^isList]
	}
	return append(single[:0], value)
}

// add reports whether the pair is new.
func (t *table) add(k Key, holder uint32) bool {
	p := t.of(k)
	value, found := p.chunks[k]
	switch {
	case !found:
		if p.chunks == nil {
			p.chunks = map[Key]uint32{}
		}
		p.chunks[k] = holder
		p.peak = max(p.peak, len(p.chunks))
	case value == holder:
		return false
	case value&isList == 0:
		p.chunks[k] = p.newList([]uint32{min(value, holder), max(value, holder)})
	default:
		list := &p.lists[value&^isList]
		i, has := slices.BinarySearch(*list, holder)
		if has {
			return false
		}
		*list = slices.Insert(*list, i, holder)
	}
	t.pairs++
	return true
}

// remove reports whether there was such a pair.
func (t *table) remove(k Key, holder uint32) bool {
	p := t.of(k)
	value, found := p.chunks[k]
	switch {
	case !found:
		return false
	case value&isList == 0:
		if value != holder {
			return false
		}
		delete(p.chunks, k)
	default:
		list := p.lists[value&^isList]
		i, has := slices.BinarySearch(list, holder)
		if !has {
			return false
		}
		p.setList(k, value, slices.Delete(list, i, i+1))
	}
	t.pairs--
	return true
}

func (p *part) newList(list []uint32) uint32 {
	if n := len(p.free); n > 0 {
		at := p.free[n-1]
		p.free = p.free[:n-1]
		p.lists[at] = list
		return at | isList
	}
	p.lists = append(p.lists, list)
	return uint32(len(p.lists)-1) | isList
}

// setList makes list the holders of a chunk that has had more.
func (p *part) setList(k Key, value uint32, list []uint32) {
	at := value &^ isList
	if len(list) > 1 {
		if cap(list) > 8 && len(list) < cap(list)/4 {
			list = slices.Clone(list)
		}
		p.lists[at] = list
		return
	}
	p.lists[at] = nil
	p.free = append(p.free, at)
	if len(list) == 0 {
		delete(p.chunks, k)
	} else {
		p.chunks[k] = list[0]
	}
}

// sweep removes the holders of one part that have ended, and gives back what the part has too much.
func (t *table) sweep(i int, ended func(holder uint32) bool) {
	p := &t.parts[i]
	for k, value := range p.chunks {
		if value&isList == 0 {
			if ended(value) {
				delete(p.chunks, k)
				t.pairs--
			}
			continue
		}
		list := p.lists[value&^isList]
		kept := slices.DeleteFunc(list, ended)
		if n := len(list) - len(kept); n > 0 {
			t.pairs -= n
			p.setList(k, value, kept)
		}
	}
	if len(p.chunks) < p.peak/4 || len(p.free) > 64 && len(p.free) > len(p.lists)/4*3 {
		p.shrink()
	}
}

// shrink makes the map and the lists anew: a map keeps the room that it once had.
func (p *part) shrink() {
	small := part{peak: len(p.chunks)}
	if len(p.chunks) > 0 {
		small.chunks = make(map[Key]uint32, len(p.chunks))
	}
	for k, value := range p.chunks {
		if value&isList != 0 {
			value = small.newList(p.lists[value&^isList])
		}
		small.chunks[k] = value
	}
	*p = small
}

// len returns the number of chunks that have a holder, ended ones too.
func (t *table) len() (n int) {
	for i := range t.parts {
		n += len(t.parts[i].chunks)
	}
	return n
}
