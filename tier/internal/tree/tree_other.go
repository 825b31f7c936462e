//go:build !linux

package tree

import (
	"io/fs"
	"os"
)

// What other systems lack is answered as unknown.

// OpenNoLinks is OpenByRoot.
func (t *Tree) OpenNoLinks(p string) (*os.File, error) { return t.OpenByRoot(p) }

func (t *Tree) isFolder(p string) error { return t.lstatFolder(p) }

// OwnedByOther is unknown.
func OwnedByOther(fs.FileInfo) bool { return false }

// Sparse is unknown.
func Sparse(fs.FileInfo) bool { return false }

// BlockSize is unknown.
func BlockSize(*os.File) int64 { return 4096 }

// FileSystemSize is unknown.
func FileSystemSize(*os.File) int64 { return 0 }
