// Package mmhash computes the identity of media: the hashes by which vLLM names
// images, videos and audio in its caches, bit for bit, and a key of its own that
// is safe between tenants.
//
// # vLLM's hash
//
// vLLM hashes keyword arguments (vllm/multimodal/hasher.py): the model's id, the
// item under the name of its modality, and what decides on how it is processed.
// [Hasher.Key] puts them together as the processor of the chosen release does,
// [Hasher.Hex] hashes any, and [WriteStream] writes the bytes under the hash.
// Which bytes these are differs between releases: [pycompat.HashRules] lists how,
// [Options].Generation chooses. A hash from one generation is of no use to
// another, nor need it be: keys never leave the server and its workers.
//
// The value of an [Entry] is a Go value of one of the types that Entry lists, each
// of which stands for one type of Python; any other is refused by name, and none
// is converted. Values describe what the hash depends on: 1 or 1.0, the type of a
// palette, whether an image comes with the bytes of its file ([EncodedImage]) or
// without ([Image]). Decoding and converting images is not done here.
//
// Where vLLM's hash depends on an address or fails, there is an error that wraps
// [ErrUnsupported] instead. What it hashes by pickling is only as portable as
// the pickle, see [Pickled].
//
// Streams before 0.31.0 have no lengths in them, so that different arguments can
// have the same hash; even after, "ab" and b"ab", 0 and 0.0, -1 and 2^64-1 do.
// A client's UUID is believed. Who is free to choose takes [NativeKey].
//
// # Memory and concurrency
//
// Nothing is copied but strings: slices are passed to the hash as they are and
// must not change meanwhile. Media that are not in memory are hashed through a
// [Reader]. Values may be shared between goroutines, but for a Reader; a
// [Hasher] serves one at a time.
//
// BLAKE3 of long slices is computed by the caller and, where processors are free,
// by helpers, which are started only while fewer than GOMAXPROCS goroutines of the
// process hash long slices: none with GOMAXPROCS=1. They have ended their work on a
// slice when the call returns. What comes from a Reader is hashed by the caller,
// piece by piece as it arrives.
package mmhash
