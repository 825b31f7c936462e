// Package transformer is a small decoder of the Llama family, as a reference for package blend: RMSNorm,
// rotary positions, grouped-query attention and SwiGLU, in float32, on one processor. It exists to be
// checked, and to check what reuses KV; it serves nobody.
//
// [Load] reads a config.json and a safetensors file with the names of transformers. [Model.Prefill] computes
// a whole prompt, [Model.Blend] what a [blend.Plan] asks for, over KV that was moved into place. Both take a
// [blend.KV] of any dtype, whose bytes they read and write, so that what storage in 16 bits costs is seen.
//
// Each row is computed by the same operations in the same order, whichever other rows are computed beside it.
// So Blend with all rows has the bits of Prefill.
//
// What is refused wraps fs.ErrInvalid. A Model does not change, and any number of goroutines may use it.
package transformer
