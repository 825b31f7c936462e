package shmfile

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Room is a limit on memory and what is left of it.
type Room struct {
	File  string // absolute path of the file that contains the limit
	Limit int64  // bytes
	Used  int64  // bytes that the kernel can't take back by giving up file cache
}

// Left returns the bytes that are left, never less than 0.
func (r Room) Left() int64 { return max(0, r.Limit-r.Used) }

// CgroupRoom returns the tightest memory limit among the control groups of this process and
// their ancestors, as far as this process can see them; root is the file system at "/". The
// second result is false if no limit is known. An unknown limit counts as none, and an unknown
// use as zero.
//
// Swap does not count: a ring that fits only by swapping is of no use.
func CgroupRoom(root fs.FS) (Room, bool) {
	v1, v2 := ownGroups(root)
	var best Room
	found := false
	for _, m := range mounts(root) {
		var r []Room
		switch {
		case m.Type == "cgroup2" && v2 != "":
			r = roomsV2(root, groupDirs(m, v2))
		case m.Type == "cgroup" && v1 != "" && slices.Contains(m.Options, "memory"):
			r = roomsV1(root, groupDirs(m, v1))
		}
		for _, r := range r {
			if !found || r.Left() < best.Left() {
				best, found = r, true
			}
		}
	}
	return best, found
}

// ownGroups returns the paths of this process's control groups for memory, "" where there is
// none.
func ownGroups(root fs.FS) (v1, v2 string) {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return "", ""
	}
	for line := range strings.Lines(string(text)) {
		// 4:memory:/path, or 0::/path
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		switch {
		case len(f) != 3 || !strings.HasPrefix(f[2], "/") || climbs(f[2]):
			// A path with .. is outside of the part that this process can see.
		case f[0] == "0" && f[1] == "":
			v2 = f[2]
		case slices.Contains(strings.Split(f[1], ","), "memory"):
			v1 = f[2]
		}
	}
	return v1, v2
}

func climbs(p string) bool { return slices.Contains(strings.Split(p, "/"), "..") }

// groupDirs returns the directories of the group and its ancestors, the nearest first and
// the mount itself last. In a container the path may be that of the host, and the mount only a
// part of the host's tree; or the path may be just "/".
func groupDirs(m Mount, group string) []string {
	rest, ok := below(group, m.Root)
	if !ok {
		rest = "" // then only the mount itself can be seen
	}
	dirs := []string{m.Point}
	for _, name := range strings.Split(strings.Trim(rest, "/"), "/") {
		if name != "" {
			dirs = append(dirs, path.Join(dirs[len(dirs)-1], name))
		}
	}
	slices.Reverse(dirs)
	return dirs
}

func roomsV2(root fs.FS, dirs []string) []Room {
	var out []Room
	for _, d := range dirs {
		limit, ok := number(root, d, "memory.max")
		if !ok {
			continue
		}
		r := Room{File: path.Join(d, "memory.max"), Limit: limit}
		r.Used = used(root, d, "memory.current", "active_file", "inactive_file", "slab_reclaimable")
		out = append(out, r)
	}
	return out
}

func roomsV1(root fs.FS, dirs []string) []Room {
	var out []Room
	for i, d := range dirs {
		if h, ok := number(root, d, "memory.use_hierarchy"); i > 0 && ok && h == 0 {
			continue // its limit does not concern its children
		}
		limit, ok := number(root, d, "memory.limit_in_bytes")
		if !ok {
			continue
		}
		r := Room{File: path.Join(d, "memory.limit_in_bytes"), Limit: limit}
		r.Used = used(root, d, "memory.usage_in_bytes", "total_active_file", "total_inactive_file")
		out = append(out, r)
	}
	return out
}

// used returns the memory that the group uses, without what the kernel frees before it kills
// a process. Shared memory is in none of the lists below: it counts as anonymous.
func used(root fs.FS, dir, usage string, cache ...string) int64 {
	n, ok := number(root, dir, usage)
	if !ok {
		return 0
	}
	text, err := fs.ReadFile(root, rooted(path.Join(dir, "memory.stat")))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseInt(value, 10, 64); err == nil && v > 0 && slices.Contains(cache, name) {
			n -= min(v, n)
		}
	}
	return n
}

// unlimited is above every real limit and below what version 1 writes for no limit.
const unlimited = 1 << 62

// number parses a count; the second result is false for "max" and other texts.
func number(root fs.FS, dir, name string) (int64, bool) {
	text, err := fs.ReadFile(root, rooted(path.Join(dir, name)))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil && n >= 0 && n < unlimited
}

// rooted makes an absolute path one of an fs.FS.
func rooted(p string) string {
	if p = strings.TrimPrefix(path.Clean(p), "/"); p == "" {
		return "."
	}
	return p
}
