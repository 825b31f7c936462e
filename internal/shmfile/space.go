package shmfile

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/ringcache/ringcache/internal/sizes"
)

// SpaceError reports that there is not enough memory for a file.
type SpaceError struct {
	Path  string // of the file that was to be made
	Need  int64  // its bytes
	Have  int64  // bytes that are left
	Size  int64  // bytes of the limit
	Where string // the mount point, or the file that contains the limit of a control group
	// Cgroup reports that the limit is the memory limit of a control group, a container's.
	// Otherwise it is the size of the mount.
	Cgroup bool
	// Setting describes the change that makes the file fit.
	Setting string
}

func (e *SpaceError) Error() string {
	limit := fmt.Sprintf("on the mount %s of %s", e.Where, sizes.Text(e.Size))
	if e.Cgroup {
		limit = fmt.Sprintf("below the memory limit of %s in %s, of which shared memory is a part",
			sizes.Text(e.Size), e.Where)
	}
	need, have := sizes.Above(e.Need, e.Have)
	return fmt.Sprintf("%s needs %s, and %s are left %s; to make it fit: %s", e.Path, need, have, limit, e.Setting)
}

// Unwrap makes errors.Is(err, syscall.ENOSPC) true, whichever limit it is.
func (e *SpaceError) Unwrap() error { return syscall.ENOSPC }

// host is the kind of environment of this process, which decides where limits are set.
type host int

const (
	bare host = iota
	docker
	kubernetes
)

// findHost looks for the files and variables that container runtimes leave.
func findHost(root fs.FS, getenv func(string) string) host {
	exists := func(p string) bool { _, err := fs.Stat(root, p); return err == nil }
	switch {
	case getenv("KUBERNETES_SERVICE_HOST") != "" || exists("var/run/secrets/kubernetes.io"):
		return kubernetes
	case exists(".dockerenv") || exists("run/.containerenv") || getenv("container") != "":
		return docker
	}
	return bare
}

// mountSpace is the error of a mount of size bytes with have bytes left.
func mountSpace(h host, path string, need, have, size int64, m Mount) *SpaceError {
	e := &SpaceError{Path: path, Need: need, Have: have, Where: m.Point, Size: size}
	want := mebibytes(size + need - have)
	switch {
	case m.Point == "":
		e.Where = filepath.Dir(path)
		e.Setting = "make room there"
	case m.Type != "tmpfs":
		e.Setting = fmt.Sprintf("make room on this %s file system, or use a directory on a tmpfs, such as %s",
			m.Type, DefaultDir)
	case h == kubernetes:
		e.Setting = fmt.Sprintf("mount an emptyDir volume with medium: Memory and sizeLimit: %dMi at %s in the pod",
			want, m.Point)
	case h == docker && m.Point == DefaultDir:
		e.Setting = fmt.Sprintf("start the container with docker run --shm-size=%dm, or with shm_size: %dm in the compose file", want, want)
	case h == docker:
		e.Setting = fmt.Sprintf("start the container with docker run --tmpfs %s:size=%dm", m.Point, want)
	default:
		e.Setting = fmt.Sprintf("mount -o remount,size=%dm %s, as root", want, m.Point)
	}
	return e
}

// cgroupSpace is the error of a control group.
func cgroupSpace(h host, path string, need int64, r Room) *SpaceError {
	e := &SpaceError{Path: path, Need: need, Have: r.Left(), Cgroup: true, Where: r.File, Size: r.Limit}
	want := mebibytes(r.Used + need)
	switch h {
	case kubernetes:
		e.Setting = fmt.Sprintf("set resources.limits.memory of the container to at least %dMi", want)
	case docker:
		e.Setting = fmt.Sprintf("start the container with docker run --memory=%dm, or with mem_limit: %dm in the compose file", want, want)
	default:
		e.Setting = fmt.Sprintf("write at least %dM to it, or set MemoryMax=%dM of the systemd unit", want, want)
	}
	e.Setting = fmt.Sprintf("%s (%s are in use), or make the cache smaller", e.Setting, sizes.Text(r.Used))
	return e
}

// mebibytes rounds up.
func mebibytes(n int64) int64 { return (n + 1<<20 - 1) >> 20 }
