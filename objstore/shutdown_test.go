package objstore

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/serde"
)

var policies = map[string]Policy{"fifo": FIFO, "pool": Pool}

// inFolder creates a store in a folder of the test.
func inFolder(t *testing.T, p Policy) (*Writer, string) {
	t.Helper()
	dir := t.TempDir()
	w, err := Create(Options{Name: "s", Dir: dir, RingSize: 64 << 10, MaxObjectSize: 16 << 10, Readers: 1, Policy: p})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, w.CheckStructure())
		require.NoError(t, w.Abandon())
	})
	return w, dir
}

// mapped reports whether this process maps a file of a folder.
func mapped(t *testing.T, dir string) bool {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return strings.Contains(string(maps), dir)
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// A store that is ended with everything open leaves no name behind, and no memory
// goes under who still uses it.
func TestAbandonWithEverythingOpen(t *testing.T) {
	for name, p := range policies {
		t.Run(name, func(t *testing.T) {
			w, dir := inFolder(t, p)
			h, err := w.Put("viewed", image(1000, 7))
			require.NoError(t, err)
			view, err := w.Get(h, "viewed")
			require.NoError(t, err)
			unsent, err := w.Begin("unsent")
			require.NoError(t, err)
			_, err = unsent.Put("a", image(1000, 1))
			require.NoError(t, err)
			sent, err := w.Begin("sent")
			require.NoError(t, err)
			_, err = sent.Lookup("a")
			require.NoError(t, err)
			require.NoError(t, sent.Commit())
			lease, err := w.Lease("a")
			require.NoError(t, err)
			res, err := w.Reserve("b", image(1000, 2))
			require.NoError(t, err)
			given, err := w.Reserve("c", image(1000, 3))
			require.NoError(t, err)
			issued, err := lease.Issue()
			require.NoError(t, err)
			stored, err := lease.Stored(issued)
			require.NoError(t, err)

			var busy *BusyError
			require.ErrorAs(t, w.Close(), &busy)
			require.ErrorIs(t, busy, ErrBusy)
			for _, part := range []string{`request "sent" (sent`, `request "unsent" (not sent`, `a reservation of key "b"`, `1 leases of key "a"`} {
				require.ErrorContains(t, busy, part)
			}
			require.Equal(t, HolderRequest, w.Holders()[0].Kind)
			require.Equal(t, []string{"a"}, w.Holders()[0].Keys)

			require.NoError(t, w.Abandon())
			requireEmpty(t, dir)
			require.Empty(t, w.Holders())
			again, err := Create(Options{Name: "s", Dir: dir, RingSize: 64 << 10, MaxObjectSize: 16 << 10, Readers: 1, Policy: p})
			require.NoError(t, err, "the name is free")

			// Who was using the memory goes on.
			copy(res.Tensor("x"), tensor(1000, 9).Data)
			require.NoError(t, view.Check())
			for v, want := range map[*serde.Item]byte{view.Item(): 7, stored.(*serde.Item): 1} {
				e, ok := v.Lookup("x")
				require.True(t, ok)
				require.Equal(t, tensor(1000, want).Data, e.Data.(*serde.Tensor).Data)
			}
			_, err = res.Commit()
			require.ErrorIs(t, err, ErrClosed)
			given.Discard()
			_, err = unsent.Lookup("a")
			require.ErrorIs(t, err, ErrClosed)
			require.ErrorIs(t, unsent.Commit(), ErrClosed)
			unsent.Rollback()
			sent.Finish()
			sent.Abort()
			lease.TakeBack()
			require.NoError(t, view.Release())
			require.NoError(t, again.Close())
			require.True(t, mapped(t, dir), "what Stored returned is still in use")
			lease.Release()
			lease.Release()
			require.False(t, mapped(t, dir), "the memory goes with the last user")
			requireEmpty(t, dir)

			_, err = w.Begin("late")
			require.ErrorIs(t, err, ErrClosed)
			require.NoError(t, w.Abandon())
			require.NoError(t, w.Shutdown(context.Background()))
			require.NoError(t, w.Close())
			require.NoError(t, w.Detach())
		})
	}
}

// Shutdown takes nothing new, lets go on what is open, says what that is when its
// context ends, and closes the store in the end.
func TestShutdownWaitsForWhatIsOpen(t *testing.T) {
	for name, p := range policies {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, dir := inFolder(t, p)
				_, err := w.Put("old", image(1000, 1))
				require.NoError(t, err)
				r, err := w.Begin("r7")
				require.NoError(t, err)
				short, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				err = w.Shutdown(short)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, ErrBusy)
				require.ErrorContains(t, err, `request "r7" (not sent, begun 1s ago, 0 keys)`)

				for what, f := range map[string]func() error{
					"Begin":   func() error { _, err := w.Begin("new"); return err },
					"Lookup":  func() error { _, err := w.Lookup("old"); return err },
					"Lease":   func() error { _, err := w.Lease("old"); return err },
					"Put":     func() error { _, err := w.Put("new", image(10, 1)); return err },
					"Reserve": func() error { _, err := w.Reserve("new", image(10, 1)); return err },
					"Obtain": func() error {
						_, _, err := w.Obtain(context.Background(), "new", image(10, 1), PutOptions{})
						return err
					},
				} {
					require.ErrorIs(t, f(), ErrClosed, what)
				}
				h, err := r.Put("mine", image(1000, 2))
				require.NoError(t, err)
				_, err = r.Lookup("old")
				require.NoError(t, err)
				require.NoError(t, r.Commit())
				view, err := w.Get(h, "mine")
				require.NoError(t, err)
				res, err := w.Reserve("late", image(10, 1))
				require.ErrorIs(t, err, ErrClosed)
				require.Nil(t, res)

				done := make(chan error)
				go func() { done <- w.Shutdown(context.Background()) }()
				synctest.Wait()
				r.Finish()
				synctest.Wait()
				require.NotEmpty(t, w.Holders(), "the view")
				require.NoError(t, view.Release())
				require.NoError(t, <-done)
				requireEmpty(t, dir)
			})
		})
	}
}

// Who waits for room is woken when the store shuts down, or is abandoned.
func TestWaitersAreWokenByTheEndOfTheStore(t *testing.T) {
	for name, end := range map[string]func(w *Writer) error{
		"Shutdown": func(w *Writer) error {
			short, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			err := w.Shutdown(short)
			if errors.Is(err, ErrBusy) {
				return nil
			}
			return err
		},
		"Abandon": (*Writer).Abandon,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _ := inFolder(t, Pool)
				r, err := w.Begin("r")
				require.NoError(t, err)
				for i := 0; err == nil; i++ {
					_, err = r.Put(string(rune('a'+i)), image(15<<10, 1))
				}
				require.ErrorIs(t, err, ErrFull)
				got := make(chan error)
				go func() {
					_, err := w.PutContext(context.Background(), "waits", image(15<<10, 1), PutOptions{})
					got <- err
				}()
				synctest.Wait()
				ended := make(chan error)
				go func() { ended <- end(w) }()
				require.ErrorIs(t, <-got, ErrClosed)
				require.NoError(t, <-ended)
				r.Rollback()
				require.NoError(t, w.Shutdown(context.Background()))
			})
		})
	}
}
