package pycompat

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/futex"
	"github.com/ringcache/ringcache/internal/shmfile"
)

// A POSIX semaphore as glibc 2.21 and newer keep it in /dev/shm/sem.NAME
// (sysdeps/nptl/internaltypes.h, struct new_sem, 64-bit):
//
//	offset  bytes  field
//	0       4      value: 1 free, 0 held
//	4       4      number of waiters
//	8       4      0x80: shared between processes, so futexes are too
//	12      20     unused
const (
	semFileSize  = 32
	semWaiter    = 1 << 32
	semShared    = 0x80
	semSharedOff = 8
)

// waitSlice bounds a sleep, so that a context that ends without a deadline is
// noticed. A semaphore that is posted wakes its sleeper at once.
const waitSlice = 20 * time.Millisecond

// Semaphore is the lock of a Python program, multiprocessing's Lock, opened
// from Go. It is not robust: a process that dies while it holds the lock leaves
// it held for ever, which is why every wait here takes a context.
//
// Any number of goroutines may use it. A goroutine that waits holds a thread.
type Semaphore struct {
	name  string
	whole *atomic.Uint64 // value and waiters
	value *atomic.Uint32
	mem   []byte

	mu     sync.Mutex
	users  int // calls under way
	holds  int // locks taken through this object and not given back through it
	closed bool
}

// OpenSemaphore opens the lock by the name that Python shows as
// lock._semlock.name, such as "/mp-a1b2c3d4". It fails with
// [fs.ErrNotExist] if there is no semaphore of that name, which is so for every lock
// of a "fork" context, with [errors.ErrUnsupported] if the file is something else, and
// for a file that is another user's or that everyone may write.
func OpenSemaphore(name string) (*Semaphore, error) {
	if name == "" || name == "None" {
		return nil, errUnnamed
	}
	path, err := shmfile.Path("", "sem."+strings.TrimPrefix(name, "/"))
	if err != nil {
		return nil, fmt.Errorf("pycompat: semaphore %q: %w", name, err)
	}
	f, size, err := shmfile.Open(path, true)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no semaphore %q: the Python program has ended, or: %w",
			name, errors.Join(errUnnamed, err))
	}
	if err != nil {
		return nil, fmt.Errorf("pycompat: semaphore %q: %w", name, err)
	}
	defer f.Close()
	if size != semFileSize {
		return nil, fmt.Errorf("%w: %q has %d bytes, want %d", errLayout, name, size, semFileSize)
	}
	m, err := shmfile.Map(f, size, true)
	if err != nil {
		return nil, err
	}
	s := &Semaphore{name: name, mem: m}
	s.whole, s.value = futex.Words(m)
	var ok bool
	if err := fault.Guard(func() error {
		ok = m[semSharedOff] == semShared && s.value.Load() <= 1
		return nil
	}); err != nil || !ok {
		return nil, errors.Join(err,
			fmt.Errorf("%w: %q has other contents; only glibc's locks of value 0 or 1 are supported", errLayout, name),
			shmfile.Unmap(m))
	}
	return s, nil
}

// use runs f while the mapping can't be closed. A file that was truncated is an
// error.
func (s *Semaphore) use(f func() error) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return fmt.Errorf("%w: %s", errClosed, s.name)
	}
	s.users++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.users--
		s.mu.Unlock()
	}()
	if err := fault.Guard(f); err != nil {
		return fmt.Errorf("pycompat: semaphore %s: %w", s.name, err)
	}
	return nil
}

func (s *Semaphore) addHold(n int) {
	s.mu.Lock()
	s.holds = max(0, s.holds+n)
	s.mu.Unlock()
}

// take lowers the value if it is not 0, and in the same step gives back the
// waiters that the caller had counted for itself.
func (s *Semaphore) take(waiters uint64) bool {
	for {
		d := s.whole.Load()
		if uint32(d) == 0 {
			return false
		}
		if s.whole.CompareAndSwap(d, d-1-waiters) {
			return true
		}
	}
}

// Lock takes the lock and waits until it is free. If ctx ends first, Lock returns
// the error of ctx; a lock that is free is taken all the same. The holder may be a
// process that died: give ctx a deadline.
func (s *Semaphore) Lock(ctx context.Context) error {
	return s.use(func() error {
		if !s.take(0) {
			if err := s.wait(ctx); err != nil {
				return err
			}
		}
		s.addHold(1)
		return nil
	})
}

// TryLock takes the lock if it is free, and reports whether it did.
func (s *Semaphore) TryLock() (ok bool, err error) {
	err = s.use(func() error {
		if ok = s.take(0); ok {
			s.addHold(1)
		}
		return nil
	})
	return ok, err
}

// wait takes the lock as a waiter.
func (s *Semaphore) wait(ctx context.Context) error {
	s.whole.Add(semWaiter)
	for !s.take(semWaiter) {
		err := ctx.Err()
		if err == nil {
			slice := waitSlice
			if t, ok := ctx.Deadline(); ok {
				slice = min(slice, max(0, time.Until(t)))
			}
			err = futex.Wait(s.value, 0, slice)
		}
		if err != nil {
			s.whole.Add(^uint64(semWaiter) + 1)
			return err
		}
	}
	return nil
}

// Unlock frees the lock. As in Python any process may do that, and freeing a
// free lock is an error that changes nothing.
func (s *Semaphore) Unlock() error {
	return s.use(func() error {
		for {
			d := s.whole.Load()
			if uint32(d) != 0 {
				return errNotHeld
			}
			if !s.whole.CompareAndSwap(d, d+1) {
				continue
			}
			s.addHold(-1)
			if d>>32 > 0 {
				return futex.Wake(s.value, 1)
			}
			return nil
		}
	})
}

// Close unmaps the semaphore, which goes on to exist. It fails and does nothing while
// the lock is held through this object, since no one else would free it, or a call is
// under way. Closing twice is fine.
func (s *Semaphore) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil
	case s.users > 0 || s.holds > 0:
		return fmt.Errorf("%w: %s: %d calls under way, held %d times", errBusy, s.name, s.users, s.holds)
	}
	s.closed = true
	return shmfile.Unmap(s.mem)
}
