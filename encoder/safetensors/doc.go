// Package safetensors reads and writes the headers of safetensors files, the format in which
// vLLM's example connector keeps the outputs of encoders.
//
// A file is the length N of the header in 8 bytes, little-endian; N bytes of JSON, in which
// the header is padded with spaces to a multiple of 8; and the bytes of the tensors, in row-major order, without gaps.
// Files that this package writes are byte for byte those of the library of that name, version
// 0.8.0, and it accepts and refuses what that library does, with one exception: dimensions beyond
// an int are refused. Both are tested with the library itself.
//
// # Memory and files
//
// A header is parsed into memory of its own; parsing takes at most some 25 times its length. Bytes of tensors
// are never copied: a [Tensor] contains the place of its bytes in the file. For a file, [ReadHeader] and then
// a ReadAt of these bytes work without a mapping: a file that somebody cuts is an error. [Parse] works on any
// memory, also on a mapping. A process that reads a mapping of a file that another process has cut gets
// SIGBUS, which ends it, so map only what nobody can cut: sealed memory, or files that only your own process
// can write to.
//
// See docs/decisions.md, "What a safetensors file is, the real library decides".
package safetensors
