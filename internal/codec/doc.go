// Package codec writes and reads the MessagePack that vLLM's items, tensors and
// messages share (vllm/v1/serial_utils.py): one main document, and frames behind it
// for the bytes that are too long to lie inside. Package serde builds items and
// tensors on it, serde/enginecore the messages of a frontend, and
// engine/enginetest/wire those of an engine.
//
// Numbers, texts and headers are written and read by tinylib/msgp, which appends to and
// slices plain bytes; tests hold both directions equal to vmihailenco/msgpack.
//
// An [Encoder] keeps its first error. A [Decoder] takes its input for hostile:
// package msgpackguard checks the document first, and because the document may lie
// in memory that a peer can change, each length is checked again where it is used.
//
// See docs/decisions.md, "MessagePack is appended and read as slices, behind a guard".
package codec
