// Package shmring allocates chunks in a byte slice. The slice may be shared memory; the
// package opens and maps nothing itself.
//
//   - [Ring] is vLLM's SingleWriterShmRingBuffer
//     (vllm/distributed/device_communicators/shm_object_storage.py, 0.11.1 to 0.33.0), bit
//     for bit: addresses, headers, ids, and when the ring starts over at address 0. It
//     frees chunks in the order of their allocation.
//   - [Pool] places chunks wherever there is room and frees them in any order. vLLM's readers
//     read both: they take an address modulo the size, compare the id in the header there and
//     trust the header's size.
//   - [ReadChunk] reads a chunk as such a reader does, but checks the header.
//
// All state of an allocator is private to the writer; the slice contains only headers and
// payloads. The caller decides which chunks to free. Package objstore does so by keys,
// requests and readers.
//
// The packages below this directory provide the memory: shmring/segment creates, maps and
// removes shared memory objects, with the file beside each from which the next writer takes the
// object over (a sidecar, docs/format.md); shmring/memory prepares and reports the pages.
//
// # Faults
//
// The file behind a mapping can be cut short by a peer at any moment; touching what is gone
// is a fault. Methods of Ring and Pool touch the slice first and change Go state last, so a
// caller that catches the fault finds the allocator unchanged.
//
// # Lifetimes
//
// A payload slice points into the memory given to [NewRing] or [NewPool]. It is valid until
// the chunk is freed or the memory is unmapped, whichever comes first; nothing in this
// package stops either while the slice is in use.
//
// # Concurrency
//
// A Ring or a Pool must not be used by two goroutines at a time.
package shmring
