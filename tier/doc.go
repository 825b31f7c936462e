// Package tier keeps objects, which are bytes by key, in levels: memory, disk, Redis.
//
// A [Level] is one of them. Package tier/memory is a shared segment, tier/disk a folder,
// tier/redis a server. All of them pass the tests of package fuzz/tiertest, which a
// level of your own can run, too.
//
// A [Store] puts levels above each other: a [MemoryLevel], in which other processes read and write in place,
// and lower levels ([Lower]), fastest first. [Store.Get] reads from the fastest level that has an object. A [Lease] of the store pins
// objects in memory: what only a lower level has is pending until it was brought, and nobody waits within a call for that.
// [Store.Prefetch] brings objects ahead. What is stored is written to the lower levels at once or in the background; what is owed to
// them survives a kill, in the memory level, and [Store.Drain] waits for it. [Store.Close] ends a store, and leaves its levels open.
//
// A level that is away or damaged costs what only it has. It fails nothing that another level can serve.
//
// An object never changes: equal keys mean equal bytes, so levels need no order of writes.
// An object may name its parent, as a chunk of a prompt names the chunk in front of it. A child without
// its parent is worthless, so a level evicts children first, and never an ancestor of
// what is being stored.
package tier
