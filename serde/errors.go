package serde

import "github.com/ringcache/ringcache/internal/codec"

// Sentinels for errors.Is. Each error of this package and of enginecore wraps one of
// them, or fs.ErrInvalid where a value given for encoding can't be encoded. The text
// has the part, the position, and what was found and wanted there.
var (
	// ErrCorrupt: the bytes are not what any vLLM of the chosen generation
	// writes.
	ErrCorrupt = codec.ErrCorrupt
	// ErrUnsupported: the bytes may mean something to a Python peer, but are
	// refused here.
	ErrUnsupported = codec.ErrUnsupported
)
