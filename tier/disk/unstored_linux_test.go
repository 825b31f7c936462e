package disk

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

// TestUnstoredAfterDamage: whatever lies at the place of an object, or on the way there, what Put has stored
// is there after a restart, and what it can't store is an error that says so.
func TestUnstoredAfterDamage(t *testing.T) {
	damages := []struct {
		name   string
		stored bool
		do     func(t *testing.T, file string)
	}{
		{"nothing", true, func(*testing.T, string) {}},
		{"cut", true, func(t *testing.T, file string) {
			require.NoError(t, os.WriteFile(file, []byte("ringobj"), 0o600))
		}},
		{"empty", true, func(t *testing.T, file string) { require.NoError(t, os.WriteFile(file, nil, 0o600)) }},
		{"strange", true, func(t *testing.T, file string) {
			require.NoError(t, os.WriteFile(file, make([]byte, 5000), 0o600))
		}},
		{"unreadable", true, func(t *testing.T, file string) {
			require.NoError(t, os.WriteFile(file, []byte("x"), 0))
		}},
		{"link", true, func(t *testing.T, file string) { require.NoError(t, os.Symlink("/etc/passwd", file)) }},
		{"link in a circle", true, func(t *testing.T, file string) {
			require.NoError(t, os.Symlink(filepath.Base(file), file))
		}},
		{"pipe", true, func(t *testing.T, file string) { require.NoError(t, makePipe(file)) }},
		{"empty folder", true, func(t *testing.T, file string) { require.NoError(t, os.Mkdir(file, 0o700)) }},
		{"folder", false, func(t *testing.T, file string) {
			require.NoError(t, os.Mkdir(file, 0o700))
			require.NoError(t, os.WriteFile(file+"/x", nil, 0o600))
		}},
		{"folder is a file", false, func(t *testing.T, file string) {
			require.NoError(t, os.RemoveAll(filepath.Dir(file)))
			require.NoError(t, os.WriteFile(filepath.Dir(file), nil, 0o600))
		}},
		{"folder is a link", false, func(t *testing.T, file string) {
			require.NoError(t, os.RemoveAll(filepath.Dir(file)))
			require.NoError(t, os.MkdirAll(filepath.Dir(file)+"-elsewhere", 0o700))
			require.NoError(t, os.Symlink(filepath.Base(filepath.Dir(file))+"-elsewhere", filepath.Dir(file)))
		}},
		{"folder is a link to nothing", false, func(t *testing.T, file string) {
			require.NoError(t, os.RemoveAll(filepath.Dir(file)))
			require.NoError(t, os.Symlink("nothing", filepath.Dir(file)))
		}},
	}
	for _, open := range []bool{true, false} { // while the damage is done
		t.Run(fmt.Sprint(open), func(t *testing.T) {
			dir := t.TempDir()
			l := ready(t, dir, Options{})
			if !open {
				closeLevel(t, l)
			}
			// Names with folders of their own.
			var names []string
			for i, seen := 0, map[string]bool{}; len(names) < len(damages); i++ {
				name := fmt.Sprint(i)
				if folder := filepath.Dir(fileOf(t, dir, name)); !seen[folder] {
					seen[folder] = true
					names = append(names, name)
				}
			}
			for i, d := range damages {
				file := fileOf(t, dir, names[i])
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
				d.do(t, file)
			}
			if !open {
				l = ready(t, dir, Options{})
			}
			stored := 0
			for i, d := range damages {
				err := put(l, objectOf(names[i], 100), content(names[i], 100))
				if d.stored {
					require.NoError(t, err, d.name)
					stored++
					continue
				}
				require.ErrorIs(t, err, fs.ErrExist, d.name)
				require.NotErrorIs(t, err, tier.ErrUnavailable, "nobody tries again for ever: %s", d.name)
				requireMiss(t, stat(l, names[i]))
			}
			_, temporary, _ := files(t, dir)
			require.Empty(t, temporary)
			closeLevel(t, l)
			l = ready(t, dir, Options{})
			require.EqualValues(t, stored, l.Usage().Objects)
			for i, d := range damages {
				if d.stored {
					mustGet(t, l, names[i], 100)
				}
			}
		})
	}
}
