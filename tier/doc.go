// Package tier keeps objects, which are bytes by key, in levels: memory, disk, shared folders, Redis, S3.
//
// A [Level] is one of them. Package tier/memory is a shared segment, tier/disk a folder, tier/folder one that several
// hosts share, tier/redis a server, tier/s3 a bucket. All of them pass the tests of package fuzz/tiertest, which a level
// of your own can run, too.
//
// A [Store] puts levels above each other: a [MemoryLevel], in which other processes read and write in place,
// and lower levels ([Lower]), fastest first. [Store.Get] reads from the fastest level that has an object. A
// [Lease] of the store pins objects in memory: ErrPending says that lower levels are being asked for an
// object, until it was fetched or found missing, and nobody waits within a call for that. [Store.Prefetch]
// fetches ahead. What is stored is written to the lower levels at once or in the background, and
// [Store.Drain] waits for that. [Store.Close] ends a store, and leaves its levels open.
//
// A level that is away or damaged costs what only it has. It fails nothing that another level can serve.
//
// An object never changes: equal keys mean equal bytes, so no order of writes is wrong. An object may name its
// parent, as a chunk of a prompt names the chunk in front of it. A child without its parent is worth little, so
// memory evicts children first, and never an ancestor of what is being stored. So does a disk whose index is
// complete, if its layout keeps parents. A Redis evicts in its own order.
//
// # An object's way, and a kill at each step
//
// The segment of the memory level, with its table of leases, outlives a process that is killed (SIGKILL).
// The next process opens the same segment and then a store over it; [Open] of the store takes over what
// the dead process had not done yet. Of a batch, a kill may leave the first part done. An object that was
// being evicted is in memory whole, or not at all. The steps of an object that a client stores under a lease,
// and what is left if the process is killed:
//
//  1. Reserve. Memory has room for the object, and a record of the reservation in the table of leases,
//     before the caller hears of it. A kill before the record leaves nothing. After it, the reservation
//     is still the lease's, in the same place: its owner goes on to write, and commits or aborts. An
//     owner that was not answered is told ErrPending by the next Reserve, and finds the place with Held.
//     When the time of its lease has passed, Reserve answers ErrEnded, and Commit pins nothing. The
//     reservation ends [WriteTime] after the first call behind that time; the next process counts anew.
//  2. The client writes the bytes, in place. A kill of the store's process does not matter to it. A kill of the
//     client ends nothing here: its reservations and pins stay until its lease ends, by time or by Release. A
//     lease without a time stays for ever; the daemon releases those of dead clients.
//  3. Commit. The object is entered into the index of the segment, and the record becomes a pin. A kill
//     before the entry leaves the reservation. After it, the object is there and pinned by the lease,
//     even if the record had not changed yet. An owner that was not answered asks Held: no error says that
//     the object was committed, ErrPending that it was not. A second Commit answers ErrNotFound.
//  4. The store begins a pending write: it pins the object under a lease of its own, "ringcache store: pending
//     writes". Beyond [Options].MaxBacklog or the quota of the tenant the pending write has no pin until it is
//     its turn: if memory has evicted the object by then, no level gets it. The same goes for an object for
//     whose pin the table of leases has no record. Pending writes without a pin have a bound of their own, some
//     60,000: of what is committed beyond it no level gets anything, and Drain says so. A kill before the pin
//     leaves only that of the client's lease. Open makes pending writes of what the leases of clients pin,
//     since it can't tell what they committed from what they read; beyond the limits they have no pin, as
//     above. What no lease pins when Open looks gets no pending write: if no level has it yet, it is in memory
//     alone, and may be evicted.
//  5. A worker writes the object to each level whose policy is [Back] or [Through], a parent before its
//     children as a rule. A kill leaves the pin of step 4. A disk has the object complete or not at all: it is
//     written to a temporary file, which the next process deletes, and then renamed. Open enqueues what the
//     lease pins; workers ask each level first, and write what it lacks.
//  6. When each level has the object, or has answered with another error than ErrUnavailable, the store ends
//     its pin, as it does if memory has lost the object. An object whose bytes were changed in memory is given
//     up and deleted there, unless a lease has it. That is noticed of what Put stored from then on; of what a
//     client committed, and of what an earlier process stored, only while it is being written, since their
//     checksum is computed then. A kill before the end of the pin repeats step 5, which finds what a level has.
//     With its last pin the object may be evicted from memory.
//  7. Pin of an object in memory puts a record into the table of leases before the caller hears of it. A kill
//     before the record leaves no pin. After it, pin and place stay until Unpin, Release or the time of the
//     lease. Pin or Prefetch of an object that is not in memory begins a fetch, and so does the last of
//     [Options].PromoteAfter calls of Get, the others of which read the level for themselves. An object whose
//     parent was asked for in the same call is fetched only if the parent is in memory, or is fetched as well;
//     else Pin answers ErrNotFound, though a level has the object, and Get reads the level for itself. Who asks
//     for it alone gets it alone: an engine has the chunks in front of it in its own cache. A kill loses a
//     fetch: nothing was changed yet. Who asks again begins another one.
//  8. A worker reserves room in memory under another lease of the store, "ringcache store: promoted", and
//     the level reads into it. After a kill, Open gives such reservations up.
//  9. The worker commits, and the lease keeps the object pinned until the leases that asked have pinned it and
//     the calls of Get that waited have read it, for about [Options].PromotedFor at most. What only a Prefetch
//     asked for is not pinned. After a kill, Open ends these pins. The object stays in memory without them.
//     Where [Lower].PromoteAfter asks for it, a level above the one that had the object gets a copy: a pending
//     write as in step 4, which after a kill is made again only for levels of Back and Through.
//  10. Delete ends the pending write, and removes the object from memory, then from each lower level. After a
//     kill before memory has dropped it, it is in memory alone if no level had it yet. After a kill in between,
//     the levels that were not reached still have it, and the next Get finds it there: delete it again.
//
// [Store.Put] does steps 1 to 4 under the store's own lease, so that the object is pinned for step 5 from its
// Commit on. A reservation of a Put that a kill interrupted is given up by Open. Levels of [Through] get the
// object within Put, and beyond the limits of step 4 those of Back, too.
//
// If the segment is lost too, as with a restart of the machine, so are the pending writes: see docs/tiers.md.
//
// # Inside
//
// A store has three parts, each described at the top of its file: fetch.go, write_back.go, health.go.
//
// See docs/decisions.md, "A store of levels has exactly one memory level".
// See docs/decisions.md, "The end of a lookup is remembered for the lease that asked".
// See docs/decisions.md, "A level is taken out of use by a probe or by a call that hangs".
package tier
