package objstore

import (
	"fmt"

	"github.com/ringcache/ringcache/serde"
)

// Stored returns what a worker will find under a handle of this lease, in the way
// of a worker: it verifies the signature with the secret that is in the segment
// now, checks id and place, and decodes the chunk. No use is counted. A handle
// that workers can't use stops their engine, so ask before it is sent.
//
// The value is a view of the segment, valid until the lease ends.
//
// Errors: [SignatureError], [StaleError], [CorruptError]; [ErrInvalid] for
// another object's handle or an ended lease; [ErrClosed].
func (l *Lease) Stored(h Handle) (serde.Value, error) {
	w := l.w
	if err := w.lock(); err != nil {
		return nil, err
	}
	over, o := l.over(), l.o
	if !over {
		l.hold() // under the same lock: Abandon must not come between
	}
	err := w.sv.seg.Hold()
	w.mu.Unlock()
	if err != nil {
		return nil, err
	}
	defer w.sv.seg.Release()
	if over || h.ID != o.id || h.Address != o.address {
		return nil, fmt.Errorf("%w: handle %d:%d is not that of the lease of key %q", ErrInvalid, h.Address, h.ID, o.key)
	}
	if w.gen.Signed {
		if err := w.sv.guard(h, func() error { return verify(w.sv.seg.Secret(), o.key, h) }); err != nil {
			return nil, err
		}
	}
	return w.sv.read(h)
}
