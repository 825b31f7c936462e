package ringrules

// Ring is the allocator to be tested. A test calls it from one goroutine.
//
// A chunk is a header of 8 bytes and a payload behind it, in one piece: the id of the chunk as
// uint32, then the bytes of the chunk with its header as uint32, both little-endian. It lies at
// its address modulo len(Bytes()), at any byte, and not across the end.
type Ring interface {
	// Alloc allocates a chunk with a payload of size bytes and writes its header. The test
	// fills the payload. An error, whatever it is, means that there is no such chunk and that
	// nothing changed: sizes can be 0, negative, or larger than any ring.
	Alloc(size int) (address uint64, id uint32, err error)
	// Free frees chunks with these ids, and returns the ids of those that it freed in the order in
	// which it did. A ring that frees in order stops at the oldest chunk that is not among ids.
	// Ids may be there that no live chunk has; they are ignored. If the ids are those of all live
	// chunks, all of them are freed.
	Free(ids []uint32) (freed []uint32)
	// Live returns the address of each live chunk by its id.
	Live() map[uint32]uint64
	// State returns the position of the ring.
	State() State
	// Bytes returns the memory in which the chunks are; always the same.
	Bytes() []byte
}

// State is the position of a ring.
type State struct {
	// Start and End are the addresses of the oldest chunk and of the end of the newest. The
	// invariant placement compares them, and refusal that they stay; 0 is fine for both.
	Start, End uint64
	// IDStart is the id of the oldest live chunk, or IDEnd if there is none; IDEnd is the id of
	// the next chunk to be allocated. The invariant id-window looks at them.
	IDStart, IDEnd uint32
}

// Clearer is a Ring that can free everything at once. Without it, the test calls Free.
type Clearer interface{ Clear() }

// Publisher is a Ring whose headers are complete only after Publish, which the test calls when
// it has filled the payload.
type Publisher interface{ Publish(id uint32) }

// StoreObserver is a Ring that calls f after each of its stores to Bytes. Crash of ringtest then sees
// the memory as it is between any two of them.
type StoreObserver interface{ OnStore(f func()) }

// New makes an empty ring of size bytes. Its first chunk gets the id firstID, so that the tests come
// to the end of the ids; a ring that can't do that ignores it. New may return nil for a size that the
// ring does not support.
type New func(size int, firstID uint32) Ring
