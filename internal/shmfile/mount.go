package shmfile

import (
	"io/fs"
	"path"
	"strings"
)

// Mount is one mounted file system, a line of /proc/self/mountinfo.
type Mount struct {
	Device  string // major:minor
	Root    string // the directory of the file system that is mounted
	Point   string // where it is mounted
	Type    string // such as tmpfs
	Options []string
}

// Option returns the value of the option name=value, "" if it is not there.
func (m Mount) Option(name string) string {
	for _, o := range m.Options {
		if v, ok := strings.CutPrefix(o, name+"="); ok {
			return v
		}
	}
	return ""
}

// MountOf returns the mount of an absolute directory without symbolic links. The device,
// major:minor, distinguishes mounts that cover each other; "" if it is unknown. The second
// result is false if mountinfo has no such line.
func MountOf(root fs.FS, dir, device string) (Mount, bool) {
	var best Mount
	found, sure := false, false
	for _, m := range mounts(root) {
		if _, ok := below(dir, m.Point); !ok {
			continue
		}
		same := m.Device == device
		// Later lines lie over earlier ones of the same point.
		if !found || same && !sure || same == sure && len(m.Point) >= len(best.Point) {
			best, found, sure = m, true, same
		}
	}
	return best, found
}

// mounts parses mountinfo and skips lines that it can't parse; no file means no mounts.
func mounts(root fs.FS) []Mount {
	text, err := fs.ReadFile(root, "proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var out []Mount
	for line := range strings.Lines(string(text)) {
		// 36 35 98:0 /root /point rw,noatime master:1 - type source rw,options
		left, right, ok := strings.Cut(strings.TrimSpace(line), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 3 {
			continue
		}
		out = append(out, Mount{
			Device: l[2], Root: unescape.Replace(l[3]), Point: unescape.Replace(l[4]),
			Type: r[0], Options: strings.Split(r[2], ","),
		})
	}
	return out
}

// unescape decodes the paths of mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// below returns what follows dir in p, "" or with a leading slash, if p is dir
// or in it.
func below(p, dir string) (string, bool) {
	p, dir = path.Clean(p), path.Clean(dir)
	if dir == "/" {
		return strings.TrimSuffix(p, "/"), strings.HasPrefix(p, "/")
	}
	rest, ok := strings.CutPrefix(p, dir)
	return rest, ok && (rest == "" || rest[0] == '/')
}
