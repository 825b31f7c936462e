// Package objstore keeps objects by key in a shared memory segment. One
// [Writer] puts objects there; readers in other processes, this library's
// ([Reader]) or vLLM's, read them in place by [Handle].
//
// The bytes are those of vLLM's SingleWriterShmObjectStorage
// (vllm/distributed/device_communicators/shm_object_storage.py, 0.11.0 to
// 0.33.0). Unmodified workers read what a Writer puts.
//
// # Policies
//
// The policy decides how long an object stays.
//
//   - [Pool], the default, goes by what the frontend knows. An object stays
//     while a [Request] needs it; everything else is a cache, from which the
//     writer evicts what is cheapest to lose. It can be adopted after a crash.
//   - [FIFO] is vLLM's own rule, count for count: chunks are freed in the order
//     of allocation, once the readers have counted every issued use. One
//     request that is never read blocks everything behind it.
//
// # The way of an object
//
//	req, err := w.Begin("request-1")
//	defer req.Rollback()             // does nothing after Commit
//	h, err := req.Lookup(key)        // a known object: one more use
//	r, err := req.Reserve(key, v)    // a new one: fill it in place,
//	h, err = r.Commit()              // and it has a handle
//	req.Commit()                     // the handles were sent
//	    ... Reader.Get -> View.Value -> View.Release ...
//	req.Finish()                     // or req.Abort()
//
// [Request.Finish] makes the objects evictable: every reader has resolved its
// handles. [Request.Abort] puts them into quarantine, since a reader may still
// resolve them, until the read counts are complete, or a fence passes:
// [Writer.Fence], then a call that every worker executes, then [Fence.Passed].
// [Writer.ResetReaders] ends all of that at once when the engine was restarted.
//
// [Writer.Put], [Writer.Lookup] and [Writer.Lease] are the steps below a
// Request. A handle that belongs to no request is in quarantine from the start.
//
// # The end of a writer
//
// [Writer.Shutdown] waits for what is open, [Writer.Abandon] does not; both
// remove the segment, and so does [Writer.Close], which refuses while anything
// is open. [Writer.Detach] leaves the segment for the next process. After a
// crash [Adopt] takes the segment over with its objects, keys and handles;
// segment.Sweep removes what nobody adopts.
//
// # Lifetimes
//
// A [View] and a [Reservation] hand out slices of the mapping. The slices are
// valid until Release, or Commit or Discard; touching them later is a memory
// fault once the store is closed. Close refuses while any is open, Shutdown
// waits, and after Abandon the memory stays until the last of them has ended;
// [Writer.Holders] lists them. A view of a reader that has a slot in the
// sidecar ([Reader.Protected]) keeps its object. Without a slot a view does not
// stop the writer: if counts are wrong or the store was cleared, the bytes can
// change under the reader, and [View.Check] reports it after the use.
//
// A view that the program drops is released, counted and reported once the garbage
// collector finds that neither it nor a tensor of its value can be reached. That
// mends a leak; it is not a way to end views, since a slice of the segment keeps
// nothing, see [View].
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
