// Package blend reuses the KV of chunks of a prompt that are not its prefix, as CacheBlend does (Yao et al.,
// EuroSys '25, arXiv 2405.16444). Prompts with retrieved documents have the same documents in other orders,
// so that a prefix cache finds only the first one. Package blend finds the others, moves their KV to where
// they are now, and says which tokens are to be computed again, since they would have seen what is in front
// of them now.
//
// It computes with no model itself. Package blend/rope rotates keys, blend/transformer is a small model that
// drives everything, and blend/chunks keeps the KV of chunks in the levels of a store.
//
// # The way of a prompt
//
//   - [Index.Find] finds chunks of one length at any offset, by rolling fingerprints; a [kv.TokenDatabase] of
//     segments finds those between separators.
//   - [Greedy] and [Optimal] choose among matches that overlap, and [Gaps] returns what is left.
//   - A [Move] puts a chunk into the [KV] of the prompt: values as they are, keys rotated to their new
//     positions. [MoveAll] does it for all layers in parallel, [Pipeline] layer by layer beside computing.
//   - A [Plan] says what an engine computes in each layer. At a [Check], [Deviation] compares what was
//     computed with what was moved, and a [Selection] chooses the tokens that are computed in the layers
//     behind.
//   - [Shape.Replace] writes what was computed over what was reused.
//   - [Dims] and [Work] estimate what is computed, by formula.
//
// # What is promised
//
// The KV of a chunk that was moved is that of the chunk computed alone at its new position, up to rounding:
// exact for the first chunk of a prompt, and wrong by what attention to the text in front would have changed
// for the others. With the ratio 1 the result is that of a whole prefill, exactly, and with less it is
// between the two. Answers may differ: docs/blend.md has what was measured. The same bytes of
// KV give the same selection, on every machine.
//
// Attention with one latent vector for all heads (MLA) and windows of attention have other rules, and are not
// supported: [ParseDims] refuses their configurations.
//
// # Errors, memory and concurrency
//
// What is refused wraps fs.ErrInvalid. Bytes of KV belong to the caller and are never kept beyond a [Move].
// An [Index] serves any number of goroutines, a [Plan] one; the layers of moves may be moved at the same
// time; the rest are values.
package blend
