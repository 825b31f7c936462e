package daemon

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/sizes"
)

// Hints looks at what would let a daemon of this configuration start, and suffer: files that may be open,
// swap, file systems. All are warnings. It changes nothing.
func (c Config) Hints() []Finding {
	var f findings
	hintShm(c, &f)
	hintFiles(c, &f)
	hintSwap(&f, os.DirFS("/"))
	hintFolders(c, &f)
	hintNames(c, &f)
	return f
}

// hintShm reports a folder that is not in memory.
func hintShm(c Config, f *findings) {
	dir := cmp.Or(c.ShmDir, shmfile.DefaultDir)
	if m, ok := shmfile.MountOfDir(dir); ok && m.Type != "tmpfs" && m.Type != "ramfs" && m.Type != "hugetlbfs" {
		f.add(slog.LevelWarn, "shm-dir", "%s is on a file system of the type %s: objects would be written to its disk, and GPUs can't use them in place; mount a tmpfs, such as an emptyDir with medium: Memory", dir, m.Type)
	}
}

// checkRoom reports that a new segment would not fit, with everything beside it: what is made first would not
// notice what the rest needs. What is there already has its room.
func checkRoom(c Config) error {
	path := filepath.Join(cmp.Or(c.ShmDir, shmfile.DefaultDir), c.Name)
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	err := shmfile.CheckRoom(path, c.SegmentBytes())
	space := (*shmfile.SpaceError)(nil)
	if errors.As(err, &space) && !space.Cgroup && space.Size == 64<<20 {
		err = fmt.Errorf("%w (64 MiB is the default of containers)", err)
	}
	if err != nil {
		err = fmt.Errorf("size: %s takes %s with leases and tables: %w",
			sizes.Format(c.Size), sizes.Format(c.SegmentBytes()), err)
	}
	return err
}

// hintFiles reports a low limit of open files.
func hintFiles(c Config, f *findings) {
	x, want := c.files(), c.configured()
	if got, cut := x.fit(want); cut && x.enough() { // else it is an error
		f.add(slog.LevelWarn, "max-connections", "this process may open %d files: connections are cut from %d to %d, and sessions from %d to %d, so that levels and probes have theirs: %s, or fewer of both",
			x.all, want.MaxConnections, got.MaxConnections, want.MaxSessions, got.MaxSessions, howToOpen(c))
	}
}

// hintSwap reports that shared memory may be swapped out, which makes a hit slower than what it saves.
func hintSwap(f *findings, root fs.FS) {
	swaps, err := root.Open("proc/swaps")
	if err != nil {
		return
	}
	defer swaps.Close()
	lines := 0
	for s := bufio.NewScanner(swaps); s.Scan(); {
		lines++
	}
	if lines < 2 || cgroupForbidsSwap(root) { // the first line is a heading
		return
	}
	b, err := fs.ReadFile(root, "proc/sys/vm/swappiness")
	if n, atoiErr := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && atoiErr == nil && n == 0 {
		return
	}
	f.add(slog.LevelWarn, "", "this machine swaps, and shared memory that is not used for a while may be swapped out: set MemorySwapMax=0 in a systemd unit, --memory-swap equal to --memory in docker run, or switch swap off")
}

// cgroupForbidsSwap reports whether a control group of this process has no swap, as far as this process sees it.
func cgroupForbidsSwap(root fs.FS) bool {
	b, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for p := path.Clean("/" + group); ; p = path.Dir(p) {
			b, err := fs.ReadFile(root, path.Join("sys/fs/cgroup", p, "memory.swap.max"))
			if err == nil && strings.TrimSpace(string(b)) == "0" {
				return true
			}
			if p == "/" {
				break
			}
		}
	}
	return false
}

// hintFolders reports a disk that is smaller than it should be, and a socket that others can replace.
func hintFolders(c Config, f *findings) {
	folder := filepath.Dir(c.Socket)
	if mode, can := replaceable(folder); can {
		f.add(slog.LevelWarn, "socket", "other users can replace the socket, since they may write to its folder, %s (%v): take that right away", folder, mode)
	}
	var st unix.Statfs_t
	if c.Disk != "" && c.DiskSize > 0 && unix.Statfs(c.diskFolder(), &st) == nil {
		if all := int64(st.Blocks) * int64(st.Bsize); all < c.DiskSize {
			f.add(slog.LevelWarn, "disk-size", "the file system of %s has %s, less than disk-size: a full disk evicts objects, too, but other programs may need the room", c.diskFolder(), sizes.Format(all))
		}
	}
}

// hintNames reports a process of the container whose names others don't see.
func hintNames(c Config, f *findings) {
	if os.Getpid() == 1 && os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		f.add(slog.LevelWarn, "", "this is the first process of its container: engines in other containers of the pod are known by their process only with shareProcessNamespace: true; without it, what they were promised ends with the grace time after a restart of the daemon")
	}
}
