package memory

import (
	"iter"

	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmstore"
	"github.com/ringcache/ringcache/tier"
)

// uncounted is the owner of payloads whose reads nobody counts. Payloads with an owner have the description
// of an object in front of their bytes, which this level needs: the checksum covers the description and what
// is in front of it in full, and takes samples of what is behind.
// See docs/decisions.md, "A memory level has the description of an object in front of its bytes".
type uncounted struct{}

func (uncounted) NewObject() *shmstore.Object               { return new(shmstore.Object) }
func (uncounted) Commit(*shmstore.Object)                   {}
func (uncounted) Usable(*shmstore.Object) bool              { return true }
func (uncounted) Use(*shmstore.Object, int) (int64, error)  { return 0, nil }
func (uncounted) Sent(*shmstore.Object, int64)              {}
func (uncounted) TakeBack(*shmstore.Object, int, int64)     {}
func (uncounted) Unread(_ *shmstore.Object, late bool) bool { return !late }
func (uncounted) Idle(*shmstore.Object)                     {}
func (uncounted) Word(*shmstore.Object) uint32              { return 0 }
func (uncounted) Restore(*shmstore.Object, uint32, bool)    {}
func (uncounted) Reset(int, iter.Seq[*shmstore.Object])     {}
func (uncounted) Check(*shmstore.Object) error              { return nil }

// lead is the bytes of 0 between the header of a chunk and the store's description, as in a store without
// an owner of payloads.
const lead = 64 - shmring.HeaderSize

// putOptions are those of an object, whose bytes are the last of its chunk, at a multiple of 64 in the segment.
func putOptions(o *tier.Object) shmstore.PutOptions {
	note := appendNote(make([]byte, 0, 20+len(o.Parent)+len(o.Tenant)+len(o.Note)), o)
	return shmstore.PutOptions{Tenant: o.Tenant, Cost: o.Cost, Note: note, Front: lead}
}

// tail returns the bytes of an object, of those of its chunk.
func tail(chunk []byte, size int64) []byte {
	return chunk[len(chunk)-int(size) : len(chunk) : len(chunk)]
}

// offset returns where the bytes of an object begin in the segment.
func offset(h shmstore.Handle, size int64) uint64 { return h.Offset + h.Length - uint64(size) }
