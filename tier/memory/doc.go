// Package memory keeps the objects of package tier in a shared segment, where other processes read and
// write them in place: it is the tier.MemoryLevel of package tier, over package shmstore.
//
// # What survives
//
// A segment outlives the process. [Open] takes it over from one that was killed, or closed it, with all
// objects, all leases, their pins and their reservations: objects keep their offsets and bytes, and
// clients that have the segment mapped notice nothing. Who has a reservation commits it with the new process,
// as if nothing had been. Only objects that are found damaged go. What only a call of the dead process was reading,
// and no lease has, may be evicted as soon as Open returns. How often objects were used is not kept: the order of
// eviction begins anew.
//
// Leases stand in a file <name>.leases beside the segment; docs/format.md describes it. If something
// damages it, nobody can tell what clients of the dead process still need. Then everything that may be
// in use stays for ten minutes, and nothing new is reserved meanwhile. A reservation whose record is right can be
// committed all the same. If the file is gone and the segment has no object, the segment counts as one that never had
// leases, and reservations are lost at once. A kill while Open replaces a damaged table may lose the leases that could
// still be read.
//
// # Leases
//
// A lease is open until its time passes or Expire is called. Then it has expired: it loses its pins, and
// takes no new ones. Without reservations it ends at once, and otherwise with the last of them, tier.WriteTime
// after the first call behind its time at the latest; the next process counts that anew. SetUntil opens it
// again before that end. Release ends it at any time. Its record goes first, in one step for the next process;
// what a large lease has goes in slices of 64 objects, between which other calls have the level. Each call looks
// whether the time of a lease has passed, and lets go of at most a slice; a goroutine that is there only for that
// does the rest. A lease that has expired, or ended, answers so from the first moment on.
//
// # Room
//
// An object takes its size, its texts (its tenant twice, and half of a hash in hexadecimal digits) and 90 to 103
// bytes, rounded up to 64. When there is no room the level evicts what costs least to lose, by the time that it
// takes to make it again and by how objects came back so far; children go before their parents. That time is a
// hint, see tier.Object.Cost. Of objects that are each other's parents, the one that comes last has no parent.
//
// # Integrity
//
// Objects are read in place while a lease keeps them, so nothing is overwritten under a reader. Reads
// verify no checksum: memory keeps what was written. A new process compares every object with a checksum
// of samples.
//
// # Concurrency
//
// Bytes are copied outside of all locks. One process at a time has a segment's level; any number may map the
// segment. [Look] reads the objects of a segment beside that process, for tools.
//
// See docs/decisions.md, "A lease keeps its reservations ten minutes past its time".
// See docs/decisions.md, "A damaged table of leases costs ten minutes without writes".
package memory
