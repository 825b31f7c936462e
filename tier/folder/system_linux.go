package folder

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/ringcache/ringcache/tier/internal/tree"
)

const supported = true

// freshOf takes what fstat had of an open file: opening a file asks the server.
func freshOf(info fs.FileInfo) tree.Fresh {
	f := tree.Fresh{Size: info.Size(), Modified: info.ModTime()}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		f.Inode = s.Ino
	}
	return f
}

// cannotLink reports a file system without hard links.
func cannotLink(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EMLINK)
}
