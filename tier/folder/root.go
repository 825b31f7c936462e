package folder

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/internal/tree"
)

// purpose is what a folder is opened for.
type purpose int

const (
	keep    purpose = iota // it was a root before, and is not made one: else its mount is missing
	prepare                // it becomes a root if it is none
	look                   // nothing in it is changed
)

// openRoot opens a folder, and compares its identity with the options. It makes file calls.
func openRoot(path string, o *Options, why purpose) (_ *tree.Tree, info fs.FileInfo, err error) {
	t, err := tree.Open(path)
	switch {
	case err != nil && isAbsent(err) && why == keep:
		return nil, nil, fmt.Errorf("%w: %w", errNotMounted, err)
	case err != nil && isAbsent(err):
		return nil, nil, fmt.Errorf("%w: mount it, or make the folder: %w", fs.ErrInvalid, err)
	case err != nil:
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if info, err = t.Dir.Stat(); err != nil {
		return nil, nil, err
	}
	id, err := readIdentity(t)
	switch {
	case err != nil:
		return nil, nil, err
	case id == nil && why == keep:
		return nil, nil, errNotMounted
	case id == nil:
		if err := mayBecomeRoot(t, path, o); err != nil || why == look {
			return t, info, err
		}
		if id, err = makeRoot(t, o); err != nil {
			return nil, nil, err
		}
	}
	return t, info, refuse(id, path, o)
}

// readIdentity returns the identity of a root, and nil for a folder that is none.
func readIdentity(t *tree.Tree) (*tree.Identity, error) {
	f, _, err := t.OpenFile(tree.LockPath)
	switch {
	case errors.Is(err, tree.ErrForeign):
		return nil, fmt.Errorf("%s is not a regular file: remove it: %w", tree.LockPath, fs.ErrInvalid)
	case err != nil && isAbsent(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	id, err := tree.ReadIdentity(f)
	return id, errors.Join(err, f.Close())
}

// Identify returns the layout and the space of a root of this package, as they are in the folder; the space is empty if the
// root is not of one alone. A folder that is no such root is an fs.ErrNotExist.
func Identify(path string) (layout, space string, err error) {
	t, err := tree.Open(path)
	if err != nil {
		return "", "", err
	}
	id, err := readIdentity(t)
	switch err = errors.Join(err, t.Close()); {
	case err != nil:
		return "", "", err
	case id == nil || id.Format != tree.FormatShared:
		return "", "", fmt.Errorf("folder: %s is not a root that several hosts share: %w", path, fs.ErrNotExist)
	case id.Space != nil:
		space = *id.Space
	}
	return id.Layout, space, nil
}

// refuse returns an error if the root has another layout or space than the options.
func refuse(id *tree.Identity, path string, o *Options) error {
	has := ""
	if id.Space != nil {
		has = *id.Space
	}
	switch {
	case id.Format == tree.FormatAlone:
		return fmt.Errorf("it is a root of one process at a time: use another folder, or, when no process has it, remove %s/%s: %w",
			path, tree.LockPath, errors.ErrUnsupported)
	case id.Format != tree.FormatShared:
		return fmt.Errorf("the root has the format %d, this library reads the format %d: use another folder: %w", id.Format,
			tree.FormatShared, errors.ErrUnsupported)
	case id.Layout != o.Layout.Name():
		return fmt.Errorf("it is a root of the layout %q, not of %q: use another folder, or name its layout: %w", id.Layout,
			o.Layout.Name(), fs.ErrInvalid)
	case (id.Space == nil) != (o.Space == "") || has != o.Space:
		return fmt.Errorf("it is a root for the space %q, and Options.Space is %q (none is every space): use another folder: %w",
			has, o.Space, fs.ErrInvalid)
	}
	return nil
}

// mayBecomeRoot refuses a folder that is not a root and has files, since a level would take them for its own. In the
// layout of other programs they are: a layout without a checksum is one.
func mayBecomeRoot(t *tree.Tree, path string, o *Options) error {
	if !disk.HasSums(o.Layout) {
		return nil
	}
	d, err := t.Root.Open(".")
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(16)
	if err = errors.Join(noEOF(err), d.Close()); err != nil {
		return err
	}
	for _, n := range names {
		if n != tree.OwnDir && n != "lost+found" && n != ".snapshot" {
			return fmt.Errorf("%s is no root, and not empty (it has %q), and %s is a layout of this library alone: name an empty folder: %w",
				path, n, o.Layout.Name(), fs.ErrExist)
		}
	}
	return err
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// makeRoot makes a folder a root. Several hosts may do so at the same time: the first one decides what it is.
func makeRoot(t *tree.Tree, o *Options) (*tree.Identity, error) {
	for _, d := range []string{tree.OwnDir, tree.TempDir, tree.LeavingDir} {
		if err := t.Root.Mkdir(d, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if info, err := t.Root.Lstat(d); err != nil || !info.IsDir() {
			return nil, errors.Join(err, fmt.Errorf("%s is not a folder: remove it: %w", d, fs.ErrInvalid))
		}
	}
	id := tree.Identity{Format: tree.FormatShared, Layout: o.Layout.Name()}
	if o.Space != "" {
		id.Space = &o.Space
	}
	b, err := json.Marshal(id)
	if err != nil {
		return nil, err
	}
	if _, err := place(t, append(b, '\n'), tree.TempDir+"/identity-"+randomName(), tree.LockPath); err != nil {
		return nil, err
	}
	return readIdentity(t)
}

// place makes a small file at a path where there is none, complete. It reports false if there is one.
func place(t *tree.Tree, b []byte, temp, to string) (placed bool, err error) {
	if err := writeSmall(t, b, temp); err != nil {
		return false, err
	}
	err = link(t, temp, to)
	if errors.Is(err, fs.ErrExist) {
		return false, t.Root.Remove(temp)
	}
	return err == nil, err
}

// replace makes a small file at a path, and takes the place of the one that is there.
func replace(t *tree.Tree, b []byte, temp, to string) error {
	if err := writeSmall(t, b, temp); err != nil {
		return err
	}
	return t.Root.Rename(temp, to)
}

func writeSmall(t *tree.Tree, b []byte, temp string) error {
	f, err := t.Root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, bytes.NewReader(b))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, t.Root.Remove(temp))
	}
	return nil
}

// link moves a file to a path where there is none: by a hard link, since a rename takes the place of what is there. On a
// file system without links, two that move a file to the same path at the same time both succeed.
func link(t *tree.Tree, from, to string) error {
	err := t.Root.Link(from, to)
	if err == nil {
		return t.Root.Remove(from)
	}
	if errors.Is(err, fs.ErrExist) || !cannotLink(err) {
		return err
	}
	if _, err := t.Root.Lstat(to); err == nil {
		return fs.ErrExist
	}
	return t.Root.Rename(from, to)
}

func randomName() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
