package memory

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/mem"
	"golang.org/x/sys/unix"
)

// piece is how many bytes are populated between two looks at the context.
const piece = 8 << 20

// prefault maps all pages of a mapping, so that using them is no fault later,
// with as many workers (GOMAXPROCS if 0) as asked for. It changes no byte and
// may run while others read and write. Progress, if not nil, is called with the
// bytes done so far, ever more up to the total, by one goroutine at a time.
//
// A page that can't be had is an error, never a signal. It returns after all
// workers have ended, with the context's cause if that ended them.
func prefault(ctx context.Context, b []byte, workers int, progress func(done, total int64)) error {
	return prefaultBy(ctx, b, workers, progress, populate)
}

func prefaultBy(ctx context.Context, b []byte, workers int, progress func(done, total int64), populate func([]byte) error) error {
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
					cancel(fmt.Errorf("prefaulting %d bytes: %w", len(b), err))
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

func populate(b []byte) error {
	// The second is for a mapping that is read-only; a kernel before 5.14 knows
	// neither.
	for _, advice := range []int{unix.MADV_POPULATE_WRITE, unix.MADV_POPULATE_READ} {
		if err := madvise(b, advice); err != unix.EINVAL {
			return err
		}
	}
	return touch(b)
}

// touch reads from every page: what is allocated is mapped by a read. The sum
// keeps the compiler from leaving the reads out.
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
