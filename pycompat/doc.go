// Package pycompat holds the conventions of CPython and vLLM that a Go process
// follows to share memory with a Python one. It holds facts and mechanisms, no
// policy.
//
// Releases. A [Generation] is everything in which one release of vLLM differs from
// others: the layout of the segment, how uses are counted, the forms of items,
// hashes, requests and parameters. [Lookup] finds a release by its version. All
// packages share its record by pointer and only read it; nil means [Newest]. Use
// [TreatAs] for an engine that is newer than the table. The file changes.go lists
// what changed in which release.
//
// Segments. [Generation.SegmentName] and [RingSize] compute what vLLM's processes
// compute for themselves; [SegmentEnv] is how they agree on a name.
//
// Locks. A [Semaphore] is a Python multiprocessing.Lock, opened from Go by its name.
package pycompat
