// Package paged copies the KV of tokens between the paged buffers of an engine and chunks, in plain memory.
//
// An engine keeps the KV of a layer in blocks of some tokens. Where a token is, its slot says: block * tokens
// of a block + place in the block. A chunk has the KV of tokens one behind the other. [Buffers.Gather] copies
// from slots into a chunk, and [Buffers.Scatter] from a chunk into slots; [Buffers.GatherLayer] and
// [Buffers.ScatterLayer] do so for one layer. AppendSlots of package kv/flow makes slots of a block table.
//
// A [Layout] is the order of dimensions of an engine's buffers, and has LMCache's name for it; a [Format] is
// that of a chunk, with LMCache's number. Elements are bytes that are moved: their dtype does not matter,
// only their size.
//
// # Slots
//
// A negative slot is skipped, as LMCache does it: nothing is read from the chunk, or written to it, for its
// token. The rest of the chunk is copied. If a slot is there more than once in a Scatter, the last token
// stays.
//
// # Errors
//
// What is refused wraps fs.ErrInvalid. Everything is checked before the first byte is copied, so a refused
// call has changed nothing.
//
// # Lifetimes and concurrency
//
// Buffers keep the slices that they were made of, and never write to them but in Scatter and ScatterLayer.
// Calls may run at the same time if they have no slots, and no chunks, in common. No call allocates.
//
// # Speed
//
// Chunks of all layers are copied with slots that follow each other at once, a block or more, where the heads
// of a token stand together. Otherwise each token is copied by itself, and with the other layouts (HND) each
// head of it, which is slower.
//
// BenchmarkCopy has all of them beside copy of as many bytes, by two measures. Of large pieces, of 1 MiB or
// more, Go's copy writes past the caches, and is nearly twice as fast as in pieces of a block. Beside copy in
// pieces of a block the copies of this package have 0.8 to 1 of its speed, with HND 0.7 to 0.9. What was
// tried for HND and was slower, or within 5%: a head of all tokens of a block before the next head, some
// tokens at a time, reading the next block ahead, copies of arrays of the head's size in place of slices, and
// a buffer of 1 MiB that is copied as a whole.
package paged
