package tier

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/ringcache/ringcache/internal/fault"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errChanged is the cause of what others have written to, or cut off, since it was stored.
var errChanged = fmt.Errorf("its bytes in memory were changed: %w", ErrCorrupt)

// summed reads bytes that others can write to, and fails in place of the last of them if they have not the
// checksum that they had when they were right. So a level never gets damage with a
// checksum of its own.
// See docs/decisions.md, "What is written back must have the checksum that memory vouches for".
type summed struct {
	key  Key
	rest []byte
	want uint32
	sum  uint32
}

// Read implements io.Reader.
func (r *summed) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := 0
	if err := fault.Guard(func() error { n = copy(p, r.rest); return nil }); err != nil {
		return 0, fmt.Errorf("tier: object %v: %w: %w", r.key, errChanged, err) // the level that reads is well
	}
	r.sum = crc32.Update(r.sum, castagnoli, p[:n]) // of the copy, which nobody else writes to
	if r.rest = r.rest[n:]; len(r.rest) == 0 && r.sum != r.want {
		return 0, fmt.Errorf("tier: object %v: %w", r.key, errChanged)
	}
	return n, nil
}

// guard does something with the bytes of an object in memory. If something has cut their segment short, it is
// an error, and not the end of the process.
func guard(k Key, do func() error) error {
	err := fault.Guard(do)
	if errors.Is(err, fault.ErrFault) {
		return fmt.Errorf("tier: the place of object %v: %w: %w", k, ErrUnavailable, err)
	}
	return err
}

// summing computes the checksum of what is written to it.
type summing struct{ sum uint32 }

// Write implements io.Writer.
func (w *summing) Write(p []byte) (int, error) {
	w.sum = crc32.Update(w.sum, castagnoli, p)
	return len(p), nil
}
