// Package objstore keeps vLLM's objects by key in a shared memory segment. One
// [Store] puts objects there; readers in other processes, this library's
// ([Reader]) or vLLM's, read them in place by their handles, which are [serde.Address]
// values.
//
// The bytes are those of vLLM's SingleWriterShmObjectStorage
// (vllm/distributed/device_communicators/shm_object_storage.py, 0.11.0 to
// 0.33.0). Unmodified workers read what a Store puts.
//
// # The two stores
//
// A store is a [Pool] or a [FIFO]. They differ in how long an object stays.
//
//   - A [Pool] goes by the requests of the frontend. An object stays while a [Request]
//     needs it; everything else is a cache, from which the pool evicts what is
//     cheapest to lose. It can be adopted after a crash ([AdoptPool]). A pool is the
//     store for Go frontends; its memory is managed by package shmstore.
//   - A [FIFO] follows vLLM's own rule, count for count: chunks are freed in the order
//     of allocation, once the readers have counted every use. One request that is never
//     read blocks everything behind it. It stands on shmring.Ring alone.
//
// # The way of an object
//
//	req, err := store.Begin("request-1")
//	defer req.Rollback()              // does nothing after Commit
//	h, err := req.Lookup(key)         // a known object: one more use
//	r, err := req.Reserve(key, v, o)  // a new one: fill it in place,
//	h, err = r.Commit()               // and it has a handle
//	req.Commit()                      // the handles were sent
//	    ... Reader.Get -> View.Value -> View.Release ...
//	req.Finish()                      // or req.Abort()
//
// Request.Finish makes the objects evictable: every reader has resolved its
// handles. Request.Abort puts them into quarantine, since a reader may still
// resolve them, until the read counts are complete, or a fence passes:
// [Pool.Fence], then a call that every worker executes, then Passed.
// Store.ResetReaders ends all of that at once when the engine was restarted.
//
// vLLM's own protocol, put, get_cached, touch and free_unused one by one, is in the
// sub-package upstream, for the agent and for differential tests.
//
// # The end of a store
//
// Store.Shutdown waits for what is open, Store.Abandon does not; both remove the
// segment, and so does Store.Close, which refuses while anything is open.
// Store.Detach leaves the segment for the next process. After a crash [AdoptPool]
// takes the segment of a pool over with its objects, keys and handles;
// segment.Sweep removes what nobody adopts.
//
// # Lifetimes
//
// A [View] and a [Reservation] hand out slices of the mapping. The slices are
// valid until Release, or Commit or Discard; touching them later is a memory
// fault once the store is closed. Close refuses while any is open, Shutdown
// waits, and after Abandon the memory stays until the last of them has ended;
// Store.Holders lists them. A view of a reader that has a slot in the
// sidecar ([Reader.Protected]) keeps its object. Without a slot a view does not
// stop the writer: if counts are wrong or the store was cleared, the bytes can
// change under the reader, and [View.Check] reports it after the use.
//
// A view can be used again after Release, with [Reader.GetInto]: its value is in the same
// memory then, so what the last value led to must not be used any more.
//
// A view that the program drops is released, counted and reported once the garbage
// collector finds that neither it nor a tensor of its value can be reached. That
// mends a leak; it is not a way to end views, since a slice of the segment keeps
// nothing, see [View].
//
// # What a reader remembers
//
// A [Reader] remembers the handles that it verified last, and how it decoded the last
// documents. It believes none of that by itself. A signature counts as verified only for the same
// key, handle and secret, and a decoded document only for a chunk that has the same
// metadata and document, byte for byte; everything else is looked at anew. So a
// reader shows the same as one that sees the object for the first time, also where ids
// begin anew or something else writes to the segment. The memory has 256 handles and 128 documents
// of at most 2 KiB: about 1 MiB with usual items, some 30 MiB with documents made for it.
//
// # Concurrency
//
// Stores and readers may be used by any number of goroutines. The lock is held
// for bookkeeping only; bytes are copied, and reservations filled, outside it.
// Only one store may exist for a segment.
//
// Callers that wait for room (PutOptions.Wait) stand in a line. Only the first
// one looks for room, when something was freed that it can use. In a pool, a Put that is
// refused, Stats and Fence cost the same for any number of objects.
//
// See docs/decisions.md, "Two stores, and a request as the only way in".
package objstore
