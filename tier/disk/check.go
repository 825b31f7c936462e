package disk

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// Check reports why Open would refuse a folder, by the same errors, and changes nothing. It holds the lock of
// the root for a moment. A folder that is not there is fs.ErrNotExist, though Open would make it. Check does
// not test whether the folder can be written to.
func Check(folder string, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	err := checkRoot(folder, o.withDefaults())
	if err == nil || errors.Is(err, fs.ErrNotExist) || explainsItself(err) {
		return err
	}
	return explain(folder, "opening the root", err)
}

// checkRoot goes through the steps of openRoot and lockRoot, without those that write.
func checkRoot(folder string, o Options) (err error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	if err := refuseOtherOwner(folder, info); err != nil {
		return err
	}
	if err := mayBecomeRoot(root, folder, o); err != nil {
		return err
	}
	for _, d := range []string{ownDir, tempDir, damagedDir} {
		if err := requireFolder(root, folder, d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// The lock shows whether another process has the root. Without a lock file, Open makes one.
	f, err := root.OpenFile(lockPath, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
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
