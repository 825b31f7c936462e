package payload

import (
	"fmt"
	"strconv"

	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
)

// Verify compares a chunk in a ring with its entry in the table of a sidecar of a layout, and
// returns its description. plain reports that nobody counts the reads of the
// payload. A difference is a [*shmring.CorruptError].
func Verify(ring []byte, layout int, r sidecar.Record, plain bool) (d Description, err error) {
	c, err := shmring.ReadChunk(ring, r.Address)
	if err != nil {
		return d, err
	}
	at := r.Address % uint64(len(ring))
	bad := func(offset int, what string, got int64, want string) (Description, error) {
		return d, &shmring.CorruptError{Offset: at + uint64(offset), What: what, Got: got, Want: want}
	}
	if c.ID != r.ID && c.ID != shmring.DeadID && c.ID != shmring.GoneID {
		return bad(0, "id of the chunk", int64(c.ID), fmt.Sprintf("%d, or the dead or the gone id", r.ID))
	}
	if c.Size != r.Size {
		return bad(4, "size of the chunk", int64(c.Size), strconv.Itoa(r.Size))
	}
	from, n, least := r.DescriptionOffset, r.DescriptionLength, MinOffset(plain)
	if from < least || from > len(c.Payload) {
		return bad(0, "begin of the description", int64(from), fmt.Sprintf("%d to %d", least, len(c.Payload)))
	}
	if n < 0 || n > len(c.Payload)-from {
		return bad(shmring.HeaderSize+from, "bytes of the description", int64(n), fmt.Sprintf("at most %d", len(c.Payload)-from))
	}
	if sum := sidecar.PayloadSum(layout, c.Payload, from+n, r.Full); sum != r.Sum {
		return bad(shmring.HeaderSize, "checksum of the payload", int64(sum), strconv.FormatUint(uint64(r.Sum), 10))
	}
	parsed, err := Parse(c.Payload[from : from+n])
	if err != nil {
		return bad(shmring.HeaderSize+from, "description", int64(n), "bytes of a cost, a key, a tenant and a note")
	}
	return parsed, nil
}
