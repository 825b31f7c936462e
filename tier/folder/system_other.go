//go:build !linux

package folder

import (
	"io/fs"

	"github.com/ringcache/ringcache/tier/internal/tree"
)

const supported = false

func freshOf(info fs.FileInfo) tree.Fresh {
	return tree.Fresh{Size: info.Size(), Modified: info.ModTime()}
}

func cannotLink(error) bool { return false }
