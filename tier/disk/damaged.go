package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/ringcache/ringcache/internal/failpoint"
)

// quarantine moves a damaged file to .ringcache/damaged, or removes it if it is empty or larger than
// Options.KeepDamaged. The rename comes before the removal of older damaged files, so a kill between the two
// leaves too many: Open trims them.
func (f *folder) quarantine(path string, size int64, o Options) error {
	if size > o.KeepDamaged || size == 0 {
		return f.remove(path)
	}
	if err := requireFolder(f.tree.Root, f.path, damagedDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // rename makes a folder that is missing
	}
	// The time comes first, so that trimDamaged can sort by name.
	to := fmt.Sprintf("%s/%020d+%s", damagedDir, o.now().UnixNano(), lastBytes(strings.ReplaceAll(path, "/", "+"), 200))
	if err := f.rename(path, to); err != nil {
		return err
	}
	failpoint.Hit("disk.aside")
	return f.trimDamaged(o.KeepDamaged)
}

// lastBytes returns the last n bytes of s: the end of a path tells files apart better than its beginning.
func lastBytes(s string, n int) string { return s[max(0, len(s)-n):] }

// trimDamaged removes the oldest damaged files until the others have at most so many bytes.
func (f *folder) trimDamaged(most int64) error {
	names, err := f.names(damagedDir)
	if err != nil {
		return err
	}
	// The newest first: those are kept.
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(b, a) })
	var sum int64
	for _, n := range names {
		p := damagedDir + "/" + n
		info, err := f.tree.Root.Lstat(p)
		if err != nil {
			if isAbsent(err) {
				continue
			}
			return err
		}
		if sum += info.Size(); sum <= most && info.Mode()&fs.ModeType == 0 {
			continue
		}
		if err := f.tree.Root.RemoveAll(p); err != nil {
			return err
		}
	}
	return nil
}
