// Package rope moves keys of attention to other positions. Rotary position embedding turns pairs of elements
// of a key by angles that grow with the position, so a key at one position becomes that at another one by a
// rotation that depends only on the distance. Values have no position.
//
// # Tables
//
// A [Config] is what a model's configuration says of it; [ParseConfig] reads a config.json. [New] makes a
// [Table] of it: one frequency for each pair, with linear, NTK, YaRN or Llama 3 scaling, as transformers and
// vLLM compute them. What has other rules (dynamic lengths of LongRoPE, sections of multimodal models) is
// refused.
//
// # Rotations
//
// [Table.Shift] is the [Rotation] from a position to another one, the same for all tokens of a chunk, all
// heads and all layers. [Table.At] is the one from no position to a position; it includes the factor by which
// YaRN scales queries and keys. Keys that have a position have that factor already, so that a Shift never has
// it. [Rotation.Apply] rotates rows of heads, as bytes of a [DType]; it computes in float32 and rounds once,
// to nearest even, with the same bits whether it uses vector instructions or not. Only which NaN a NaN
// becomes is not defined. Rotating there and back does not give equal bits: keep the original, and rotate it
// to where it is needed.
//
// # Errors and concurrency
//
// What is refused wraps fs.ErrInvalid. Tables and rotations do not change, and any number of goroutines may
// use them.
package rope
