package payload

import (
	"fmt"
	"strconv"

	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
)

// Locate compares a chunk in a ring with its entry in the table of a sidecar, and returns what is behind
// its header, and the description in it. plain reports that nobody counts the reads of the payload. A
// difference is a [*shmring.CorruptError].
func Locate(ring []byte, r sidecar.Record, plain bool) (payload, description []byte, err error) {
	c, err := shmring.ReadChunk(ring, r.Address)
	if err != nil {
		return nil, nil, err
	}
	from, n, least := r.DescriptionOffset, r.DescriptionLength, MinOffset(plain)
	switch {
	case c.ID != r.ID && c.ID != shmring.DeadID && c.ID != shmring.GoneID:
		err = differs(ring, r, 0, "id of the chunk", int64(c.ID), fmt.Sprintf("%d, or the dead or the gone id", r.ID))
	case c.Size != r.Size:
		err = differs(ring, r, 4, "size of the chunk", int64(c.Size), strconv.Itoa(r.Size))
	case from < least || from > len(c.Payload):
		err = differs(ring, r, 0, "begin of the description", int64(from), fmt.Sprintf("%d to %d",
			least, len(c.Payload)))
	case n < 0 || n > len(c.Payload)-from:
		err = differs(ring, r, shmring.HeaderSize+from, "bytes of the description", int64(n), fmt.Sprintf("at most %d",
			len(c.Payload)-from))
	default:
		return c.Payload, c.Payload[from : from+n], nil
	}
	return nil, nil, err
}

// differs is an error about bytes from an offset on in the chunk of an entry.
func differs(ring []byte, r sidecar.Record, offset int, what string, got int64, want string) error {
	at := r.Address%uint64(len(ring)) + uint64(offset)
	return &shmring.CorruptError{Offset: at, What: what, Got: got, Want: want}
}

// Verify is Locate, and compares the payload with the checksum of its entry. It returns the description.
func Verify(ring []byte, r sidecar.Record, plain bool) (d Description, err error) {
	payload, description, err := Locate(ring, r, plain)
	if err != nil {
		return d, err
	}
	if sum := sidecar.PayloadSum(payload, r.DescriptionOffset+r.DescriptionLength, r.Full); sum != r.Sum {
		return d, differs(ring, r, shmring.HeaderSize, "checksum of the payload", int64(sum),
			strconv.FormatUint(uint64(r.Sum), 10))
	}
	if d, err = Parse(description); err != nil {
		err = differs(ring, r, shmring.HeaderSize+r.DescriptionOffset, "description", int64(len(description)),
			"bytes of a cost, a key, a tenant and a note")
	}
	return d, err
}
