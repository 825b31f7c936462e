package memory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/sizes"
	"golang.org/x/sys/unix"
)

// piece is the number of bytes that are populated between two checks of the context.
const piece = 8 << 20

// prefault maps all pages of a mapping, so that using them later is no page fault. It runs
// workers goroutines (GOMAXPROCS if 0), changes no byte, and may run while others read and
// write. For progress see [Options].Progress.
//
// A page that the kernel can't provide is an error and never a signal. prefault returns after
// all workers have ended, with the context's cause if the context ended them.
func prefault(ctx context.Context, b []byte, workers int, progress func(done, total int64)) error {
	return prefaultBy(ctx, b, workers, progress, populate)
}

func prefaultBy(ctx context.Context, b []byte, workers int, progress func(done, total int64),
	populate func([]byte) error) error {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg         sync.WaitGroup
		mu         sync.Mutex // held while progress runs, which keeps its calls in order
		next, done int
	)
	take := func() []byte {
		mu.Lock()
		defer mu.Unlock()
		p := b[next:min(next+piece, len(b))]
		next += len(p)
		return p
	}
	for range min(workers, (len(b)+piece-1)/piece) {
		wg.Go(func() {
			for ctx.Err() == nil {
				p := take()
				if len(p) == 0 {
					return
				}
				if err := populate(p); err != nil {
					cancel(fmt.Errorf("prefaulting %s: %w", sizes.Text(len(b)), explain(err)))
					return
				}
				mu.Lock()
				done += len(p)
				if progress != nil {
					progress(int64(done), int64(len(b)))
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if done < len(b) {
		return context.Cause(ctx)
	}
	return nil
}

// populate maps all pages of b.
func populate(b []byte) error { return populateBy(b, madvise) }

// populateBy is populate with a madvise of the caller's.
func populateBy(b []byte, madvise func(b []byte, advice int) error) error {
	// The second is for a read-only mapping. Reading first would map pages that are in memory
	// faster, and new pages slower.
	for _, advice := range []int{unix.MADV_POPULATE_WRITE, unix.MADV_POPULATE_READ} {
		if err := madvise(b, advice); !isUnsupported(err) {
			return err
		}
	}
	return touch(b)
}

// isUnsupported reports whether err is that of a kernel without an advice: EINVAL before Linux
// 5.14, ENOSYS if it is built without madvise, EPERM if a filter of system calls forbids it.
func isUnsupported(err error) bool {
	return err == unix.EINVAL || err == unix.ENOSYS || err == unix.EPERM
}

// explain adds what err means for the owner of the machine.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EFAULT), errors.Is(err, fault.ErrFault):
		return fmt.Errorf("a page has no memory: the file was cut short, or it has holes and its file system is full: %w", err)
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("no memory is left: raise the memory limit of the container, or make the segment smaller: %w",
			err)
	}
	return err
}

// touch reads from every page, which maps it. The sum keeps the compiler from removing the
// reads.
func touch(b []byte) error {
	page := os.Getpagesize()
	return fault.Guard(func() error {
		sum := uint32(0)
		for ; len(b) >= 4; b = b[min(page, len(b)):] {
			sum += mem.Load32(b)
		}
		if len(b) > 0 { // a last page of less than a word
			sum += uint32(b[0])
		}
		runtime.KeepAlive(sum)
		return nil
	})
}

func madvise(b []byte, advice int) error {
	for {
		if err := unix.Madvise(b, advice); err != unix.EINTR {
			return err
		}
	}
}
