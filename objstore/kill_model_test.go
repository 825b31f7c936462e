package objstore

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/ringcache/ringcache/shmstore"
)

// killModel is what the parent gathers from what writers printed: what must be in the
// segment, whoever was killed.
type killModel struct {
	rereads bool
	handles []*killIssued     // in flight
	index   map[string]uint32 // ids
	maxID   int64             // of all that were issued
	floor   int64             // of those of earlier writers
	ids     map[uint32]bool   // that were issued
	fence   int               // the next one's number

	// Since the last adoption:
	adoption  *shmstore.Adoption // the writer's
	list      map[string]uint32  // its index, as far as it was told
	listLen   int
	lost      int    // so many objects can be gone without being told
	unknown   int    // objects can have become visible without being told
	gone      string // the last key that went
	back      string // the key that can be there although it was said to go
	mayBeGone bool   // the last one may have detached
	epoch     uint64
}

// killIssued is a handle in flight. Until it is not, its object must stay.
type killIssued struct {
	killHandle
	request string
	sent    bool
	aborted bool
	fence   int  // that ends it if it is aborted
	counted bool // its read
	ended   bool
}

// newKillModel is that of a segment that was just made, and detached.
func newKillModel(rereads bool) *killModel {
	return &killModel{rereads: rereads, index: map[string]uint32{}, ids: map[uint32]bool{}, maxID: -1, floor: -1, mayBeGone: true, epoch: 1}
}

// hear takes a line that a writer said. The error is what must not be.
func (m *killModel) hear(line string) (issued *killIssued, err error) {
	kind, rest, _ := strings.Cut(line, " ")
	word, tail, _ := strings.Cut(rest, " ")
	switch kind {
	case "P":
		return m.issue(word, tail)
	case "S":
		m.each(func(h *killIssued) { h.sent = h.sent || h.request == word })
	case "R":
		m.each(func(h *killIssued) { h.counted = h.counted || h.request == word })
	case "X":
		m.each(func(h *killIssued) {
			switch {
			case h.request != word || h.aborted:
			case tail == "abort":
				h.aborted, h.fence = true, m.fence
			default:
				h.ended = true
			}
		})
	case "F":
		m.fence++
	case "Q":
		var n int
		if n, err = number(word); err == nil {
			m.each(func(h *killIssued) { h.ended = h.ended || h.aborted && h.fence <= n })
		}
	case "Z":
		m.each(func(h *killIssued) { h.ended = h.ended || h.sent || h.aborted })
	case "+", "-", "I":
		id, e := number(tail)
		switch {
		case e != nil:
			return nil, e
		case kind == "+":
			m.index[word] = uint32(id)
		case kind == "I":
			m.list[word] = uint32(id)
			if len(m.list) == m.listLen {
				err = m.compare(m.list)
			}
		case m.index[word] != uint32(id):
			err = fmt.Errorf("key %s goes with id %d, it had %d", word, id, m.index[word])
		default:
			delete(m.index, word)
			m.gone = word
		}
	case "A":
		var a shmstore.Adoption
		var n int
		if _, err = fmt.Sscanf(rest, "%d %d %d %t %d %d", &a.Kept, &a.Dropped, &a.InUse, &a.Clean, &a.Epoch, &n); err == nil {
			m.adoption, m.list, m.listLen = &a, map[string]uint32{}, n
			if err = m.adopted(a); err == nil && n == 0 {
				err = m.compare(m.list)
			}
		}
	case "D": // is followed by an adoption, as a kill is
		m.mayBeGone = true
		m.inherit()
	case "H":
	default:
		err = errors.New(line)
	}
	m.sweep()
	return nil, err
}

func number(s string) (n int, err error) {
	_, err = fmt.Sscan(s, &n)
	return n, err
}

func (m *killModel) each(f func(*killIssued)) {
	for _, h := range m.handles {
		f(h)
	}
}

// sweep forgets the handles whose objects may go.
func (m *killModel) sweep() {
	n := 0
	for _, h := range m.handles {
		// Where addresses are read once, complete counts end a quarantine.
		h.ended = h.ended || h.aborted && h.counted && !m.rereads
		if !h.ended {
			m.handles[n] = h
			n++
		}
	}
	clear(m.handles[n:])
	m.handles = m.handles[:n]
}

func (m *killModel) issue(request, rest string) (*killIssued, error) {
	isNew, handle, _ := strings.Cut(rest, " ")
	h, err := parseHandle(handle)
	if err != nil {
		return nil, err
	}
	if isNew == "true" {
		if int64(h.h.ID) <= m.floor || m.ids[h.h.ID] {
			return nil, fmt.Errorf("%v is new, but the last writer gave out ids up to %d", h, m.floor)
		}
		m.ids[h.h.ID] = true
		m.maxID = max(m.maxID, int64(h.h.ID))
	}
	i := &killIssued{killHandle: h, request: request}
	if request == "-" { // nobody's: as if it were aborted at once
		i.aborted, i.fence = true, m.fence
	}
	m.handles = append(m.handles, i)
	return i, nil
}

// died is the end of a writer that was killed at a place.
func (m *killModel) died(place string) {
	switch place {
	case "sidecar.drop.end", "pool.drop":
		m.lost++
	case "sidecar.put.end", "pool.published":
		m.unknown++
	case "sidecar.use.begin":
		m.back = m.gone // it was to be retired
	case anywhere:
		m.lost++
		m.unknown++
		m.back = m.gone
	}
	m.mayBeGone = m.mayBeGone || m.adoption == nil || strings.HasPrefix(place, "sidecar.state") || place == anywhere
	m.adoption = nil
	m.inherit()
}

// inherit makes every handle one that the next writer knows only as in use.
func (m *killModel) inherit() {
	m.fence, m.floor = 0, m.maxID
	m.each(func(h *killIssued) { h.aborted, h.fence, h.request = true, 0, "-" })
	m.sweep()
}

// adopted judges an adoption.
func (m *killModel) adopted(a shmstore.Adoption) error {
	ids := map[uint32]bool{}
	m.each(func(h *killIssued) { ids[h.h.ID] = true })
	switch {
	case a.Epoch <= m.epoch:
		return fmt.Errorf("epoch %d after %d", a.Epoch, m.epoch)
	case a.Clean && !m.mayBeGone:
		return errors.New("it is clean, but its writer was killed")
	case a.Dropped > 0:
		return fmt.Errorf("%d objects had to be dropped", a.Dropped) // wherever a writer is killed, its entries are whole
	case a.InUse < len(ids):
		return fmt.Errorf("%d objects are in use, but %d have handles in flight", a.InUse, len(ids))
	}
	m.epoch = a.Epoch
	m.mayBeGone = false
	return nil
}

// compare compares the index of an adopted segment with what it must be.
func (m *killModel) compare(index map[string]uint32) error {
	for k, id := range m.index {
		got, ok := index[k]
		if !ok {
			m.lost--
		}
		if ok && got != id || m.lost < 0 {
			return fmt.Errorf("key %s had id %d and has %d now (%v)", k, id, got, ok)
		}
	}
	for k, id := range index {
		if _, ok := m.index[k]; !ok && k != m.back {
			if m.unknown--; m.unknown < 0 {
				return fmt.Errorf("key %s, id %d, was never told of", k, id)
			}
		}
	}
	m.index = maps.Clone(index)
	m.lost, m.unknown, m.back = 0, 0, ""
	return nil
}
