// Package directory knows who holds which chunks of KV: instances of an engine, their workers, and the
// locations of a worker (memory, a disk). Workers report what they admit and evict, and a router asks who
// holds the longest prefix of a request. It is pure: who speaks with workers and routers, by which protocol,
// stands above it.
//
// # Who and what
//
// [Directory.Register] adds a worker that begins, [Directory.Deregister] drops it, [Directory.Heartbeat] says
// that it lives, and [Directory.Expire] drops those that do not. [Directory.Away] is for who knows that a
// worker has gone with what it holds. A chunk has a [Key]: the number that LMCache's workers report
// ([NumberKey]), or what [KeyOf] makes of a hash of any length and a space, such as a model and a salt.
//
// # Reports
//
// [Directory.Apply] takes reports in their order. They are numbered by location, and a number that is not the
// next one is a gap: the location is stale, [Prefix].Stale says so, and the answer to the next heartbeat
// wants a full synchronisation. So does a worker that the directory does not know, since it began after the
// worker. The first number of such a worker is taken as it is, so reports that are lost between its full
// synchronisation and that number are not noticed. Sources that count by themselves say so: [Directory.Lost].
// A full synchronisation of a location is [Directory.StartSync], any number of [Directory.SyncBatch], and
// [Directory.EndSync]; [Directory.SyncStatus] names batches that were lost. Reports go on meanwhile. It is
// wanted until no location of the worker is stale, or the worker synchronises one that was not: then it has
// nothing else to tell. LMCache's workers tell what is in their memory, whatever was lost.
//
// # Several directories
//
// With [Options].Shared, [Directory.Changes] returns what has changed here by reports, and [Directory.Follow] applies
// what another directory has told, for package shared, which carries changes by a Redis. A worker is one of the
// directory to which it has reported last; Expire drops no others.
//
// # Look-ups
//
// [Directory.Find] returns who holds the longest prefixes of a chain of keys, which [AppendKeys] makes of a
// kv.Chain. An instance holds a chunk if each of its workers does, at any location. The answer is what was
// reported: a chunk may be gone when it is asked for.
//
// # Memory and concurrency
//
// A chunk takes about 35 bytes, and one with several holders 4 to 8 more for each, and a list. What a worker
// held that goes costs nothing at once; Expire gives its memory back, part by part, so call it every few
// seconds. Workers, their locations and texts, entries and what a synchronisation remembers are bounded. Any
// number of goroutines may call a Directory; reports of one location have an order, so one goroutine at a
// time gives those.
//
// # Errors
//
// [ErrUnknown], [ErrFull], [ErrSyncing], and fs.ErrInvalid for what is refused.
package directory
