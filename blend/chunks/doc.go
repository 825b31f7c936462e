// Package chunks keeps the KV of chunks that are blended in the levels of a store: memory, disk, Redis.
//
// A chunk is one object. Its name is the hash of its tokens, as [blend.Index] has it, its bytes are a
// [blend.KV], and its note says what the bytes are, with the fingerprint of the tokens: so a [Library] that
// is opened over levels that outlived a process finds what is there, without the tokens. A space must be of
// one model, engine and dtype, as [kv.Layout.Space] makes them; a chunk whose note says another shape is not
// used.
//
// Chunks have one length and are found at any offset, or, with Options.Segments, any length and stand between
// separators.
//
// # Requests
//
// [Library.Find] finds the chunks of a prompt, [Library.Begin] pins them, from whichever level has them,
// under a lease of the request. A chunk that went meanwhile is a gap. The bytes of a [Request] are those of
// the memory level, and valid until Release, or until Options.LeaseTime has passed: the moves of
// [Request.Moves] copy from there straight into the KV of the prompt.
//
// # Errors and concurrency
//
// Errors of levels are those of package tier; what is refused wraps fs.ErrInvalid. Any number of goroutines
// may use a Library, and one a Request.
package chunks
