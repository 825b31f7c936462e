// Package tree has the operations on files below a folder that levels share. No path leads out of the folder, and only
// regular files are opened, never through a link: another user of a shared folder could place one.
package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"
)

var (
	// ErrForeign is a file of another program at a path where a level could have one.
	ErrForeign = errors.New("the file is not of this layout")
	// ErrBlocked is an object that can't be stored: something else is at its path, and the level must not remove it.
	ErrBlocked = fmt.Errorf("a foreign file or folder is at the path of the object; remove it: %w", fs.ErrExist)
)

// A file of at least minSparse bytes counts as sparse if fewer than 1/sparseShare of its bytes are on the
// medium. Another user of a shared tree can make such a file of any size at no cost, and a Get would allocate
// that size.
const (
	minSparse   = 1 << 30
	sparseShare = 1024
)

// Tree is an open folder. Paths are relative to it, with slashes.
type Tree struct {
	Root *os.Root
	Dir  *os.File // the same folder, for system calls that os.Root does not have
}

// Open opens a folder.
func Open(path string) (*Tree, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	dir, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &Tree{root, dir}, nil
}

// Close closes the folder.
func (t *Tree) Close() error { return errors.Join(t.Dir.Close(), t.Root.Close()) }

// OpenFile opens a regular file for reading. Anything else is ErrForeign.
func (t *Tree) OpenFile(p string) (*os.File, fs.FileInfo, error) {
	file, err := t.OpenNoLinks(p)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is not a regular file", ErrForeign, p)
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

// OpenByRoot is OpenNoLinks for systems without openat2. Another process could put a link in place between
// Lstat and open; os.Root still keeps the path inside the root.
func (t *Tree) OpenByRoot(p string) (*os.File, error) {
	for at := p; at != "."; at = path.Dir(at) {
		info, err := t.Root.Lstat(at)
		if err != nil {
			return nil, err
		}
		if at == p && !info.Mode().IsRegular() || at != p && !info.IsDir() {
			return nil, fmt.Errorf("%w: %s is not a regular file, or a part of its path is not a folder", ErrForeign, p)
		}
	}
	// O_NONBLOCK: the path may have become a pipe, whose open would wait for a writer.
	return t.Root.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// Rename moves a file to its path, and makes the folders of the path. It makes them only after a first rename
// failed, since most folders exist. An empty folder at the path is removed. It fails with ErrBlocked if
// something else is there, or a part of the path is not a folder: a file that was stored through a link would
// not be found again.
func (t *Tree) Rename(from, to string) error {
	parent := path.Dir(to)
	for try := 1; ; try++ {
		// A link in the path is refused here: os.Root.Rename would follow one that stays inside the root.
		err := t.isFolder(parent)
		if err == nil {
			err = t.Root.Rename(from, to)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrForeign), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP):
			return fmt.Errorf("%w: a part of the path %s is not a folder", ErrBlocked, to)
		case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.EEXIST), errors.Is(err, syscall.ENOTEMPTY):
			if t.Root.Remove(to) != nil || try == 10 { // Remove takes only an empty folder
				return fmt.Errorf("%w: %s is a folder with something in it", ErrBlocked, to)
			}
		case !errors.Is(err, fs.ErrNotExist) || try == 10:
			return err
		case parent != ".":
			// A level may remove the folder again before the next rename, so there are 10 tries.
			err := t.Root.MkdirAll(parent, 0o700)
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
				return err
			}
		}
	}
}

// lstatFolder is isFolder for systems without openat2.
func (t *Tree) lstatFolder(p string) error {
	for at := p; at != "."; at = path.Dir(at) {
		info, err := t.Root.Lstat(at)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return fmt.Errorf("%w: %s is not a folder", ErrForeign, at)
		}
	}
	return nil
}

// SyncFolders syncs all folders of a path, from the innermost to the root: any of them may be new.
func (t *Tree) SyncFolders(p string, sync func(d *os.File, p string) error) error {
	for {
		p = path.Dir(p)
		d, err := t.Root.Open(p)
		if err != nil {
			return err
		}
		if err := errors.Join(sync(d, p), d.Close()); err != nil || p == "." {
			return err
		}
	}
}
