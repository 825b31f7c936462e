package shmfile

import (
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestFindHost(t *testing.T) {
	file := &fstest.MapFile{}
	for name, c := range map[string]struct {
		files fstest.MapFS
		env   map[string]string
		want  host
	}{
		"nothing":          {nil, nil, bare},
		"docker":           {fstest.MapFS{".dockerenv": file}, nil, docker},
		"podman":           {fstest.MapFS{"run/.containerenv": file}, nil, docker},
		"another runtime":  {nil, map[string]string{"container": "oci"}, docker},
		"a pod":            {fstest.MapFS{".dockerenv": file}, map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, kubernetes},
		"a pod with token": {fstest.MapFS{"var/run/secrets/kubernetes.io/serviceaccount/token": file}, nil, kubernetes},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, findHost(c.files, func(k string) string { return c.env[k] }))
		})
	}
}

func TestSpaceErrorNamesTheSetting(t *testing.T) {
	const mib = 1 << 20
	shm := Mount{Point: "/dev/shm", Type: "tmpfs"}
	mount := func(h host, m Mount) *SpaceError {
		return mountSpace(h, "/dev/shm/x", 128*mib, 60*mib+1, 64*mib, m)
	}
	cgroup := func(h host, file string) *SpaceError {
		return cgroupSpace(h, "/dev/shm/x", 128*mib, Room{File: file, Limit: 100 * mib, Used: 30*mib + 5})
	}
	for name, c := range map[string]struct {
		err    *SpaceError
		cgroup bool
		text   []string
	}{
		"host":        {mount(bare, shm), false, []string{"mount -o remount,size=132m /dev/shm"}},
		"docker":      {mount(docker, shm), false, []string{"docker run --shm-size=132m", "shm_size: 132m"}},
		"kubernetes":  {mount(kubernetes, shm), false, []string{"emptyDir", "medium: Memory", "sizeLimit: 132Mi at /dev/shm"}},
		"other tmpfs": {mount(docker, Mount{Point: "/ring", Type: "tmpfs"}), false, []string{"docker run --tmpfs /ring:size=132m"}},
		"disk":        {mount(bare, Mount{Point: "/", Type: "ext4"}), false, []string{"on the mount /", "this ext4 file system", "/dev/shm"}},
		"unknown":     {mount(bare, Mount{}), false, []string{"on the mount /dev/shm", "make room"}},
		"cgroup": {cgroup(bare, "/sys/fs/cgroup/a/memory.max"), true,
			[]string{"/sys/fs/cgroup/a/memory.max", "MemoryMax=159M", "159M to it", "30.0 MiB are in use", "shared memory is a part"}},
		"cgroup in docker": {cgroup(docker, "/sys/fs/cgroup/memory/memory.limit_in_bytes"), true,
			[]string{"memory.limit_in_bytes", "docker run --memory=159m", "mem_limit: 159m"}},
		"cgroup in kubernetes": {cgroup(kubernetes, "/sys/fs/cgroup/memory.max"), true,
			[]string{"resources.limits.memory", "159Mi"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, c.err, syscall.ENOSPC)
			require.Equal(t, c.cgroup, c.err.Cgroup)
			text := c.err.Error()
			for _, part := range append(c.text, "/dev/shm/x needs 128.0 MiB") {
				require.Contains(t, text, part)
			}
			t.Log(text)
			require.Equal(t, int64(128*mib), c.err.Need)
			if !c.cgroup {
				require.Contains(t, text, "60.0 MiB are left")
				require.Contains(t, text, "of 64.0 MiB")
				require.Equal(t, int64(60*mib+1), c.err.Have)
				require.Equal(t, int64(64*mib), c.err.Size)
			} else {
				require.Contains(t, text, "70.0 MiB are left")
				require.Contains(t, text, "of 100.0 MiB")
			}
		})
	}
}
