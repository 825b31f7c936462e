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
