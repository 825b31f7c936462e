// Package mmcache is the cache of multimodal items that a server embeds. It makes
// each item once, however many requests want the item at the same time, keeps track of
// what the engine has, and works out what to send.
//
// It takes the place of vLLM's processor cache in the frontend (P0), in front of
// unmodified engines and workers. There are four modes; [Config.Options]
// chooses one as vLLM does:
//
//	none            every request makes its items and sends them
//	processor_only  items are kept here and sent each time
//	lru             items are kept by the engine, which is sent their keys
//	shm             items lie in shared memory; handles are sent
//
// [Open] opens a [Cache] of any mode. What only one mode can do are methods of its
// type: a cache of mode shm is a [*Shared], made by [OpenShared], with fences, adoption
// and the segment; one of mode lru is a [*Mirrored], made by [OpenMirrored].
//
// # The way of a request
//
//	cache, err := mmcache.OpenShared(options)
//	defer cache.Abandon()                     // does nothing after Shutdown
//
//	req, err := cache.Begin(ctx, "request-1", mmcache.Want{Key: key, Bytes: limit})
//	defer req.Rollback()                      // does nothing after Commit
//	item, err := req.Item(ctx, key, produce)  // produce runs once per key
//	... build the prompt, which item.Updates may change ...
//	err = req.Commit(ctx, func(b mmcache.Batch) error { return socket.Send(encode(b)) })
//	... the engine answers ...
//	req.Finish()                              // or, if the client went away, req.Abort()
//
//	fence := cache.Fence()                    // after aborts, now and then
//	... every worker has executed a call that was sent behind all requests ...
//	fence.Passed()                            // what was aborted before is free again
//
//	err = cache.Shutdown(ctx)                 // waits for the requests that are open
//
// Begin names all items of a request in the order of their prompt positions, so
// that they never evict each other. Commit works out what goes on the wire for each of
// them, and sends it in the same step: nothing can change in between. If the
// engine answers that it lacks items, [Request.Missed] sends the request again. A
// [Wire] is encoded when send asks for it: [Wire.AppendAddress] into the caller's buffer.
//
// # Lifetimes
//
// What a request uses stays until Finish or Abort, in the cache or, if it was
// not cached, on the heap: an item is never evicted under a request. Batch.Items
// and their tensors are valid until then and must not be written to. In mode shm
// the items of an aborted request stay until a [Shared.Fence] has passed.
//
// # Memory
//
// The cache holds at most Options.Capacity bytes. What requests hold besides, while
// it is made and when it could not be cached, is bounded by Options.InFlight:
// Begin waits until the bounds that a request gives for its items fit. It is all
// or nothing, so requests can't wait for each other. What is cached needs none, and
// a request that needs none never waits.
//
// Requests get their memory in the order in which they came, but a later one that
// fits may pass those that wait: always, if the first in line will have room beside
// what later ones hold; else only until InFlight bytes have passed the first in
// line so. A small request is not stuck behind a large one, and a large one does not
// starve. When the context of a call ends, a [WaitError] names what the call waited for.
//
// # The end
//
// Every request has to be ended, and every hold released: [Cache.Close] fails while
// one is open, and [Cache.Holders] lists them. [Cache.Shutdown] takes nothing new and
// waits. [Cache.Abandon] ends everything by force; without either of them the segment
// of mode shm outlives the process, for a next one to adopt or for ringcache sweep.
//
// # Errors
//
// An argument that makes no sense is an [fs.ErrInvalid], a call of a cache that is closed
// or shutting down an [fs.ErrClosed], and a call of a request that has ended an
// [ErrEnded]. [TooLargeError], [WaitError] and [BusyError] have types of their own. The
// errors of the segment, and why an item was not cached (Item.Refused), are those of
// package objstore.
//
// # Concurrency
//
// A Cache may be used by any number of goroutines, and so may a Request as far
// as Item goes. No goroutine is started. While a send runs everything else works,
// also from within it; only in mode lru other requests wait until it has returned, so a
// send must not send another one there.
//
// # Cost
//
// In mode shm a request for up to four items that are cached is one allocation, beside
// those of the store: three in all for one or two items. In mode processor_only it is two.
// Nothing is kept for another request, so that one which is used after
// its end fails with its own error. Channels, and what watches a context, are made where a call
// has to wait.
//
// # Caveats
//
// With the first-in-first-out policy that upstream has, an object in shared
// memory that was sent to the engine and never read, since the request was
// aborted, blocks those behind it, as it does upstream. In mode lru an engine
// older than vLLM 0.28 does not survive a miss.
package mmcache
