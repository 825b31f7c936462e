package objstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/failpoint"
)

// readerChild comes to a place inside a read, prints that, and ends itself on a line of its parent.
func readerChild(o killOrder) error {
	r, err := Open(o.Name, killReaderOptions(true))
	if err != nil {
		return err
	}
	if !r.Protected() {
		return errors.New("there was no slot")
	}
	h, err := parseHandle(o.Handle)
	if err != nil {
		return err
	}
	stop := func() {
		say("at")
		bufio.NewScanner(os.Stdin).Scan()
		failpoint.Die()
	}
	failpoint.Set(func(name string) {
		if name == o.Place {
			stop()
		}
	})
	r.counter.lock = &stoppedLock{r.sidecar, o.Place, stop}
	v, err := r.Get(h.key, h.h)
	if err != nil {
		return err
	}
	if err := h.verify(v.Value()); err != nil {
		return err
	}
	if o.Place == readerViews {
		stop()
	}
	return fmt.Errorf("never came to %s", o.Place)
}

// stoppedLock stops whoever holds it.
type stoppedLock struct {
	Locker
	place string
	stop  func()
}

func (l *stoppedLock) Lock(ctx context.Context) error {
	err := l.Locker.Lock(ctx)
	if err == nil && l.place == readerLocked {
		l.stop()
	}
	return err
}

func (l *stoppedLock) Unlock() error {
	if l.place == readerCounted {
		l.stop()
	}
	return l.Locker.Unlock()
}

// killReaders kills readers that hold an object, and maybe the readers' lock. As
// long as they live, what they hold stays, although its request has ended; when
// they are dead, nothing of them is left.
func killReaders(t *testing.T, report *killReport, each int) {
	name := killName(t, "readers")
	w, err := pool.create(killOptions(name, true))
	require.NoError(t, err)
	other, err := Open(name, killReaderOptions(true))
	require.NoError(t, err)
	dead := 0
	for i := range each {
		for _, place := range readerPlaces {
			h := killHandle{key: fmt.Sprintf("k%d", dead), nonce: uint64(i), n: 1 + i*37%5000}
			r := begin(t, w, "r")
			h.h, err = r.Request.Put(h.key, killItem(h.n, h.bytes()), PutOptions{Note: killNote(h.nonce, h.n)})
			require.NoError(t, err)
			require.NoError(t, r.Commit())
			p := startChild(t, killOrder{Role: "reader", Name: name, Place: place, Handle: h.String()})
			line, err := p.Line()
			require.NoError(t, err)
			require.Equal(t, "at", line)

			r.Finish()
			requireHeld(t, w, h)
			require.Equal(t, dead, deadReaders(t, w))
			if locked := place == readerLocked || place == readerCounted; locked {
				over, cancel := context.WithCancel(context.Background())
				cancel()
				require.Error(t, other.sidecar.Lock(over), "the lock is held")
			} else {
				require.NoError(t, h.look(other), "what was nearly evicted is readable")
			}

			if i%2 == 0 {
				require.NoError(t, p.Kill())
			} else {
				require.NoError(t, p.In.Close())
			}
			require.NoError(t, p.WaitKilled())
			report.killed(place)
			require.NoError(t, h.look(other), "the lock is free, and the read counts")
			if i%3 > 0 {
				gone, err := w.Evict(h.key)
				require.NoError(t, err)
				require.True(t, gone)
			} else {
				require.Zero(t, used(t, w))
			}
			dead++
			require.Equal(t, dead, deadReaders(t, w))
			require.ErrorIs(t, h.look(other), ErrStale)
			require.NoError(t, w.CheckStructure())
		}
	}
	require.NoError(t, other.Close())
	require.NoError(t, w.Close())
	requireNoFiles(t, name)
}

// requireHeld tries to make an object go that a reader holds.
func requireHeld(t *testing.T, w *writer, h killHandle) {
	t.Helper()
	gone, err := w.Evict(h.key)
	require.NoError(t, err)
	require.False(t, gone, "it is looked at")
	_, err = w.FreeUnused()
	require.NoError(t, err)
	require.True(t, w.Cached(h.key))
	_, err = w.Put("large", bytesItem(76<<10)) // and again, until there is no room
	require.NoError(t, err)
	w.Fence().Passed()
	require.True(t, w.Remove("large"))
	require.True(t, w.Cached(h.key))
}

func deadReaders(t *testing.T, w *writer) int {
	t.Helper()
	s, err := w.State()
	require.NoError(t, err)
	return s.DeadReaders
}
