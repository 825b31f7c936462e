package remote

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/ringcache/ringcache/tier"
)

// ReadExactly fills memory with an object's bytes from a reader, which must end there.
func ReadExactly(from io.Reader, memory []byte, k tier.Key) error {
	if _, err := io.ReadFull(from, memory); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("object %v: %w", k, err)
	}
	var more [1]byte
	switch n, err := io.ReadFull(from, more[:]); {
	case n > 0:
		return fmt.Errorf("object %v: the reader has more than its %d bytes: %w", k, len(memory), fs.ErrInvalid)
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("object %v: %w", k, err)
	}
	return nil
}

// Write writes all bytes, or fails. It does not write nothing.
func Write(to io.Writer, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	n, err := to.Write(b)
	if err == nil && n != len(b) {
		err = io.ErrShortWrite
	}
	return err
}
