package serde

import "github.com/ringcache/ringcache/pycompat"

// Options chooses the wire. The zero value is the newest known vLLM with its
// default threshold.
type Options struct {
	// Generation is that of the peer; nil means [pycompat.Newest].
	Generation *pycompat.Generation
	// InlineThreshold is the size in bytes from which on a tensor gets a frame
	// of its own; smaller ones lie inside the main document. 0 means 256, the
	// default of vLLM's VLLM_MSGPACK_ZERO_COPY_THRESHOLD. A negative one is vLLM's
	// threshold of 0 and below, with which every tensor gets a frame, an empty one
	// an empty frame, and only 0-d ndarrays are inline
	// (vllm/v1/serial_utils.py, 0.11.0 to 0.33.0). Decoders need none.
	InlineThreshold int
}
