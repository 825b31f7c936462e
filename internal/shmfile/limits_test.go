package shmfile

import (
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// tree makes a file system of path, text, path, text...
func tree(files ...string) fs.FS {
	out := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		out[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return out
}

const (
	v2Mount    = "40 31 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	v1Mount    = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
	v1CPUMount = "36 31 0:33 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu\n"
	noLimitV1  = "9223372036854771712\n"
)

func TestCgroupRoom(t *testing.T) {
	const top, mid, leaf = "sys/fs/cgroup/", "sys/fs/cgroup/pod/", "sys/fs/cgroup/pod/box/"
	const old = "sys/fs/cgroup/memory/"
	for name, c := range map[string]struct {
		root fs.FS
		want *Room
	}{
		"nothing there": {tree(), nil},
		"no mounts":     {tree("proc/self/cgroup", "0::/\n", top+"memory.max", "5\n"), nil},
		"garbage": {tree("proc/self/cgroup", "0::\nx\n::::\n\x00", "proc/self/mountinfo", "1 2 3\n - \nx - cgroup2\n"+v2Mount,
			top+"memory.max", "5\n"), nil},
		"v2 namespaced, file cache is not used": {tree("proc/self/cgroup", "0::/\n", "proc/self/mountinfo", v2Mount,
			top+"memory.max", "1000\n", top+"memory.current", "900\n",
			top+"memory.stat", "anon 300\nfile 600\nshmem 100\ninactive_file 200\nactive_file 250\nslab_reclaimable 50\n"),
			&Room{"/sys/fs/cgroup/memory.max", 1000, 400}},
		"v2 nested, an ancestor is tighter": {tree("proc/self/cgroup", "0::/pod/box\n", "proc/self/mountinfo", v2Mount,
			leaf+"memory.max", "1000\n", leaf+"memory.current", "100\n", leaf+"memory.stat", "inactive_file 0\n",
			mid+"memory.max", "1500\n", mid+"memory.current", "1200\n", mid+"memory.stat", "inactive_file 100\n"),
			&Room{"/sys/fs/cgroup/pod/memory.max", 1500, 1100}},
		"v2 max, and an ancestor's limit": {tree("proc/self/cgroup", "0::/pod/box\n", "proc/self/mountinfo", v2Mount,
			leaf+"memory.max", "max\n", mid+"memory.max", "700\n", mid+"memory.current", "1\n", mid+"memory.stat", ""),
			&Room{"/sys/fs/cgroup/pod/memory.max", 700, 1}},
		"v2 max only": {tree("proc/self/cgroup", "0::/pod\n", "proc/self/mountinfo", v2Mount, mid+"memory.max", "max\n"), nil},
		"v2 not a number": {tree("proc/self/cgroup", "0::/\n", "proc/self/mountinfo", v2Mount,
			top+"memory.max", "-5\n", top+"memory.current", "9\n"), nil},
		"v2 unknown use is none": {tree("proc/self/cgroup", "0::/\n", "proc/self/mountinfo", v2Mount,
			top+"memory.max", "1000\n", top+"memory.current", "??\n"), &Room{"/sys/fs/cgroup/memory.max", 1000, 0}},
		"v2 unknown cache is all": {tree("proc/self/cgroup", "0::/\n", "proc/self/mountinfo", v2Mount,
			top+"memory.max", "1000\n", top+"memory.current", "900\n"), &Room{"/sys/fs/cgroup/memory.max", 1000, 0}},
		"v2 garbage in stat": {tree("proc/self/cgroup", "0::/\n", "proc/self/mountinfo", v2Mount,
			top+"memory.max", "1000\n", top+"memory.current", "900\n", top+"memory.stat", "inactive_file\nactive_file x\ninactive_file -7\n"),
			&Room{"/sys/fs/cgroup/memory.max", 1000, 900}},
		"v2 more cache than use": {tree("proc/self/cgroup", "0::/\n", "proc/self/mountinfo", v2Mount,
			top+"memory.max", "1000\n", top+"memory.current", "900\n", top+"memory.stat", "inactive_file 5000\n"),
			&Room{"/sys/fs/cgroup/memory.max", 1000, 0}},
		"v2 more use than limit": {tree("proc/self/cgroup", "0::/\n", "proc/self/mountinfo", v2Mount,
			top+"memory.max", "1000\n", top+"memory.current", "1900\n", top+"memory.stat", ""),
			&Room{"/sys/fs/cgroup/memory.max", 1000, 1900}},
		"v2 outside of the namespace": {tree("proc/self/cgroup", "0::/../other\n", "proc/self/mountinfo", v2Mount,
			top+"memory.max", "1000\n"), nil},
		"v2 host path, mount is that part": {tree("proc/self/cgroup", "0::/docker/id/sub\n",
			"proc/self/mountinfo", "40 31 0:30 /docker/id /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			top+"memory.max", "1000\n", top+"sub/memory.max", "500\n"), &Room{"/sys/fs/cgroup/sub/memory.max", 500, 0}},
		"v1": {tree("proc/self/cgroup", "5:cpu:/c\n4:memory:/a/b\n0::/\n", "proc/self/mountinfo", v1CPUMount+v1Mount,
			old+"memory.limit_in_bytes", noLimitV1, old+"a/memory.limit_in_bytes", noLimitV1,
			old+"a/b/memory.limit_in_bytes", "1000\n", old+"a/b/memory.usage_in_bytes", "700\n",
			old+"a/b/memory.stat", "inactive_file 1\ntotal_inactive_file 200\ntotal_active_file 100\n"),
			&Room{"/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", 1000, 400}},
		"v1 host path, mount is that part": {tree("proc/self/cgroup", "4:cpu,memory:/docker/id\n",
			"proc/self/mountinfo", "35 31 0:32 /docker/id /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			old+"memory.limit_in_bytes", "1000\n"), &Room{"/sys/fs/cgroup/memory/memory.limit_in_bytes", 1000, 0}},
		"v1 path that can't be seen": {tree("proc/self/cgroup", "4:memory:/docker/id\n", "proc/self/mountinfo", v1Mount,
			old+"memory.limit_in_bytes", "1000\n"), &Room{"/sys/fs/cgroup/memory/memory.limit_in_bytes", 1000, 0}},
		"v1 without hierarchy": {tree("proc/self/cgroup", "4:memory:/a/b\n", "proc/self/mountinfo", v1Mount,
			old+"a/memory.use_hierarchy", "0\n", old+"a/memory.limit_in_bytes", "10\n",
			old+"a/b/memory.use_hierarchy", "0\n", old+"a/b/memory.limit_in_bytes", "1000\n"),
			&Room{"/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", 1000, 0}},
		"hybrid": {tree("proc/self/cgroup", "4:memory:/\n0::/x\n",
			"proc/self/mountinfo", v1Mount+"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			old+"memory.limit_in_bytes", "1000\n", "sys/fs/cgroup/unified/x/memory.pressure", "x"),
			&Room{"/sys/fs/cgroup/memory/memory.limit_in_bytes", 1000, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := CgroupRoom(c.root)
			require.Equal(t, c.want != nil, ok, "%+v", got)
			if c.want != nil {
				require.Equal(t, *c.want, got)
				require.Equal(t, max(0, got.Limit-got.Used), got.Left())
			}
		})
	}
}

func TestMountOf(t *testing.T) {
	root := tree("proc/self/mountinfo", `24 1 8:1 / / rw - ext4 /dev/vda rw
25 24 0:23 / /dev/shm rw - tmpfs tmpfs rw,size=1k
30 25 0:27 / /dev/shm rw master:1 shared:2 - tmpfs tmpfs rw,size=2k,huge=advise
31 24 0:28 / /with\040space rw - tmpfs tmpfs rw
32 24 0:29 / /dev/shmoo rw - tmpfs tmpfs rw
33 24 0:31 / /dev/shm/lower rw - tmpfs tmpfs rw
34 24 0:27 / /dev/shm/bind rw - tmpfs tmpfs rw
broken
`)
	for _, c := range []struct{ dir, device, point, size string }{
		{"/dev/shm", "0:27", "/dev/shm", "2k"},
		{"/dev/shm", "0:23", "/dev/shm", "1k"},
		{"/dev/shm", "9:9", "/dev/shm", "2k"},
		{"/dev/shm/x/y", "", "/dev/shm", "2k"},
		{"/dev/shm/lower", "0:27", "/dev/shm", "2k"}, // mounted over
		{"/dev/shm/bind/x", "0:27", "/dev/shm/bind", ""},
		{"/dev/shmo", "", "/", ""},
		{"/with space/x", "0:28", "/with space", ""},
		{"/", "8:1", "/", ""},
	} {
		t.Run(fmt.Sprintf("%s on %q", c.dir, c.device), func(t *testing.T) {
			m, ok := MountOf(root, c.dir, c.device)
			require.True(t, ok)
			require.Equal(t, c.point, m.Point)
			require.Equal(t, c.size, m.Option("size"))
		})
	}
	_, ok := MountOf(tree(), "/dev/shm", "0:27")
	require.False(t, ok)
	_, ok = MountOf(root, "relative", "")
	require.False(t, ok)
}
