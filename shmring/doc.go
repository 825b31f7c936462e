// Package shmring holds the floor of the store: the shared memory object
// ([Segment]) and the first-in-first-out ring of chunks over any bytes
// ([Ring]).
//
// The ring is that of vLLM's SingleWriterShmRingBuffer
// (vllm/distributed/device_communicators/shm_object_storage.py, 0.11.1 to
// 0.33.0), bit for bit: addresses, headers, ids, and when the ring starts over
// at address 0. All of its state is private to the writer; a reader only takes
// an address modulo the size, compares the id in the header there and trusts
// its length, which [Ring.Access] and [ReadChunk] check first.
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
// A payload slice points into the memory given to [NewRing]. It is valid until
// the chunk is freed or the memory is unmapped, whichever comes first; nothing
// in this package stops either while the slice is in use. Package objstore
// does.
//
// # Concurrency
//
// A Ring has one owner and no lock. A Segment may be used by any number of
// goroutines.
package shmring
