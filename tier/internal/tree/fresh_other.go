//go:build !linux

package tree

import (
	"errors"
	"os"
	"time"
)

// Fresh is what the file system has about a regular file now.
type Fresh struct {
	Size     int64
	Modified time.Time
	Inode    uint64
}

// Stat is for Linux.
func (t *Tree) Stat(string) (Fresh, error) { return Fresh{}, errors.ErrUnsupported }

// Touch is for Linux.
func Touch(*os.File) error { return errors.ErrUnsupported }
