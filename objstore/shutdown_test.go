package objstore

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmstore"
)

// inFolder creates a store in a folder of the test.
func inFolder(t *testing.T, k kind) (*writer, string) {
	t.Helper()
	dir := t.TempDir()
	w, err := k.create(Options{Name: "s", Dir: dir, RingSize: 64 << 10, MaxObjectSize: 16 << 10, Readers: 1})
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
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			w, dir := inFolder(t, k)
			h, err := w.Put("viewed", image(1000, 7))
			require.NoError(t, err)
			view, err := w.Get(h)
			require.NoError(t, err)
			unsent := begin(t, w, "unsent")
			_, err = unsent.Put("a", image(1000, 1))
			require.NoError(t, err)
			sent := begin(t, w, "sent")
			_, err = sent.Lookup("a")
			require.NoError(t, err)
			require.NoError(t, sent.Commit())
			keeps := begin(t, w, "keeps")
			issued, err := keeps.Lookup("a")
			require.NoError(t, err)
			res, err := w.Reserve("b", image(1000, 2))
			require.NoError(t, err)
			given, err := w.Reserve("c", image(1000, 3))
			require.NoError(t, err)
			stored, err := keeps.Stored(issued)
			require.NoError(t, err)

			var busy *shmstore.BusyError
			require.ErrorAs(t, w.Close(), &busy)
			require.ErrorIs(t, busy, ErrBusy)
			for _, part := range []string{`request "sent" (sent`, `request "unsent" (not sent`, `request "keeps" (not sent`, `a reservation of key "b"`} {
				require.ErrorContains(t, busy, part)
			}
			keys := map[string][]string{}
			for _, h := range w.Holders() {
				if h.Kind == "request" {
					keys[h.ID] = h.Keys
				}
			}
			for _, id := range []string{"unsent", "sent", "keeps"} {
				require.Equal(t, []string{"a"}, keys[id])
			}

			require.NoError(t, w.Abandon())
			requireEmpty(t, dir)
			require.Empty(t, w.Holders())
			again, err := k.create(Options{Name: "s", Dir: dir, RingSize: 64 << 10, MaxObjectSize: 16 << 10, Readers: 1})
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
			require.ErrorIs(t, err, errClosed)
			given.Discard()
			_, err = unsent.Lookup("a")
			require.ErrorIs(t, err, errClosed)
			require.ErrorIs(t, unsent.Commit(), errClosed)
			unsent.Rollback()
			sent.Finish()
			sent.Abort()
			_, err = keeps.Stored(issued)
			require.ErrorIs(t, err, errClosed)
			require.NoError(t, view.Release())
			require.NoError(t, again.Close())
			require.True(t, mapped(t, dir), "what Stored returned is still in use")
			keeps.Rollback()
			keeps.Rollback()
			require.False(t, mapped(t, dir), "the memory goes with the last user")
			requireEmpty(t, dir)

			_, err = w.Begin("late")
			require.ErrorIs(t, err, errClosed)
			require.NoError(t, w.Abandon())
			require.NoError(t, w.Shutdown(context.Background()))
			require.NoError(t, w.Close())
			require.NoError(t, w.Detach())
		})
	}
}

// Shutdown takes nothing new, lets go on what is open, reports what that is when its
// context ends, and closes the store in the end.
func TestShutdownWaitsForWhatIsOpen(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, dir := inFolder(t, k)
				_, err := w.Put("old", image(1000, 1))
				require.NoError(t, err)
				r := begin(t, w, "r7")
				short, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				err = w.Shutdown(short)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, ErrBusy)
				require.ErrorContains(t, err, `request "r7" (not sent, begun 1s ago, 0 keys)`)

				for what, f := range map[string]func() error{
					"Begin":   func() error { _, err := w.Begin("new"); return err },
					"Lookup":  func() error { _, err := w.Lookup("old"); return err },
					"Put":     func() error { _, err := w.Put("new", image(10, 1)); return err },
					"Reserve": func() error { _, err := w.Reserve("new", image(10, 1)); return err },
				} {
					require.ErrorIs(t, f(), errClosed, what)
				}
				_, err = r.Put("mine", image(1000, 2))
				require.NoError(t, err)
				_, err = r.Lookup("old")
				require.NoError(t, err)
				require.NoError(t, r.Commit())
				require.NoError(t, w.Segment().Hold(), "as a view does")
				res, err := w.Reserve("late", image(10, 1))
				require.ErrorIs(t, err, errClosed)
				require.Nil(t, res)

				done := make(chan error)
				go func() { done <- w.Shutdown(context.Background()) }()
				synctest.Wait()
				r.Finish()
				synctest.Wait()
				require.NotEmpty(t, w.Holders(), "the view")
				w.Segment().Release()
				require.NoError(t, <-done)
				requireEmpty(t, dir)
			})
		})
	}
}

// A request that waits for room goes on when the store shuts down, and gets what it
// waits for; it is woken when the store is abandoned.
func TestWaitersAndTheEndOfTheStore(t *testing.T) {
	for _, k := range kinds {
		for name, end := range map[string]func(w *writer) error{
			"Shutdown": func(w *writer) error { return w.Shutdown(context.Background()) },
			"Abandon":  func(w *writer) error { return w.Abandon() },
		} {
			t.Run(fmt.Sprint(k, "/", name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, _ := inFolder(t, k)
					r, waits := begin(t, w, "r"), begin(t, w, "waits")
					fill(t, r, 15<<10)
					got := make(chan error, 1)
					go func() {
						_, err := waits.Request.Put("waits", image(15<<10, 1), PutOptions{Wait: context.Background()})
						got <- err
					}()
					synctest.Wait()
					ended := make(chan error, 1)
					go func() { ended <- end(w) }()
					synctest.Wait()
					_, err := w.Begin("late")
					require.ErrorIs(t, err, errClosed)
					if name == "Shutdown" {
						require.Empty(t, got, "it waits on")
						r.Rollback()
						require.NoError(t, <-got)
						synctest.Wait()
						require.Empty(t, ended)
						waits.Rollback()
					} else {
						require.ErrorIs(t, <-got, errClosed)
						r.Rollback()
						waits.Rollback()
					}
					require.NoError(t, <-ended)
					require.NoError(t, w.Shutdown(context.Background()))
				})
			})
		}
	}
}

// A request that ended with its readers, and whose owner still looks at a value, is all that is
// in the way of a Close. The error names it.
func TestBusyErrorNamesARequestThatWasReset(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			w, _ := inFolder(t, k)
			r := begin(t, w, "r")
			h, err := r.Put("a", image(1000, 1))
			require.NoError(t, err)
			_, err = r.Stored(h)
			require.NoError(t, err)
			require.NoError(t, r.Commit())
			require.NoError(t, w.ResetReaders(0))
			var busy *shmstore.BusyError
			require.ErrorAs(t, w.Close(), &busy)
			require.Equal(t, []shmstore.Holder{{Kind: "view", Count: 1}}, busy.Holders)
			r.Finish() // by its owner
			require.Empty(t, w.Holders())
			require.NoError(t, w.Close())
		})
	}
}
