package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/ringcache/ringcache/tier"
)

// ErrPath reports a path at which a layout has no objects. It is an fs.ErrInvalid.
var ErrPath = fmt.Errorf("disk: the layout has no objects at this path: %w", fs.ErrInvalid)

// A Layout decides where the files of objects are, and what is in front of their bytes. A file
// is a head and then the object's bytes, and nothing behind them. Its methods may be called from any goroutine, and
// do no input or output but by the reader that they get.
type Layout interface {
	// Name names the layout. A root remembers it, and is refused with another one.
	Name() string
	// Path returns the file of a key, relative to the root, with slashes. Different keys have
	// different files, and no file is a folder of another one. It fails with fs.ErrInvalid for a key that the layout
	// can't name.
	Path(k tier.Key) (string, error)
	// AppendHead appends the head of an object to dst. sum is the CRC-32C of its bytes; the
	// head's length does not depend on it.
	AppendHead(dst []byte, o tier.Object, sum uint32) ([]byte, error)
	// ParseHead reads the head of a file of size bytes at a path. It fails with ErrPath for a path that is
	// none of the layout's, whatever the file is; with tier.ErrCorrupt for a file that can't be one of the
	// layout, as one that was cut; and with fs.ErrInvalid for what others may have meant to write there: such
	// files are foreign, and are left alone, as those of other paths are.
	ParseHead(path string, file io.ReaderAt, size int64) (Head, error)
}

// A Head describes the file of an object.
type Head struct {
	Object tier.Object
	Length int64 // of the head, in bytes
	// Sum is the CRC-32C of the object's bytes if HasSum is set: files of other writers
	// may have none.
	Sum    uint32
	HasSum bool
}

// layoutHas reports whether an object's file could have a path.
func (r *root) layoutHas(path string) bool {
	_, err := r.o.Layout.ParseHead(path, bytes.NewReader(nil), 0)
	return !errors.Is(err, ErrPath)
}
