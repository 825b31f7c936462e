package lrusync

// ErrUnsized is the error of an item that vLLM has no size for.
var ErrUnsized = errUnsized
