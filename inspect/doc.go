// Package inspect shows segments from outside, while other processes write and read them: which ones a
// machine has, who owns each, how full it is, every object with its key, its state and its counters, who
// keeps an object from being evicted, and a map of the memory. It is behind the commands ringcache ls,
// inspect, map and top.
//
//   - [List] describes all segments of a directory of shared memory.
//   - [Open] opens one, for [Segment.Summary], [Segment.Objects], [Segment.Holders] and [Segment.Map].
//
// # Which segments
//
// Those that this library made have a sidecar with everything: pools of package objstore, of package
// shmstore, of a memory level, and so of the daemon. Of a fifo, and of a ring that vLLM made, its writer
// alone knows which chunks count. Of these the headers are followed from the begin of the ring:
// [Segment.Objects] yields the chunks of the newest lap, and those of the lap before where their ids prove
// it. Which of them were freed is not known.
//
// # It only looks
//
// Files are opened for reading. The bytes of a segment are read as those of a file, so that a page that no
// process has touched stays without memory; sidecars and leases are mapped read-only. No reader slot is
// taken. The writer's lock is asked for only in the shared mode, for a moment, and only if no writer has it.
//
// The memory changes meanwhile. An object is described as of one moment, and what went while it was read is
// left out; a list of objects is of no single moment.
//
// See docs/decisions.md, "Looking at a segment reads its file, and takes no slot".
//
// Nothing is believed: lengths are bounded by the file before anything is read, and what can't be right is
// reported as [Damaged]. Texts may contain anything, control characters too: who prints them has to escape
// them.
//
// # Lifetimes and concurrency
//
// A Segment has open files until Close. Its methods may be called by any number of goroutines, but Close must
// be the last. What it returns belongs to the caller.
//
// # Errors
//
// Open fails with fs.ErrNotExist, and with segment.ErrUnsafe for a file of another user, or one that everyone
// may write. Everything that is wrong within a segment is in the answers.
package inspect
