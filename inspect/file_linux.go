package inspect

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// uidOf returns the user of a file, -1 if that is not known.
func uidOf(st fs.FileInfo) int {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return int(sys.Uid)
	}
	return -1
}

// madeAt returns when an open file was made, or changed if the file system does not know that.
func madeAt(f *os.File) time.Time {
	var x unix.Statx_t
	if unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BTIME|unix.STATX_MTIME, &x) != nil {
		return time.Time{}
	}
	t := x.Mtime
	if x.Mask&unix.STATX_BTIME != 0 {
		t = x.Btime
	}
	return time.Unix(t.Sec, int64(t.Nsec))
}

// openFiles returns a function that returns which other processes have a file of a folder open. It looks at
// all processes when it is first called.
func openFiles(dir string) func(dev, ino uint64) []int {
	var found map[[2]uint64][]int
	return func(dev, ino uint64) []int {
		if found == nil {
			found = openBy(dir, "/proc")
		}
		return found[[2]uint64{dev, ino}]
	}
}

// openBy finds the other processes that have files of a folder open. Those of other users are left out: the
// kernel does not show their descriptors. Only links are read, so no process waits for it.
func openBy(dir, proc string) map[[2]uint64][]int {
	out := map[[2]uint64][]int{}
	processes, err := os.ReadDir(proc)
	if err != nil {
		return out
	}
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		dir = target
	}
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil || pid == os.Getpid() { // which has the file open to look at it
			continue
		}
		fds := filepath.Join(proc, p.Name(), "fd")
		links, err := os.ReadDir(fds)
		if err != nil {
			continue
		}
		seen := map[[2]uint64]bool{}
		for _, l := range links {
			path := filepath.Join(fds, l.Name())
			if target, err := os.Readlink(path); err != nil || filepath.Dir(target) != dir {
				continue
			}
			var st unix.Stat_t
			if unix.Stat(path, &st) != nil {
				continue
			}
			id := [2]uint64{uint64(st.Dev), st.Ino}
			if !seen[id] {
				seen[id] = true
				out[id] = append(out[id], pid)
			}
		}
	}
	return out
}
