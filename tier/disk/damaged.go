package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/ringcache/ringcache/internal/failpoint"
)

// putAside takes a damaged file out of its place: to the folder of damaged files, or away.
func (f *folder) putAside(path string, size int64, o Options) error {
	if size > o.KeepDamaged || size == 0 {
		return f.remove(path)
	}
	if err := realFolder(f.root, f.path, damagedDir); err != nil && !errors.Is(err, fs.ErrNotExist) { // rename makes it again
		return err
	}
	// By time, so that the names are in order.
	to := fmt.Sprintf("%s/%020d+%s", damagedDir, o.now().UnixNano(), tail(nameOf(path), 200))
	if err := f.rename(path, to); err != nil {
		return err
	}
	failpoint.Hit("disk.aside")
	return f.trimDamaged(o.KeepDamaged)
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// trimDamaged removes the oldest damaged files, so that the others have at most so many bytes.
func (f *folder) trimDamaged(most int64) error {
	d, err := f.root.Open(damagedDir)
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return err
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(b, a) })
	var sum int64
	for _, n := range names {
		p := damagedDir + "/" + n
		info, err := f.root.Lstat(p)
		if err != nil {
			if isAbsent(err) {
				continue
			}
			return err
		}
		if sum += info.Size(); sum <= most && info.Mode()&fs.ModeType == 0 {
			continue
		}
		if err := f.root.RemoveAll(p); err != nil {
			return err
		}
	}
	return nil
}
