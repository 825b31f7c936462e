package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Check reports why Open would refuse a folder, by the same errors, and changes nothing: it has the root's
// lock for a moment. A folder that is not there is fs.ErrNotExist, though Open would make it. Whether the
// folder can be written to is not looked at.
func Check(folder string, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	err := mayOpen(folder, o.withDefaults())
	if err == nil || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return explain(folder, "opening the root", err)
}

func mayOpen(folder string, o Options) (err error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	if ownedByOther(info) {
		return fmt.Errorf("disk: %s belongs to another user: use a folder of your own, or Options.ReadOnly: %w", folder, os.ErrPermission)
	}
	if err := mayBecomeRoot(root, folder, o); err != nil {
		return err
	}
	for _, d := range []string{ownDir, tempDir, damagedDir} {
		if err := realFolder(root, folder, d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	f, err := root.OpenFile(lockPath, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // Open makes it
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := lockFile(f, folder); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlockOnly(f)) }()
	id, err := readIdentity(f)
	if err != nil || id == nil {
		return err
	}
	return id.refuse(folder, o)
}
