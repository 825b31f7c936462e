package daemon

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/internal/shmfile"
)

// Hints looks at what a daemon of this configuration finds: room in shared memory and below the memory limit, files that may
// be open, swap, folders. It changes nothing.
func (c Config) Hints() []Hint {
	var h hints
	root := os.DirFS("/")
	c.hintShm(&h)
	c.hintFiles(&h)
	hintSwap(&h, root)
	c.hintFolders(&h)
	c.hintNames(&h)
	return h
}

// segmentBytes is what the segment, its sidecar and its table of leases take, rounded up generously.
func (c Config) segmentBytes() int64 {
	objects := int64(c.MaxObjects)
	if objects == 0 {
		objects = min(max(c.Size/(8<<10), 1<<10), 1<<20)
	}
	leases := int64(cmp.Or(c.MaxLeases, 4096)) + 1
	return c.Size + 64*objects + 64*2*objects + 576*leases + 256<<10
}

// hintShm reports that the segment has no room. One that is there has it already.
func (c Config) hintShm(h *hints) {
	dir := cmp.Or(c.ShmDir, shmfile.DefaultDir)
	if _, err := os.Stat(dir); err != nil {
		h.add(true, "shm-dir", "there is no folder for shared memory: %v", err)
		return
	}
	if size, _ := c.found(); size != 0 {
		if size != c.Size {
			h.add(true, "size", "the segment %s is there with %s: keep it by that size, or give another name, or remove it with all objects by `%s`", c.Name, formatBytes(size), shmfile.SweepCommand(c.Name))
		}
	} else if err := c.checkRoom(); err != nil {
		h.add(true, "size", "%v", err)
	}
	if m, ok := shmfile.MountOfDir(dir); ok && m.Type != "tmpfs" && m.Type != "ramfs" && m.Type != "hugetlbfs" {
		h.add(false, "shm-dir", "%s is on a file system of the type %s: objects would be written to its disk, and GPUs can't use them in place; mount a tmpfs, such as an emptyDir with medium: Memory", dir, m.Type)
	}
}

// checkRoom reports that a new segment would not fit, with everything beside it: what is made first would not notice what the rest needs.
// What is there already has its room.
func (c Config) checkRoom() error {
	path := filepath.Join(cmp.Or(c.ShmDir, shmfile.DefaultDir), c.Name)
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	err := shmfile.CheckRoom(path, c.segmentBytes())
	space := (*shmfile.SpaceError)(nil)
	if errors.As(err, &space) && !space.Cgroup && space.Size == 64<<20 {
		err = fmt.Errorf("%w (64 MiB is the default of containers)", err)
	}
	if err != nil {
		err = fmt.Errorf("size: %s takes %s with leases and tables: %w", formatBytes(c.Size), formatBytes(c.segmentBytes()), err)
	}
	return err
}

// hintFiles reports a low limit of open files: each connection is one, and each process of clients.
func (c Config) hintFiles(h *hints) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return
	}
	// Go raises the soft limit to the hard one at the start.
	if need := uint64(c.MaxConnections) + uint64(c.MaxSessions) + 256; limit.Max < need {
		h.add(false, "max-connections", "this process may open %d files, and %d connections and sessions may need %d: set --ulimit nofile=%d in docker run, ulimits: {nofile: %d} in a compose file, LimitNOFILE=%d in a systemd unit, or fewer connections",
			limit.Max, c.MaxConnections, need, need, need, need)
	}
}

// hintSwap reports that shared memory may be swapped out, which makes a hit slower than what it saves.
func hintSwap(h *hints, root fs.FS) {
	f, err := root.Open("proc/swaps")
	if err != nil {
		return
	}
	defer f.Close()
	lines := 0
	for s := bufio.NewScanner(f); s.Scan(); {
		lines++
	}
	if lines < 2 || cgroupForbidsSwap(root) { // the first line is a heading
		return
	}
	b, err := fs.ReadFile(root, "proc/sys/vm/swappiness")
	if n, atoiErr := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && atoiErr == nil && n == 0 {
		return
	}
	h.add(false, "", "this machine swaps, and shared memory that is not used for a while may be swapped out: set MemorySwapMax=0 in a systemd unit, --memory-swap equal to --memory in docker run, or switch swap off")
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

// hintFolders reports folders that can't be used. The daemon would report them one after the other.
func (c Config) hintFolders(h *hints) {
	if info, err := os.Lstat(c.Socket); err == nil && info.Mode().Type() != os.ModeSocket {
		h.add(true, "socket", "%s is no socket, but %s: remove it, or give another path", c.Socket, kindOf(info))
	}
	if os.Getenv("LISTEN_PID") == strconv.Itoa(os.Getpid()) {
		// The socket is this process's: a service manager has opened it.
	} else if _, err := isStale(c.Socket); errors.Is(err, errListens) {
		h.add(false, "socket", "a process listens at %s already: a second daemon needs another socket, name and http", c.Socket)
	}
	for key, dir := range map[string]string{"socket": filepath.Dir(c.Socket), "disk": c.Disk} {
		if dir == "" {
			continue
		}
		// What is missing is made in the nearest folder that is there.
		for _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) && dir != "/"; _, err = os.Stat(dir) {
			dir = filepath.Dir(dir)
		}
		if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
			h.add(true, key, "the folder %s can't be written to by the user %d: %v; use a volume of this user (in Kubernetes fsGroup, or an init container that changes the owner), or another folder", dir, os.Geteuid(), err)
		}
	}
	var st unix.Statfs_t
	if c.Disk != "" && c.DiskSize > 0 && unix.Statfs(c.Disk, &st) == nil {
		if all := int64(st.Blocks) * int64(st.Bsize); all < c.DiskSize {
			h.add(false, "disk-size", "the file system of %s has %s, less than disk-size: a full disk evicts objects, too, but other programs may need the room", c.Disk, formatBytes(all))
		}
	}
}

// hintNames reports a process of the container whose names others don't see.
func (c Config) hintNames(h *hints) {
	if os.Getpid() == 1 && os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		h.add(false, "", "this is the first process of its container: engines in other containers of the pod are known by their process only with shareProcessNamespace: true; without it, what they were promised ends with the grace time after a restart of the daemon")
	}
}
