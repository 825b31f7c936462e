package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"

	"github.com/ringcache/ringcache/tier/internal/tree"
)

// operation names what is done to a file, for tests that make it fail.
type operation string

const (
	opOpen    operation = "open"
	opRead    operation = "read"
	opCreate  operation = "create"
	opWrite   operation = "write"
	opSync    operation = "sync"
	opRename  operation = "rename"
	opRemove  operation = "remove"
	opLstat   operation = "lstat"
	opReadDir operation = "readdir"
)

// The files of a root that are not objects.
const (
	ownDir     = tree.OwnDir
	lockPath   = tree.LockPath
	tempDir    = tree.TempDir
	damagedDir = ownDir + "/damaged"
)

// folder has every operation on files of a root. Paths are relative to the root, with slashes. None leads out of the
// root or through a link, see package tree.
type folder struct {
	path string
	tree *tree.Tree
	lock *os.File    // nil if the root is only read
	self fs.FileInfo // of the lock file, or of the folder if it is only read; see checkThere
	fail func(op operation, p string) error
	temp atomic.Uint64 // number of temporary files so far
}

// injected returns the error that a test wants for an operation, or nil.
func (f *folder) injected(op operation, p string) error {
	if f.fail == nil {
		return nil
	}
	if err := f.fail(op, p); err != nil {
		return &fs.PathError{Op: string(op), Path: p, Err: err}
	}
	return nil
}

// open opens a regular file for reading. Anything else is errForeign.
func (f *folder) open(p string) (*os.File, fs.FileInfo, error) {
	if err := f.injected(opOpen, p); err != nil {
		return nil, nil, err
	}
	return f.tree.OpenFile(p)
}

// readAt fills b. It fails with io.ErrUnexpectedEOF if the file ends before.
func (f *folder) readAt(file *os.File, p string, b []byte, at int64) error {
	if err := f.injected(opRead, p); err != nil {
		return err
	}
	n, err := file.ReadAt(b, at)
	switch {
	case n == len(b):
		return nil // an error that came with all bytes does not matter
	case err == io.EOF: //nolint:errorlint // an os.File returns it as it is
		return io.ErrUnexpectedEOF
	}
	return err
}

// reader is the file that layouts read heads from, with injected errors.
type reader struct {
	f    *folder
	file *os.File
	path string
}

func (r reader) ReadAt(b []byte, at int64) (int, error) {
	if err := r.f.injected(opRead, r.path); err != nil {
		return 0, err
	}
	return r.file.ReadAt(b, at)
}

// create makes a temporary file. O_EXCL: sweep has removed those of dead processes, so the name is free.
func (f *folder) create() (*os.File, string, error) {
	p := tempDir + "/" + strconv.FormatUint(f.temp.Add(1), 16)
	if err := f.injected(opCreate, p); err != nil {
		return nil, "", err
	}
	file, err := f.tree.Root.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NONBLOCK, 0o600)
	return file, p, err
}

// write writes all of b at an offset.
func (f *folder) write(file *os.File, p string, b []byte, at int64) error {
	if err := f.injected(opWrite, p); err != nil {
		return err
	}
	_, err := file.WriteAt(b, at)
	return err
}

// sync writes the content of a file or folder to the medium.
func (f *folder) sync(file *os.File, p string) error {
	if err := f.injected(opSync, p); err != nil {
		return err
	}
	return file.Sync()
}

// rename moves a file to its path, see tree.Tree.Rename.
func (f *folder) rename(from, to string) error {
	if err := f.injected(opRename, to); err != nil {
		return err
	}
	return f.tree.Rename(from, to)
}

// syncFolder syncs all folders of a path, from the innermost to the root: any of them may be new.
func (f *folder) syncFolder(p string) error { return f.tree.SyncFolders(p, f.sync) }

// remove removes a file or an empty folder.
func (f *folder) remove(p string) error {
	if err := f.injected(opRemove, p); err != nil {
		return err
	}
	return f.tree.Root.Remove(p)
}

// lstat describes what is at a path, without following a link.
func (f *folder) lstat(p string) (fs.FileInfo, error) {
	if err := f.injected(opLstat, p); err != nil {
		return nil, err
	}
	return f.tree.Root.Lstat(p)
}

// names returns all names in a folder.
func (f *folder) names(p string) ([]string, error) {
	d, err := f.tree.Root.Open(p)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// checkThere fails with errRootGone if the lock file, or the folder that is only read, is not the one that
// was opened: an answer from the open descriptors would be about files that no path leads to any more.
func (f *folder) checkThere() error {
	var info fs.FileInfo
	var err error
	if f.lock != nil {
		info, err = f.lstat(lockPath)
	} else if err = f.injected(opLstat, "."); err == nil {
		info, err = os.Stat(f.path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(info, f.self):
		return fmt.Errorf("%w: make the folder again, or reopen the level", errRootGone)
	case err != nil:
		return err
	}
	return nil
}

// close closes the folder and ends the lock. The lock is last.
func (f *folder) close() error {
	errs := []error{f.tree.Close()}
	if f.lock != nil {
		errs = append(errs, unlock(f.lock))
	}
	return errors.Join(errs...)
}
