// Package objstore keeps objects by key in a shared memory segment: one
// [Writer] puts them there, readers in other processes, ours ([Reader]) or
// vLLM's, look at them by [Handle].
//
// It is vLLM's SingleWriterShmObjectStorage
// (vllm/distributed/device_communicators/shm_object_storage.py, 0.11.0 to
// 0.33.0), byte for byte. With the policy [FIFO] it is that count for count too:
// chunks are freed first in, first out, once every issued use was read by every
// reader. The default is [Pool], which keeps objects by requests. What upstream gets wrong inside one process is right here: a
// put that fails leaves nothing behind, every offset is checked, a read is
// checked again after use.
//
// # The way of an object
//
//	Put, or Reserve -> fill in place -> Commit    one use is issued with the handle
//	Lookup                                        one more use
//	    ... the handle travels in a request ...
//	Reader.Get -> use View.Value -> View.Release  one read is counted
//	    ... reads >= uses * readers: the chunk may be freed
//	FreeUnused, called by a Put that finds no room
//
// # Lifetimes
//
// A [View] and a [Reservation] hand out slices of the mapping. They are valid
// until Release, or Commit or Discard; touching them later is a memory fault
// once the store is closed. Close refuses while any is open. A view does not
// stop the writer: if counts are wrong or the store was cleared, the bytes can
// change under the reader. [View.Check] tells, after the use.
//
// # Concurrency
//
// Writer and Reader may be used by any number of goroutines. The lock is held
// for bookkeeping only; bytes are copied, and reservations filled, outside it.
// Only one Writer may exist for a segment.
//
// Callers of [Writer.PutContext] that wait for room stand in a line. Only the first
// one looks for room, when something was freed that it can use. With the policy
// Pool, a Put that is refused, [Writer.Stats] and [Writer.Fence] cost the same for any
// number of objects.
package objstore
