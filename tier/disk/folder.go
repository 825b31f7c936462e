package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"sync/atomic"
	"syscall"
)

// operation names what is done to a file, for tests that make it fail.
type operation string

const (
	opOpen   operation = "open"
	opRead   operation = "read"
	opCreate operation = "create"
	opWrite  operation = "write"
	opSync   operation = "sync"
	opRename operation = "rename"
	opRemove operation = "remove"
	opLook   operation = "look"
	opList   operation = "list"
)

// The files of a root that are no objects.
const (
	ownDir     = ".ringcache"
	lockPath   = ownDir + "/lock"
	tempDir    = ownDir + "/tmp"
	damagedDir = ownDir + "/damaged"
)

// folder does what is done with files of a root. Paths are relative to it, with slashes. No path leads out of
// the folder, and only regular files are opened, never through a link.
type folder struct {
	path string
	root *os.Root
	dir  *os.File // the same, for calls that os.Root does not have
	lock *os.File // nil if it is only read
	self fs.FileInfo
	fail func(op operation, p string) error
	temp atomic.Uint64
}

// failing returns the error that a test wants, or nil.
func (f *folder) failing(op operation, p string) error {
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
	if err := f.failing(opOpen, p); err != nil {
		return nil, nil, err
	}
	file, err := f.openNoLinks(p)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is no regular file", errForeign, p)
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

// openByRoot is openNoLinks for systems without a call for it.
func (f *folder) openByRoot(p string) (*os.File, error) {
	for at := p; at != "."; at = path.Dir(at) {
		info, err := f.root.Lstat(at)
		if err != nil {
			return nil, err
		}
		if at == p && !info.Mode().IsRegular() || at != p && !info.IsDir() {
			return nil, fmt.Errorf("%w: %s is no regular file, or a part of its path no folder", errForeign, p)
		}
	}
	// Without waiting, if it has become a pipe in between.
	return f.root.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// readAt fills b. A file that ends before is an io.ErrUnexpectedEOF.
func (f *folder) readAt(file *os.File, p string, b []byte, at int64) error {
	if err := f.failing(opRead, p); err != nil {
		return err
	}
	n, err := file.ReadAt(b, at)
	switch {
	case n == len(b):
		return nil
	case err == io.EOF: //nolint:errorlint // an os.File returns it as it is
		return io.ErrUnexpectedEOF
	}
	return err
}

// reader is what layouts read heads with.
type reader struct {
	f    *folder
	file *os.File
	path string
}

func (r reader) ReadAt(b []byte, at int64) (int, error) {
	if err := r.f.failing(opRead, r.path); err != nil {
		return 0, err
	}
	return r.file.ReadAt(b, at)
}

// create makes a temporary file.
func (f *folder) create() (*os.File, string, error) {
	p := tempDir + "/" + strconv.FormatUint(f.temp.Add(1), 16)
	if err := f.failing(opCreate, p); err != nil {
		return nil, "", err
	}
	file, err := f.root.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NONBLOCK, 0o600)
	return file, p, err
}

// write writes all of b at an offset.
func (f *folder) write(file *os.File, p string, b []byte, at int64) error {
	if err := f.failing(opWrite, p); err != nil {
		return err
	}
	_, err := file.WriteAt(b, at)
	return err
}

func (f *folder) sync(file *os.File, p string) error {
	if err := f.failing(opSync, p); err != nil {
		return err
	}
	return file.Sync()
}

// rename gives a file its place, and makes the folders on the way there. An empty folder in its place goes.
// It is errTaken if something else lies there, or in the way: what is stored through a link is not found
// again.
func (f *folder) rename(from, to string) error {
	if err := f.failing(opRename, to); err != nil {
		return err
	}
	parent := path.Dir(to)
	for try := 1; ; try++ {
		err := f.isFolder(parent)
		if err == nil {
			err = f.root.Rename(from, to)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errForeign), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP):
			return fmt.Errorf("%w: on the way to %s is something that is no folder", errTaken, to)
		case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.EEXIST), errors.Is(err, syscall.ENOTEMPTY):
			if f.root.Remove(to) != nil || try == 10 { // only an empty one goes
				return fmt.Errorf("%w: %s is a folder with something in it", errTaken, to)
			}
		case !errors.Is(err, fs.ErrNotExist) || try == 10:
			return err
		case parent != ".": // others may remove it again, when it is empty
			if err := f.root.MkdirAll(parent, 0o700); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
				return err
			}
		}
	}
}

// lstatFolder is isFolder for systems without a call for it.
func (f *folder) lstatFolder(p string) error {
	for at := p; at != "."; at = path.Dir(at) {
		info, err := f.root.Lstat(at)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return fmt.Errorf("%w: %s is no folder", errForeign, at)
		}
	}
	return nil
}

// syncFolder writes the names of a folder, and those of the folders around it, to the medium.
func (f *folder) syncFolder(p string) error {
	for {
		p = path.Dir(p)
		d, err := f.root.Open(p)
		if err != nil {
			return err
		}
		if err := errors.Join(f.sync(d, p), d.Close()); err != nil || p == "." {
			return err
		}
	}
}

func (f *folder) remove(p string) error {
	if err := f.failing(opRemove, p); err != nil {
		return err
	}
	return f.root.Remove(p)
}

func (f *folder) lstat(p string) (fs.FileInfo, error) {
	if err := f.failing(opLook, p); err != nil {
		return nil, err
	}
	return f.root.Lstat(p)
}

// alive reports, as an ErrUnavailable, that the root is not there any more, or is another one's.
func (f *folder) alive() error {
	var info fs.FileInfo
	var err error
	if f.lock != nil {
		info, err = f.lstat(lockPath)
	} else if err = f.failing(opLook, "."); err == nil {
		info, err = os.Stat(f.path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(info, f.self):
		return fmt.Errorf("%w: make the folder again, or reopen the level", errVanished)
	case err != nil:
		return err
	}
	return nil
}

// close gives the lock up.
func (f *folder) close() error {
	errs := []error{f.dir.Close(), f.root.Close()}
	if f.lock != nil {
		errs = append(errs, unlock(f.lock))
	}
	return errors.Join(errs...)
}
