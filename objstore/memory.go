package objstore

import (
	"crypto/subtle"
	"strings"
	"sync/atomic"

	"github.com/ringcache/ringcache/serde"
)

// memory is what a reader remembers of objects that it looked at: which signatures it has
// verified, and what it has decoded. Both are results of functions, kept with all that
// they depend on, and every look compares that with what is in the segment. So a reader
// believes nothing that it would not find if it looked for the first time: an id that
// means another object now, or bytes that somebody changed, give what is there.
//
// The places are fixed in number, and hold what came last. Any number of goroutines may
// use a memory.
type memory struct {
	sights  [256]atomic.Pointer[sight]   // by handle
	layouts [128]atomic.Pointer[decoded] // by the length of the payload, two places for each
}

// sight is a handle that was verified, and the layout of its object. It does not change.
type sight struct {
	handle serde.Address
	key    string
	secret [secretSize]byte // under which the signature is right
	layout *decoded
}

func (m *memory) place(h *serde.Address) *atomic.Pointer[sight] {
	return &m.sights[mix(h.Address^uint64(h.ID)<<32)%uint64(len(m.sights))]
}

// sight returns what was seen under a handle, nil if nothing is remembered.
func (m *memory) sight(h *serde.Address) *sight {
	if s := m.place(h).Load(); s != nil && s.handle.Address == h.Address && s.handle.ID == h.ID {
		return s
	}
	return nil
}

// verified reports whether the signature of the handle was found right for the key under
// a secret. As fresh verification, it takes the same time for every wrong signature.
func (s *sight) verified(secret []byte, key string, h *serde.Address) bool {
	return s != nil && s.key == key && s.secret == [secretSize]byte(secret) &&
		subtle.ConstantTimeCompare(s.handle.Signature[:], h.Signature[:]) == 1
}

// decode returns the layout of a chunk and its data. It is called in a guard.
func (m *memory) decode(c *chunks, h *serde.Address, payload []byte) (*decoded, []byte, error) {
	at := mix(uint64(len(payload))) % uint64(len(m.layouts))
	for _, at := range [2]uint64{at, at ^ 1} {
		if l, data := m.layouts[at].Load().of(payload); l != nil {
			return l, data, nil
		}
	}
	if l, data := rememberable(payload, c.options); l != nil {
		m.layouts[at^1].Store(m.layouts[at].Swap(l)) // of two of the same length the older one goes
		return l, data, nil
	}
	v, data, err := c.decode(h, payload)
	if err != nil {
		return nil, nil, err
	}
	return newDecoded(v, data), data, nil
}

// addSight remembers a handle that was verified for a key.
func (m *memory) addSight(secret []byte, key string, h *serde.Address, l *decoded) {
	if len(key) > maxKey || !l.remembered() {
		return
	}
	s := &sight{handle: *h, key: strings.Clone(key), layout: l}
	copy(s.secret[:], secret)
	m.place(h).Store(s)
}

// mix spreads the bits of a number, whose lowest ones are often 0.
func mix(n uint64) uint64 { return n * 0x9E3779B97F4A7C15 >> 32 }
