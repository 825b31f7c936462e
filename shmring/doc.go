// Package shmring allocates chunks in a byte slice. The slice may be shared memory: the
// package neither opens nor maps anything.
//
//   - [Ring] is vLLM's SingleWriterShmRingBuffer
//     (vllm/distributed/device_communicators/shm_object_storage.py, 0.11.1 to 0.33.0), bit
//     for bit: addresses, headers, ids, and when the ring starts over at address 0. It
//     frees chunks in the order of their allocation.
//   - [Pool] places chunks wherever there is room and frees them in any order, for the
//     same readers: a reader takes an address modulo the size, compares the id in the
//     header there and trusts its length.
//   - [ReadChunk] is that reader's look at a chunk. It trusts nothing.
//
// All state of an allocator is private to the writer; only headers and payloads are in the
// slice. The caller decides which chunks may go: package objstore, from keys, requests and
// readers.
//
// The packages below this directory make the memory: shmring/segment creates, maps and
// removes shared memory objects, shmring/sidecar keeps the file beside a segment from which
// the next writer takes it over, and shmring/memory gets its pages into place.
//
// # Faults
//
// The file behind a mapping can be cut short by a peer at any moment; touching what is gone
// is a fault. Methods of Ring and Pool touch memory first and change their own state last,
// so a caller that catches the fault finds the allocator as before.
//
// # Lifetimes
//
// A payload slice points into the memory given to [NewRing] or [NewPool]. It is valid until
// the chunk is freed or the memory is unmapped, whichever comes first; nothing in this
// package stops either while the slice is in use.
//
// # Concurrency
//
// A Ring and a Pool have one owner and no lock.
package shmring
