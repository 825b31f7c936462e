package pintest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/internal/mem"
)

// Constants and offsets of fields, from linux/io_uring.h.
const (
	registerBuffers   = 0
	unregisterBuffers = 1
	opWriteFixed      = 5
	enterGetEvents    = 1

	offSQEs = 0x10000000

	paramsSQTail, paramsSQArray                = 44, 64
	paramsCQHead, paramsCQTail, paramsCQEvents = 80, 84, 100

	sqeBytes, cqeBytes = 64, 16

	maxBytes = 1 << 30 // of one fixed buffer
)

// Pinned is memory that is pinned. Any number of goroutines may use it.
type Pinned struct {
	from uintptr
	size int

	mu      sync.Mutex
	fd      int    // of the io_uring, which has one entry
	staging int    // file into which the kernel copies the pages
	args    []byte // memory for arguments: a mapping, since Go memory has no lasting address
	queues  []byte // of submissions and of completions
	entry   []byte // the submission
	closed  bool
}

// Pin pins the pages of m, a mapping of at most 1 GiB, until Release. It fails with
// [ErrNotAllowed], [ErrNotPinnable], or an error of the system. m may be unmapped before Release;
// the pages stay.
func Pin(m []byte) (_ *Pinned, err error) {
	if len(m) == 0 || len(m) > maxBytes {
		return nil, fmt.Errorf("pintest: %d bytes, want 1 to %d", len(m), maxBytes)
	}
	p := &Pinned{from: mem.Addr(m), size: len(m), fd: -1, staging: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.args, err = unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
		return nil, err
	}
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, mem.Addr(p.args), 0)
	if e != 0 {
		return nil, explain("io_uring_setup", e)
	}
	p.fd = int(fd)
	iovec := p.args[len(p.args)-16:]
	binary.NativeEndian.PutUint64(iovec, uint64(p.from))
	binary.NativeEndian.PutUint64(iovec[8:], uint64(p.size))
	if _, _, e := unix.Syscall6(unix.SYS_IO_URING_REGISTER, fd, registerBuffers, mem.Addr(iovec), 1, 0, 0); e != 0 {
		return nil, explain("registering a buffer", e)
	}

	// One submission, and so two completions: the kernel doubles their number.
	size := max(p.param(paramsSQArray)+4, p.param(paramsCQEvents)+2*cqeBytes)
	if p.queues, err = unix.Mmap(p.fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, err
	}
	if p.entry, err = unix.Mmap(p.fd, offSQEs, sqeBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, err
	}
	if p.staging, err = unix.MemfdCreate("pintest", unix.MFD_CLOEXEC); err != nil {
		return nil, err
	}
	return p, nil
}

// param returns a field of the struct io_uring_params.
func (p *Pinned) param(at int) int { return int(binary.NativeEndian.Uint32(p.args[at:])) }

// Copy fills dst with what the pages contain from offset on. The kernel reads the pages that
// are pinned, whatever is mapped where they were, as a device does.
func (p *Pinned) Copy(dst []byte, offset int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || offset < 0 || len(dst) > p.size-offset {
		return fmt.Errorf("pintest: %d bytes at %d of %d (released: %t)", len(dst), offset, p.size, p.closed)
	}
	for len(dst) > 0 {
		n, err := p.stage(offset, len(dst))
		if err != nil {
			return err
		}
		if n, err = unix.Pread(p.staging, dst[:n], 0); err != nil {
			return err
		}
		dst, offset = dst[n:], offset+n
	}
	return nil
}

// stage copies up to n bytes of the pages to the start of the staging file, and returns how many.
func (p *Pinned) stage(offset, n int) (int, error) {
	clear(p.entry)
	p.entry[0] = opWriteFixed
	binary.NativeEndian.PutUint32(p.entry[4:], uint32(p.staging))
	binary.NativeEndian.PutUint64(p.entry[16:], uint64(p.from)+uint64(offset))
	binary.NativeEndian.PutUint32(p.entry[24:], uint32(n))

	// The kernel finishes the work of a thread on that thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tail := p.queues[p.param(paramsSQTail):]
	mem.Store32(p.queues[p.param(paramsSQArray):], 0)
	mem.Store32(tail, mem.Load32(tail)+1)
	head := p.queues[p.param(paramsCQHead):]
	done := mem.Load32(head)
	for submit := uintptr(1); mem.Load32(p.queues[p.param(paramsCQTail):]) == done; {
		submitted, _, e := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(p.fd), submit, 1, enterGetEvents, 0, 0)
		switch {
		case e == 0:
			submit -= submitted
		case e != unix.EINTR && e != unix.EAGAIN:
			return 0, fmt.Errorf("pintest: io_uring_enter: %w", e)
		}
	}
	event := p.queues[p.param(paramsCQEvents)+int(done%2)*cqeBytes:]
	result := int32(mem.Load32(event[8:]))
	mem.Store32(head, done+1)
	if result <= 0 {
		return 0, fmt.Errorf("pintest: copying %d bytes at %d: %w", n, offset, syscall.Errno(-result))
	}
	return int(result), nil
}

// Release unpins the pages. It may be called again.
func (p *Pinned) Release() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	var err error
	// Closing the io_uring would unpin too, but later.
	if _, _, e := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(p.fd), unregisterBuffers, 0, 0, 0, 0); e != 0 {
		err = fmt.Errorf("pintest: unregistering the buffer: %w", e)
	}
	return errors.Join(err, p.close())
}

func (p *Pinned) close() error {
	p.closed = true
	var errs []error
	for _, m := range [][]byte{p.args, p.queues, p.entry} {
		if m != nil {
			errs = append(errs, unix.Munmap(m))
		}
	}
	for _, fd := range []int{p.fd, p.staging} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

// explain returns an error with the usual reasons of an error of io_uring.
func explain(call string, e syscall.Errno) error {
	kind, why := ErrNotAllowed, ""
	switch e {
	case unix.ENOSYS:
		why = "the kernel has no io_uring, or a filter of system calls hides it"
	case unix.EPERM, unix.EACCES:
		setting, err := os.ReadFile("/proc/sys/kernel/io_uring_disabled")
		if err != nil {
			setting = []byte("absent")
		}
		why = fmt.Sprintf("kernel.io_uring_disabled (%s) or a filter of system calls forbids io_uring",
			bytes.TrimSpace(setting))
	case unix.ENOMEM:
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
			return err
		}
		if limit.Cur == unix.RLIM_INFINITY {
			return fmt.Errorf("pintest: %s: %w", call, e)
		}
		why = fmt.Sprintf("RLIMIT_MEMLOCK is %d bytes for what all processes of the user pin and lock", limit.Cur)
	case unix.EOPNOTSUPP:
		why = "the io_uring of kernels before 6.5 refuses files without asking whether they can be pinned"
	case unix.EFAULT:
		kind, why = ErrNotPinnable, "the pages are not mapped, mapped read-only, or of a file on a disk"
	default:
		return fmt.Errorf("pintest: %s: %w", call, e)
	}
	return fmt.Errorf("%w: %s: %w: %s", kind, call, e, why)
}

// Counters returns how many pages the machine has pinned and unpinned since it started
// (nr_foll_pin_acquired and nr_foll_pin_released). The kernel adds up the counts of its CPUs every
// few seconds, so the numbers come late. Counters fails with [ErrNotAllowed] if the kernel does not count.
func Counters() (acquired, released int64, err error) {
	b, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %w", ErrNotAllowed, err)
	}
	acquired, released = -1, -1
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		counter := map[string]*int64{"nr_foll_pin_acquired": &acquired, "nr_foll_pin_released": &released}[name]
		if counter == nil {
			continue
		}
		if *counter, err = strconv.ParseInt(value, 10, 64); err != nil {
			return 0, 0, err
		}
	}
	if acquired < 0 || released < 0 {
		return 0, 0, fmt.Errorf("%w: /proc/vmstat does not count pinned pages", ErrNotAllowed)
	}
	return acquired, released, nil
}
