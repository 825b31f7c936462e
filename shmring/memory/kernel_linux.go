package memory

import (
	"context"
	"fmt"
	"os"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/sizes"
	"golang.org/x/sys/unix"
)

// Policies of [bind].
const (
	bound       = unix.MPOL_BIND
	interleaved = unix.MPOL_INTERLEAVE
)

// pageRange returns the addresses of a mapping, up to the end of its last page.
func pageRange(b []byte) (lo, hi uint64) {
	lo = uint64(mem.Addr(b))
	page := uint64(os.Getpagesize())
	return lo, (lo + uint64(len(b)) + page - 1) / page * page
}

// collapse requests huge pages of pageSize bytes, for pages made later and, from Linux 6.1
// on, in place of the small pages that allocating the file has made already. No byte changes.
// collapse returns the first error.
func collapse(ctx context.Context, b []byte, pageSize int64) error {
	if err := madvise(b, unix.MADV_HUGEPAGE); err != nil {
		return fmt.Errorf("madvise(MADV_HUGEPAGE): %w", err)
	}
	lo := mem.Addr(b)
	skip := -lo & (uintptr(pageSize) - 1)
	if skip >= uintptr(len(b)) {
		return nil
	}
	b = b[skip:]
	step := int(max(pageSize, piece/pageSize*pageSize))
	var first error
	for ; int64(len(b)) >= pageSize; b = b[min(step, len(b)):] {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := madvise(b[:min(step, len(b))], unix.MADV_COLLAPSE)
		if err != nil && first == nil {
			first = fmt.Errorf("madvise(MADV_COLLAPSE): %w", err)
		}
		if err == unix.EINVAL || err == unix.ENOMEM {
			break // the rest would fail too
		}
	}
	return first
}

// bind sets the NUMA policy of a mapping and, for every process, of its file. It moves the
// pages that only this process maps; pages that are allocated but not mapped stay where they
// are, so prefault first.
func bind(b []byte, policy int, nodes []int) error {
	mask := make([]uint64, maxNode/64+1)
	for _, n := range nodes {
		if n < 0 || n > maxNode {
			return unix.EINVAL
		}
		mask[n/64] |= 1 << (n % 64)
	}
	err := mem.Bind(b, policy, mask)
	switch err {
	case nil:
		return nil
	case unix.EPERM:
		return fmt.Errorf("mbind: %w; container runtimes allow it with --cap-add SYS_NICE", err)
	case unix.ENOSYS:
		return fmt.Errorf("mbind: %w; the kernel has no NUMA support", err)
	}
	return fmt.Errorf("mbind: %w", err)
}

// nodeBytes returns, by NUMA node, the bytes of the mapping that are mapped from that node.
func nodeBytes(b []byte) (map[int]int64, error) {
	f, err := os.Open("/proc/self/numa_maps")
	if err != nil {
		return nil, err
	}
	lo, hi := pageRange(b)
	out, err := parseNumaMaps(f, lo, hi)
	_ = f.Close() // read only
	return out, err
}

// lock keeps the mapping from being swapped out, until it is unmapped.
func lock(b []byte) error {
	err := unix.Mlock(b)
	switch err {
	case nil:
		return nil
	case unix.ENOMEM, unix.EPERM, unix.EAGAIN:
		var r unix.Rlimit
		if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r) == nil && r.Cur < uint64(len(b)) {
			return fmt.Errorf("mlock: %w; RLIMIT_MEMLOCK is %s: raise it (ulimit -l, docker run --ulimit memlock=-1) or give CAP_IPC_LOCK", err, sizes.Text(r.Cur))
		}
	}
	return fmt.Errorf("mlock of %s: %w", sizes.Text(len(b)), err)
}

// inspect returns what /proc/self/smaps reports of the mapping.
func inspect(b []byte) (mapping, error) {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return mapping{}, err
	}
	lo, hi := pageRange(b)
	m, err := parseSmaps(f, lo, hi)
	_ = f.Close() // read only
	return m, err
}

// resident returns the bytes of the mapping that are in memory, in whole pages.
// A page that was allocated and never touched does not count.
func resident(b []byte) (int64, error) {
	pages, err := mem.Incore(b)
	if err != nil {
		return 0, fmt.Errorf("mincore: %w", err)
	}
	n := int64(0)
	for _, p := range pages {
		n += int64(p & 1)
	}
	return n * int64(os.Getpagesize()), nil
}

// allocated returns the bytes of the file that are allocated, in memory or in swap.
func allocated(path string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return 0, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	return st.Blocks * 512, nil
}
