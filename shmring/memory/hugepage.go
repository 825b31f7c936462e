package memory

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/internal/shmfile"
)

// hugeSettings are the settings of the machine for huge pages in shared memory.
type hugeSettings struct {
	PageSize int64         // bytes of a huge page, 0 if the kernel has none
	Shmem    string        // the chosen word of shmem_enabled, "" if unknown
	Mount    shmfile.Mount // of the file
}

// readHugeSettings reads the settings for a file of the mount m.
func readHugeSettings(root fs.FS, m shmfile.Mount) hugeSettings {
	const dir = "sys/kernel/mm/transparent_hugepage/"
	h := hugeSettings{Mount: m}
	if text, err := fs.ReadFile(root, dir+"hpage_pmd_size"); err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 && n&(n-1) == 0 {
			h.PageSize = n
		}
	}
	if text, err := fs.ReadFile(root, dir+"shmem_enabled"); err == nil {
		_, rest, _ := strings.Cut(string(text), "[")
		h.Shmem, _, _ = strings.Cut(rest, "]")
	}
	return h
}

// wholePages returns the bytes of the whole huge pages that fit between two
// addresses.
func (h hugeSettings) wholePages(lo, hi uint64) int64 {
	if h.PageSize == 0 {
		return 0
	}
	n := uint64(h.PageSize)
	a, b := (lo+n-1)/n*n, hi/n*n
	return int64(max(a, b) - a)
}

// why returns the reasons why a mapping at these addresses has fewer huge pages than
// requested; cause is the error of the request.
func (h hugeSettings) why(lo, hi uint64, cause error) string {
	if h.PageSize == 0 {
		return "the kernel has no transparent huge pages"
	}
	var why []string
	if lo%uint64(h.PageSize) != 0 {
		why = append(why, fmt.Sprintf("the mapping does not begin at a multiple of %d bytes, as it does only on mounts with huge pages", h.PageSize))
	} else if h.wholePages(lo, hi) == 0 {
		why = append(why, fmt.Sprintf("the mapping is smaller than a huge page of %d bytes", h.PageSize))
	}
	if opt := h.Mount.Option("huge"); opt == "" || opt == "never" {
		why = append(why, fmt.Sprintf("the mount %s (%s) has huge=never; mount -o remount,huge=advise %s as root",
			h.Mount.Point, h.Mount.Type, h.Mount.Point))
	}
	if h.Shmem == "deny" {
		why = append(why, "/sys/kernel/mm/transparent_hugepage/shmem_enabled is deny")
	}
	if cause != nil {
		why = append(why, cause.Error())
	}
	if len(why) == 0 {
		return "no huge page was free, or the kernel has not made any yet"
	}
	return strings.Join(why, "; ")
}
