package memory

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/shmfile"
)

// tree makes a file system of path, text, path, text...
func tree(files ...string) fs.FS {
	out := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		out[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return out
}

const smaps = `1000-3000 rw-s 00000000 00:1b 2 /dev/shm/before:x
Rss:                   8 kB
VmFlags: rd wr lo dd
3000-203000 rw-s 00000000 00:1b 3 /dev/shm/a b
Size:               2048 kB
Rss:                1024 kB
ShmemPmdMapped:        4 kB
Locked:             1024 kB
VmFlags: rd wr sh mr mw me ms dd hg
203000-303000 rw-s 00200000 00:1b 3 /dev/shm/a b
Rss:                 kB
Rss:                1024 kB
VmFlags: rd wr sh lo dd
303000-305000 rw-p 00000000 00:00 0
Rss:                   8 kB
VmFlags: rd
`

func TestParseSmaps(t *testing.T) {
	m, err := parseSmaps(strings.NewReader(smaps), 0x3000, 0x303000)
	require.NoError(t, err)
	require.Equal(t, mapping{Size: 3 << 20, Mapped: 2 << 20, Huge: 4 << 10, Locked: 1 << 20, NoDump: 3 << 20}, m)
	m, err = parseSmaps(strings.NewReader(smaps), 0x2000, 0x4000)
	require.NoError(t, err)
	require.Equal(t, mapping{Size: 8192, Mapped: 8192, Huge: 4096, Locked: 4096, NoDump: 8192}, m, "never more than the range")
	m, err = parseSmaps(strings.NewReader(""), 0, 9)
	require.NoError(t, err)
	require.Zero(t, m)
	_, err = parseSmaps(strings.NewReader("what is this"), 0, 9)
	require.ErrorContains(t, err, `no address range in "what is this"`)
}

func TestParseNumaMaps(t *testing.T) {
	const text = `1000 default file=/N7=8 N0=5 kernelpagesize_kB=4
3000 bind:0-1 file=/dev/shm/x\040y dirty=3 N0=2 N1=1 kernelpagesize_kB=4

203000 interleave:0-1 file=/dev/shm/x N1=3 N=4 Nx=1 N2=-1 kernelpagesize_kB=2048
`
	n, err := parseNumaMaps(strings.NewReader(text), 0x3000, 0x400000)
	require.NoError(t, err)
	require.Equal(t, map[int]int64{0: 8 << 10, 1: 4<<10 + 6<<20}, n)
	_, err = parseNumaMaps(strings.NewReader("zzz"), 0, 9)
	require.ErrorContains(t, err, `no address in "zzz"`)
}

func TestNodes(t *testing.T) {
	for text, want := range map[string][]int{"0\n": {0}, "0-2,5": {0, 1, 2, 5}} {
		t.Run(text, func(t *testing.T) {
			n, err := nodesWithMemory(tree("sys/devices/system/node/has_memory", text))
			require.NoError(t, err)
			require.Equal(t, want, n)
		})
	}
	for _, text := range []string{"", "x", "3-1", "-1", "0-99999999", "1,"} {
		t.Run(fmt.Sprintf("bad %q", text), func(t *testing.T) {
			_, err := nodesWithMemory(tree("sys/devices/system/node/has_memory", text))
			require.ErrorContains(t, err, fmt.Sprintf("%q is no list of nodes", text))
		})
	}
	_, err := nodesWithMemory(tree())
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestHugeSettings(t *testing.T) {
	const thp = "sys/kernel/mm/transparent_hugepage/"
	h := readHugeSettings(tree(thp+"hpage_pmd_size", "2097152\n", thp+"shmem_enabled", "always [deny] never\n"),
		shmfile.Mount{Point: "/dev/shm", Type: "tmpfs", Options: []string{"rw", "size=3k"}})
	require.Equal(t, int64(2<<20), h.PageSize)
	require.Equal(t, "deny", h.Shmem)
	require.Equal(t, int64(4<<20), h.wholePages(1<<20, 7<<20))
	require.Zero(t, h.wholePages(1, 1<<20))
	require.Zero(t, h.wholePages(1<<20, 3<<20))
	why := h.why(1<<20, 9<<20, fs.ErrPermission)
	for _, part := range []string{"multiple of 2097152", "huge=never", "remount,huge=advise /dev/shm", "deny", "permission"} {
		require.Contains(t, why, part)
	}
	h.Mount.Options, h.Shmem = []string{"huge=within_size"}, "never"
	require.Contains(t, h.why(2<<20, 4<<20, nil), "no huge page was free")
	require.Contains(t, h.why(2<<20, 3<<20, nil), "smaller")
	for _, size := range []string{"", "0", "-4", "3", "x"} {
		t.Run(fmt.Sprintf("page size %q", size), func(t *testing.T) {
			h := readHugeSettings(tree(thp+"hpage_pmd_size", size, thp+"shmem_enabled", "garbage"), shmfile.Mount{})
			require.Zero(t, h.PageSize)
			require.Zero(t, h.wholePages(0, 1<<30))
			require.Empty(t, h.Shmem)
			require.Contains(t, h.why(0, 1<<30, nil), "no transparent huge pages")
		})
	}
}
