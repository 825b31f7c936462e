package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/semaphore"
)

// What a request may make the server do is bounded before the server does it: a
// short file can announce many pixels, and many passes over them.
const (
	maxBody   = 32 << 20
	maxImages = 16
	maxPixels = 100 << 20
	// maxScans bounds the passes over the pixels of a JPEG file. Progressive files
	// have about ten; Go's decoder makes as many as a file asks for.
	maxScans = 100
	// bodyCost is what a byte of a body takes: io.ReadAll holds it twice for a moment.
	bodyCost = 2
)

// errTooLarge is the error of a file that would be too much work.
var errTooLarge = errors.New("too large")

// checkScans counts the scans without decoding them. The two bytes that a scan
// begins with are never part of compressed data. They can be part of the metadata, so
// the number is an upper bound.
func checkScans(file []byte) error {
	if n := bytes.Count(file, []byte{0xff, 0xda}); n > maxScans {
		return fmt.Errorf("a JPEG file with %d scans, at most %d are allowed; save it anew: %w", n, maxScans, errTooLarge)
	}
	return nil
}

// contextReader fails when its context has ended, so that a decoder stops.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	// A small piece at a time: a few bytes can be much work.
	const piece = 512
	return c.r.Read(p[:min(len(p), piece)])
}

// bodies bounds the memory of all bodies that are in the server at once.
type bodies struct{ *semaphore.Weighted }

// acquire waits for the memory of a body of this length, of which -1 is unknown. The
// caller calls release when nothing uses the body any more.
func (b bodies) acquire(ctx context.Context, length int64) (release func(), err error) {
	if length < 0 || length > maxBody {
		length = maxBody // reading stops there
	}
	if err := b.Acquire(ctx, bodyCost*length); err != nil {
		return nil, fmt.Errorf("waiting for memory for the body: %w", err)
	}
	return func() { b.Release(bodyCost * length) }, nil
}
