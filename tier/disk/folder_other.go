//go:build !linux

package disk

import (
	"io/fs"
	"os"
)

// Systems other than Linux have no lock for roots, so they only read, see lockFile. What they lack is
// answered as unknown.

func (f *folder) openNoLinks(p string) (*os.File, error) { return f.openByRoot(p) }

func (f *folder) isFolder(p string) error { return f.lstatFolder(p) }

func ownedByOther(fs.FileInfo) bool { return false }

func sparse(fs.FileInfo) bool { return false }

func blockSize(*os.File) int64 { return 4096 }

func fileSystemSize(*os.File) int64 { return 0 }
