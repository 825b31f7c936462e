// Package check validates the bytes of a segment that other processes use. It only reads, takes no
// lock but for a moment, and does not disturb a writer or its readers.
//
// A segment that this library made has a sidecar. From that, [Segment] checks the header, both
// state records, the slots of readers, and each object of a pool: its entry, its chunk, the
// checksum, the metadata and the frames, its description, its place, its id. Where the chunks of a
// ring are is in the memory of its writer alone (docs/format.md, Ring), so of a fifo and of a
// segment that vLLM made it checks the chunks that handles name.
//
// The memory changes meanwhile. An entry of the table protects its object: what was found counts
// only if the entry is still the same afterwards. Everything else that was found is looked at
// again, for up to [Options].Patience if a writer lives. So a writer at work is no finding.
//
// [Segment] may be called by any number of goroutines.
//
// See docs/decisions.md, "A check of a living segment looks twice, and never guesses".
package check
