package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/internal/tree"
)

// Identify returns the layout and the space of a root, as they are in its lock file; the space is
// empty if the root is not of one alone. It takes no lock. A folder that is no root is fs.ErrNotExist.
func Identify(folder string) (layout, space string, err error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return "", "", err
	}
	defer root.Close()
	f, err := root.Open(lockPath)
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	id, err := readIdentity(f)
	switch {
	case err != nil:
		return "", "", err
	case id == nil:
		return "", "", fmt.Errorf("disk: %s: the lock file is empty, since its maker was killed: open the root: %w",
			folder, fs.ErrNotExist)
	case id.Space != nil:
		space = *id.Space
	}
	return id.Layout, space, nil
}

// readIdentity is tree.ReadIdentity, and refuses roots that are not for one process.
func readIdentity(f io.ReaderAt) (*identity, error) {
	id, err := tree.ReadIdentity(f)
	switch {
	case err != nil || id == nil:
		return nil, err
	case id.Format == tree.FormatShared:
		return nil, fmt.Errorf("disk: the root is one that several hosts use: open it as such (folder:PATH, `--folder` of the daemon), or use another folder: %w",
			fs.ErrInvalid)
	case id.Format != tree.FormatAlone:
		return nil, fmt.Errorf("disk: the root has the format %d, this library reads the format %d: use another folder: %w",
			id.Format, tree.FormatAlone, errors.ErrUnsupported)
	}
	return (*identity)(id), nil
}

// identity is the content of the lock file.
type identity tree.Identity

// lockRoot makes the folders of a root, locks it for this process, and compares its identity with the
// options. It tries again if another process has removed or replaced the lock file between open and lock.
func lockRoot(root *os.Root, folder string, o Options) (*os.File, error) {
	if err := mayBecomeRoot(root, folder, o); err != nil {
		return nil, err
	}
	for _, d := range []string{ownDir, tempDir, damagedDir} {
		if err := root.Mkdir(d, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if err := requireFolder(root, folder, d); err != nil {
			return nil, err
		}
	}
	for range 100 {
		// Not for writing: a file system with a file that is open for writing can't be mounted read-only.
		f, err := root.OpenFile(lockPath, os.O_RDONLY|os.O_CREATE|syscall.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, err
		}
		failpoint.Hit("disk.lock.created")
		again, err := lockOnce(root, f, folder, o)
		if err == nil && !again {
			return f, nil
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("disk: %s: the lock file was replaced 100 times: find the process that does that: %w",
		folder, tier.ErrUnavailable)
}

// requireFolder refuses a link or a file in place of a folder of .ringcache: this level removes files in such
// a folder, and through a link they would be files of another program.
func requireFolder(root *os.Root, folder, p string) error {
	info, err := root.Lstat(p)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("disk: %s/%s is not a folder, but %v: remove it: %w", folder, p, info.Mode().Type(),
			fs.ErrInvalid)
	}
	return err
}

// lockFile locks the lock file without waiting. The kernel ends the lock with the process, so a kill leaves
// none.
func lockFile(f *os.File, folder string) (fs.FileInfo, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("disk: %s/%s is not a regular file: remove it: %w", folder, lockPath, fs.ErrInvalid)
	}
	switch ok, err := shmfile.TryLock(f); {
	case errors.Is(err, errors.ErrUnsupported):
		return nil, fmt.Errorf("disk: roots can be locked on Linux only; Options.ReadOnly opens them elsewhere: %w",
			errors.ErrUnsupported)
	case err != nil:
		return nil, err
	case !ok:
		return nil, fmt.Errorf("disk: %s: another process has this root: end it, use another folder, or open the root "+
			"with Options.ReadOnly: %w", folder, tier.ErrUnavailable)
	}
	return info, nil
}

// lockOnce locks f. It reports again if f had lost its name before it was locked: then the lock protects
// nothing.
func lockOnce(root *os.Root, f *os.File, folder string, o Options) (again bool, err error) {
	info, err := lockFile(f, folder)
	if err != nil {
		return false, err
	}
	if now, err := root.Lstat(lockPath); err != nil || !os.SameFile(now, info) {
		return true, unlockOnly(f)
	}
	id, err := readIdentity(f)
	if err != nil {
		return false, errors.Join(err, unlockOnly(f))
	}
	if id == nil {
		err = writeIdentity(root, o)
	} else {
		err = id.refuse(folder, o)
	}
	if err != nil {
		return false, errors.Join(err, unlockOnly(f))
	}
	failpoint.Hit("disk.lock.taken")
	return false, nil
}

// writeIdentity writes the content of an empty lock file. It is synced, so that a root never changes its
// layout after a power failure.
func writeIdentity(root *os.Root, o Options) (err error) {
	id := tree.Identity{Format: tree.FormatAlone, Layout: o.Layout.Name()}
	if o.Space != "" {
		id.Space = &o.Space
	}
	b, err := json.Marshal(id)
	if err != nil {
		return err
	}
	f, err := root.OpenFile(lockPath, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteAt(append(b, '\n'), 0); err != nil {
		return err
	}
	return f.Sync()
}

// refuse returns an error if the root has another layout or space than the options.
func (id *identity) refuse(folder string, o Options) error {
	if id.Layout != o.Layout.Name() {
		return fmt.Errorf("disk: %s is a root of the layout %q, not of %q: use another folder, or name its layout: %w",
			folder, id.Layout, o.Layout.Name(), fs.ErrInvalid)
	}
	has := "every space"
	if id.Space != nil {
		has = fmt.Sprintf("the space %q", *id.Space)
	}
	switch {
	case o.ReadOnly && o.Space == "":
		return nil
	case (o.Space == "") != (id.Space == nil), id.Space != nil && *id.Space != o.Space:
		return fmt.Errorf("disk: %s is a root for %s, and Options.Space is %q: use another folder: %w",
			folder, has, o.Space, fs.ErrInvalid)
	}
	return nil
}

// refuseOtherOwner refuses a folder of another user, who could remove the lock file under this level.
func refuseOtherOwner(folder string, info fs.FileInfo) error {
	if tree.OwnedByOther(info) {
		return fmt.Errorf("disk: %s belongs to another user: use a folder of your own, or Options.ReadOnly: %w",
			folder, os.ErrPermission)
	}
	return nil
}

// mayBecomeRoot refuses a folder that is not a root and has files, since the level would take them for its
// own.
func mayBecomeRoot(root *os.Root, folder string, o Options) error {
	if _, err := root.Lstat(lockPath); err == nil || o.Shared {
		return nil
	}
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(64)
		for _, n := range names {
			if n != ownDir && n != "lost+found" {
				return fmt.Errorf("disk: %s is no root, and not empty (it has %q): name an empty or a new folder; "+
					"Options.Shared is for a tree of other programs: %w", folder, n, fs.ErrExist)
			}
		}
		switch {
		case err == io.EOF: //nolint:errorlint // a folder returns it as it is
			return nil
		case err != nil:
			return err
		}
	}
}

// unlockOnly ends the lock and leaves the file open.
func unlockOnly(f *os.File) error {
	if err := shmfile.Unlock(f); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// unlock ends the lock and closes the file. Closing alone is not enough: a child process that is being
// started may have a copy of the descriptor for a moment longer, and with it the lock.
func unlock(f *os.File) error { return errors.Join(unlockOnly(f), f.Close()) }
