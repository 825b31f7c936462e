// Package shmring holds shared memory segments and the allocators of chunks in
// them.
//
//   - [Segment] is a mapped shared memory object: [Create] makes one, [Attach]
//     maps one that exists, [Adopt] takes over one whose writer is gone.
//   - [Control] is the sidecar of a segment, the file <name>.ctl: who owns the
//     segment, which objects are in it, which of them readers look at. A
//     writer holds a lock on it for life. [Sweep] lists segments whose writer is
//     gone, and removes them.
//   - [Ring] and [Pool] place chunks in any bytes, shared or not.
//
// The Ring is that of vLLM's SingleWriterShmRingBuffer
// (vllm/distributed/device_communicators/shm_object_storage.py, 0.11.1 to
// 0.33.0), bit for bit: addresses, headers, ids, and when the ring starts over
// at address 0. The Pool places chunks wherever there is room, for the same
// readers: a reader takes an address modulo the size, compares the id in the
// header there and trusts its length, which [Ring.Access] and [ReadChunk]
// check first. All state of an allocator is private to the writer.
//
// Which chunks may go is decided by the caller: package objstore knows keys,
// requests and readers.
//
// Beside it are the pool of chunks ([Pool]), which a stock reader can't tell from a
// ring, and the sidecar of a segment ([Control]), by which a writer that was killed is
// followed by another ([Adopt]) or cleaned up after ([Sweep]). docs/format.md says
// which words of a sidecar are protected by what.
//
// # Faults
//
// The file behind a mapping can be cut short by a peer at any moment; touching what is
// gone is a fault. Methods of Ring, Pool, Control and Slot touch memory first and
// change their own state last, so a caller that catches the fault (package objstore
// does, and makes it a [FaultError] by [Segment.Explain]) finds them as before.
//
// # Lifetimes
//
// A payload slice points into the memory given to [NewRing] or [NewPool]. It is
// valid until the chunk is freed or the memory is unmapped, whichever comes
// first; nothing in this package stops either while the slice is in use.
// Package objstore does.
//
// # Concurrency
//
// A Ring and a Pool have one owner and no lock. A Segment may be used by any
// number of goroutines, and so may a Control, but for its table of objects,
// which needs the writer's lock.
package shmring
