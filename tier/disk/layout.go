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

// A Layout decides where the files of objects are, and what precedes their bytes. A file is a head and then
// the bytes of the object, and nothing else. The methods of a layout may be called from any goroutine. They
// do no input or output except by the reader that they are given.
type Layout interface {
	// Name names the layout. The lock file of a root contains it, and Open refuses the root with another
	// layout.
	Name() string
	// Path returns the file of a key, relative to the root, with slashes. Different keys have
	// different files, and no file is a folder of another one. It fails with fs.ErrInvalid for a key that the
	// layout can't name.
	Path(k tier.Key) (string, error)
	// AppendHead appends the head of an object to dst. sum is the CRC-32C of its bytes; the
	// head's length does not depend on it.
	AppendHead(dst []byte, o tier.Object, sum uint32) ([]byte, error)
	// ParseHead reads the head of a file of size bytes at a path. It fails with ErrPath for a path that is
	// not of the layout, whatever the file contains; with tier.ErrCorrupt for a file that no program can have
	// meant to write, such as a truncated one, which is removed; and with fs.ErrInvalid for a file that
	// another program may have meant to write there. Such files are foreign, and stay, as those with ErrPath
	// do.
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

// layoutHas reports whether a path could be that of an object. An empty reader is enough, since layouts
// decide that by the path alone.
func (r *root) layoutHas(path string) bool {
	_, err := r.o.Layout.ParseHead(path, bytes.NewReader(nil), 0)
	return !errors.Is(err, ErrPath)
}
