package shmstore

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
)

// minDescriptionOffset is the bytes of the payload that no checksum covers.
const minDescriptionOffset = 4

// Verify compares a chunk in a ring with its entry in the table of a sidecar of a layout, and
// reads its description, as [Adopt] does. opaque reports that nobody counts the reads of the
// payload. A difference is a [*shmring.CorruptError]. It is for the packages of this module.
func Verify(ring []byte, layout int, r sidecar.Record, opaque bool) error {
	return (&Object{chunk: r}).verify(ring, layout, opaque)
}

// verify compares an object with its chunk in a ring, and reads its description.
func (o *Object) verify(ring []byte, layout int, opaque bool) error {
	r := o.chunk
	c, err := shmring.ReadChunk(ring, r.Address)
	if err != nil {
		return err
	}
	at := r.Address % uint64(len(ring))
	bad := func(offset int, what string, got int64, want string) error {
		return &shmring.CorruptError{Offset: at + uint64(offset), What: what, Got: got, Want: want}
	}
	if c.ID != r.ID && c.ID != shmring.DeadID && c.ID != shmring.GoneID {
		return bad(0, "id of the chunk", int64(c.ID), fmt.Sprintf("%d, or the dead or the gone id", r.ID))
	}
	if c.Size != r.Size {
		return bad(4, "size of the chunk", int64(c.Size), strconv.Itoa(r.Size))
	}
	least := minDescriptionOffset
	if opaque {
		least = plainLead - shmring.HeaderSize
	}
	from, n := r.DescriptionOffset, r.DescriptionLength
	if from < least || from > len(c.Payload) {
		return bad(0, "begin of the description", int64(from), fmt.Sprintf("%d to %d", least, len(c.Payload)))
	}
	if n < 0 || n > len(c.Payload)-from {
		return bad(shmring.HeaderSize+from, "bytes of the description", int64(n), fmt.Sprintf("at most %d", len(c.Payload)-from))
	}
	if sum := sidecar.PayloadSum(layout, c.Payload, from+n, r.Full); sum != r.Sum {
		return bad(shmring.HeaderSize, "checksum of the payload", int64(sum), strconv.FormatUint(uint64(r.Sum), 10))
	}
	if o.parseDescription(c.Payload[from:from+n]) != nil {
		return bad(shmring.HeaderSize+from, "description", int64(n), "bytes of a cost, a key, a tenant and a note")
	}
	return nil
}

// Room returns the pool that a sidecar describes, empty and over the ring, for its rules of where
// chunks can be. It is for the packages of this module.
func Room(ring []byte, o sidecar.Options, opaque bool) *shmring.Pool {
	p := Options{DataOffset: o.DataOffset}
	if at := strings.LastIndexByte(o.Generation, '@'); at >= 0 && opaque {
		p.Align, _ = strconv.Atoi(o.Generation[at+1:])
	}
	p.Size = len(ring)
	if p.validate() != nil {
		p.Align = 0 // the format is another's
	}
	if !opaque {
		p.Payloads = func(*Store) PayloadOwner { return nil }
	}
	return shmring.NewPool(ring, p.pool())
}
