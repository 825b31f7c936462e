package sidecar

import (
	"context"
	"time"

	"github.com/ringcache/ringcache/internal/shmfile"
)

// readersLock is a lock among the readers that use a sidecar.
type readersLock struct {
	*mapping
	held chan struct{} // contains a token while Lock is held by this File
}

// Lock takes the lock among the readers that use the sidecar; it does not concern the writer.
// Unlike vLLM's lock it becomes free when its holder dies. Lock waits until ctx ends.
func (l *readersLock) Lock(ctx context.Context) error {
	select {
	case l.held <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if l.file == nil {
		return nil
	}
	for wait := 20 * time.Microsecond; ; wait = min(2*wait, 2*time.Millisecond) {
		ok, err := shmfile.TryLockByte(l.file, offReadersLock)
		if ok {
			return nil
		}
		if err == nil {
			select {
			case <-time.After(wait):
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		<-l.held
		return err
	}
}

// TryLock is Lock without waiting. It reports whether it took the lock.
func (l *readersLock) TryLock() (bool, error) {
	select {
	case l.held <- struct{}{}:
	default:
		return false, nil
	}
	if l.file == nil {
		return true, nil
	}
	ok, err := shmfile.TryLockByte(l.file, offReadersLock)
	if !ok {
		<-l.held
	}
	return ok, err
}

// Unlock releases what Lock or TryLock took.
func (l *readersLock) Unlock() error {
	defer func() { <-l.held }()
	if l.file == nil {
		return nil
	}
	return shmfile.UnlockByte(l.file, offReadersLock)
}
