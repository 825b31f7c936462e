// Package shmstore keeps payloads by key, any bytes, in a shared memory segment. A payload is
// bytes: what they mean is a matter of who puts them. Another process finds a payload
// by a [Handle], its offset and length in the segment, and looks at it in place.
//
// Package objstore keeps vLLM's objects in such a store, by a [PayloadOwner] that counts
// their reads. Without one the payloads are plain: nobody counts reads, and what readers still
// need is known from requests, fences and reader slots alone.
//
// # The way of a payload
//
//	req, err := store.Begin(shmstore.RequestOptions{ID: "connection-7"})
//	defer req.Rollback()                     // does nothing after Commit
//	o, err := req.Lookup(key, 1)             // a known payload: it stays
//	res, err := req.Reserve(key, n, options) // a new one: fill res.Bytes(),
//	o, err = res.Commit(1)                   // and it is there
//	req.Commit()                             // o.Handle() was sent
//	    ... Reader.Get -> View.Bytes -> View.Release ...
//	req.Finish()                             // or req.Abort()
//
// A [Request] has an owner, named by its id: a request to an engine, a connection of a
// daemon. What it has stays until it
// ends: everything else is a cache, from which the store evicts what is cheapest to
// lose, by the time that it takes to make it again (PutOptions.Cost, a hint) and by how payloads
// came back so far.
//
// [Request.Finish] makes payloads evictable: every reader is done with them.
// [Request.Abort] puts them into quarantine, since a reader may still come, until a fence
// passes: [Store.Fence], then something that every reader answers behind everything sent
// before, then [Fence.Passed]. [Store.ResetReaders] ends all of that when the readers
// were restarted.
//
// Quarantine of plain payloads also ends by time alone, after Options.QuarantineTTL. Nothing
// but a slot shows then that a reader is still inside, and a [Reader] has one. Whoever has
// readers without a slot sets QuarantineTTL below 0, which is never, and passes fences.
//
// [Store.Pin] keeps a payload without a request. Tenants have quotas (Options.Quotas).
// Callers may wait for room, in the order in which they came (PutOptions.Wait).
//
// # Errors
//
// Errors match [ErrNotFound], [ErrKeyExists], [ErrStale], [ErrEnded]; shmring.ErrFull,
// shmring.ErrTooLarge and shmring.ErrCorrupt; segment.ErrBusy and the other errors of segments;
// fs.ErrInvalid and fs.ErrClosed. [FullError], [TooLargeError], [CorruptError], [BusyError] and
// [KeyError] contain more.
//
// # Crashes
//
// A sidecar beside the segment, <name>.ctl, has the table of payloads, see
// docs/format.md. If the process is killed, at any instruction, [Adopt] takes the segment
// over: payloads whose checksum is right stay, with keys and notes; what a request of the
// dead process may still need is in quarantine. A [Reader] that is killed holds nothing:
// its slot in the sidecar is free.
//
// # The life of an object
//
// Three parts of the store deal with it, each of which has a page at the top of its file: space
// (space.go) has room for it and evicts it, lifetime (lifetime.go) decides how long it stays, and
// durability (durability.go) writes what other processes see. At each step, this is what the part does,
// and what Adopt finds if the writer is killed in the middle of the step or behind it:
//
//	step            part        what it does                     after a kill
//	Reserve         space       evicts others, takes a chunk     free room, unless its owner saved
//	                lifetime    makes the key pending            Reservation.Chunk: then it stays his
//	Commit          durability  writes the entry, then the id    without the entry as at Reserve; with it
//	                lifetime    makes the key mean the object    the object is there. Of two objects
//	                                                             of one key the newer one has it
//	Commit, Lookup  lifetime    counts a lease                   nobody has the handle yet
//	                durability  writes that it is in use         the object is in quarantine
//	Request.Finish  lifetime    ends the lease                   in quarantine: more cautious than true
//	                space       counts it as evictable
//	                durability  writes that it is not in use     a cached object
//	Request.Abort   lifetime    puts it into quarantine          in quarantine, until a fence of the
//	                                                             next writer passes
//	Pin             lifetime    keeps it                         the pin is gone
//	Remove          lifetime    frees the key                    the key is there again
//	                durability  writes that it is retired        no key; it goes when nobody needs it
//	eviction        durability  takes the id, looks for readers  it is there again
//	                durability  drops the entry                  free room
//	                space       frees the chunk, wakes waiters
//	                lifetime    forgets it
//
// Before the entry is written nobody has a handle, and a handle is only given out when the table says so:
// no kill makes a handle lead to other bytes than those it was given out for. Clear is Remove of one key after
// the other. Rollback and Drop are as Finish.
//
// # The end of a store
//
// [Store.Close] refuses while anything is open, [Store.Shutdown] waits, [Store.Abandon]
// does neither; all of them remove the segment. [Store.Detach] leaves it to be adopted. So does
// [Store.Yield], at once and whatever is open: what requests have is in quarantine then, as after a kill.
// [Store.Holders] lists what is open.
//
// # Concurrency
//
// Any number of goroutines may use a Store. It has one lock, which its methods and those of Request,
// Reservation and Fence take; the three parts share it, and never take it. It is held for bookkeeping
// only: payloads are copied, summed, and filled outside it. One process at a time may
// have a segment's store, any number its readers.
//
// See docs/decisions.md, "Finish frees, Abort waits".
// See docs/decisions.md, "A store of bytes is under the store of items".
// See docs/decisions.md, "Memory first, tables last".
package shmstore
