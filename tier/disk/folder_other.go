//go:build !linux

package disk

import (
	"io/fs"
	"os"
)

func (f *folder) openNoLinks(p string) (*os.File, error) { return f.openByRoot(p) }

func (f *folder) isFolder(p string) error { return f.lstatFolder(p) }

func ownedByOther(fs.FileInfo) bool { return false }

func hollow(fs.FileInfo) bool { return false }

func blockSize(*os.File) int64 { return 4096 }

func fileSystemSize(*os.File) int64 { return 0 }
