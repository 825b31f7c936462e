package doctor

import (
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/sizes"
)

// mount compares the file system of shared memory with the plan.
func (d *doctor) mount() {
	dir, plan := d.shmDir(), d.Config.SegmentBytes()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		d.add(slog.LevelError, "shared memory", "", "%s: %v", dir, err)
		return
	}
	all, free := int64(st.Blocks)*int64(st.Bsize), int64(st.Bavail)*int64(st.Bsize)
	if st.Blocks == 0 || all < 0 {
		d.add(slog.LevelInfo, "shared memory", "", "%s has no limit of its own", dir)
		return
	}
	if plan > all {
		// As much as is planned, and a tenth for others.
		mib := (plan + plan/10) >> 20
		d.add(slog.LevelError, "shared memory", fmt.Sprintf("mount -o remount,size=%dm %s", mib+1, quote(dir)),
			"%s has %s, and the plan takes %s; in a container give it --shm-size, "+
				"or an emptyDir with medium: Memory and a sizeLimit", dir, sizes.Text(all), sizes.Text(plan))
		return
	}
	d.add(slog.LevelInfo, "shared memory", "",
		"%s has %s, %s free; the plan takes %s", dir, sizes.Text(all), sizes.Text(free), sizes.Text(plan))
}

// memoryLimit compares the tightest limit of the control groups with the plan.
func (d *doctor) memoryLimit() {
	room, ok := shmfile.CgroupRoom(d.Root)
	plan := d.Config.SegmentBytes()
	switch {
	case !ok:
		d.add(slog.LevelInfo, "memory limit", "", "no control group of this process limits its memory")
	case room.Limit < plan:
		d.add(slog.LevelError, "memory limit", "",
			"%s allows %s, and the plan takes %s: raise the limit of the container or unit, "+
				"or choose a smaller size", room.File, sizes.Text(room.Limit), sizes.Text(plan))
	default:
		d.add(slog.LevelInfo, "memory limit", "",
			"%s allows %s, of which %s are left; the plan takes %s",
			room.File, sizes.Text(room.Limit), sizes.Text(room.Left()), sizes.Text(plan))
	}
}

// lockedMemory looks at how much memory this user may lock: a driver that pins a segment for a GPU needs
// that.
func (d *doctor) lockedMemory() {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return
	}
	d.judgeLocked(limit.Cur, os.Geteuid() == 0)
}

func (d *doctor) judgeLocked(limit uint64, root bool) {
	switch {
	case root:
		d.add(slog.LevelInfo, "memlock", "", "root may lock any amount of memory")
	case limit == unix.RLIM_INFINITY || limit > math.MaxInt64:
		d.add(slog.LevelInfo, "memlock", "", "any amount of memory may be locked")
	case int64(limit) < d.Config.Size:
		d.add(slog.LevelInfo, "memlock", "ulimit -l unlimited",
			"%s may be locked, less than the segment: workers that pin it for a GPU need more "+
				"(LimitMEMLOCK=infinity in a unit, --ulimit memlock=-1 in docker run)", sizes.Text(limit))
	default:
		d.add(slog.LevelInfo, "memlock", "", "%s may be locked", sizes.Text(limit))
	}
}

// hugePages looks at whether the mount has huge pages.
func (d *doctor) hugePages() {
	dir := d.shmDir()
	enabled, err := fs.ReadFile(d.Root, "sys/kernel/mm/transparent_hugepage/shmem_enabled")
	if err != nil {
		d.add(slog.LevelInfo, "huge pages", "", "the kernel has no transparent huge pages")
		return
	}
	m, ok := shmfile.MountOf(d.Root, path.Clean(dir), "")
	word := chosen(string(enabled))
	switch huge := m.Option("huge"); {
	case word == "deny":
		d.add(slog.LevelInfo, "huge pages", "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled",
			"the kernel refuses huge pages for shared memory")
	case word == "force", ok && huge != "" && huge != "never":
		d.add(slog.LevelInfo, "huge pages", "", "shared memory in %s may have huge pages", dir)
	default:
		d.add(slog.LevelInfo, "huge pages", "mount -o remount,huge=advise "+quote(dir),
			"%s is mounted without huge pages; large segments are mapped faster with them", dir)
	}
}

// chosen returns the word in brackets.
func chosen(text string) string {
	_, rest, _ := strings.Cut(text, "[")
	word, _, _ := strings.Cut(rest, "]")
	return word
}

// removeIPC looks at whether systemd removes segments when their user logs out.
func (d *doctor) removeIPC() {
	if _, err := fs.Stat(d.Root, "run/systemd/system"); err != nil {
		d.add(slog.LevelInfo, "RemoveIPC", "", "systemd does not run here, so it removes no segments at a logout")
		return
	}
	d.judgeRemoveIPC(os.Geteuid())
}

// firstUser is the first user id that systemd does not take for a system user's.
const firstUser = 1000

func (d *doctor) judgeRemoveIPC(uid int) {
	value := "yes" // the default
	for _, p := range logindFiles(d.Root) {
		b, err := fs.ReadFile(d.Root, p)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), "RemoveIPC="); ok {
				value = strings.ToLower(strings.TrimSpace(v))
			}
		}
	}
	switch {
	case slices.Contains([]string{"no", "false", "0", "off"}, value):
		d.add(slog.LevelInfo, "RemoveIPC", "", "systemd leaves segments alone at a logout (RemoveIPC=%s)", value)
	case uid < firstUser:
		d.add(slog.LevelInfo, "RemoveIPC", "",
			"systemd removes segments at a logout, but not those of system users such as %d", uid)
	default:
		d.add(slog.LevelWarn, "RemoveIPC",
			`mkdir -p /etc/systemd/logind.conf.d && `+
				`printf '[Login]\nRemoveIPC=no\n' > /etc/systemd/logind.conf.d/ringcache.conf && `+
				`systemctl restart systemd-logind`,
			"systemd removes the segments of the user %d when its last session ends, "+
				"also those of engines that run on; a service of a system user is safe", uid)
	}
}

// logindFiles are the files of logind's configuration, the ones that win last.
func logindFiles(root fs.FS) []string {
	files := []string{"usr/lib/systemd/logind.conf", "etc/systemd/logind.conf"}
	for _, dir := range []string{"usr/lib", "run", "etc"} {
		found, _ := fs.Glob(root, dir+"/systemd/logind.conf.d/*.conf") // a folder that can't be read has nothing
		files = append(files, found...)
	}
	return files
}

// splitLocks looks at what the kernel does to programs that lock words across cache lines. This library never
// does, but engines and their libraries may.
func (d *doctor) splitLocks() {
	line, _ := fs.ReadFile(d.Root, "proc/cmdline")
	mitigate, err := fs.ReadFile(d.Root, "proc/sys/kernel/split_lock_mitigate")
	switch {
	case strings.Contains(string(line), "split_lock_detect=fatal"):
		d.add(slog.LevelWarn, "split locks", "",
			"the kernel kills programs that lock a word across two cache lines (split_lock_detect=fatal): "+
				"ringcache does not, an engine or its libraries may; set split_lock_detect=warn at boot "+
				"if workers die with SIGBUS")
	case err == nil && strings.TrimSpace(string(mitigate)) == "1":
		d.add(slog.LevelInfo, "split locks", "sysctl kernel.split_lock_mitigate=0",
			"the kernel slows programs down that lock a word across two cache lines: ringcache does not")
	default:
		d.add(slog.LevelInfo, "split locks", "", "the kernel does nothing about split locks that would be felt")
	}
}
