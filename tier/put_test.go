package tier_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

func TestWritePolicies(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower[0].Write = tier.Through })
		wait := make(chan struct{})
		b.remote.Do(func(tiertest.Call) tiertest.Answer { return tiertest.Answer{Wait: wait} })
		require.NoError(t, put(b.Store, "x", "", 1000))
		require.Equal(t, "memory disk", b.has("x"), "the caller waits for Through, not for Back")
		state := b.State()
		require.Equal(t, 1, state.Backlog)
		require.Equal(t, int64(1000), state.BacklogBytes)
		require.Equal(t, 1, state.Levels[2].Backlog)
		require.Equal(t, int64(1000), b.memory.Usage().Held, "what is pending stays")
		close(wait)
		synctest.Wait()
		require.Equal(t, "memory disk remote", b.has("x"))
		require.Zero(t, b.State().Backlog)
		require.Zero(t, b.State().BacklogBytes)
		require.Zero(t, b.memory.Usage().Held)
	})
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower[0].Write, o.Lower[1].Write = tier.Around, tier.Around })
		require.NoError(t, put(b.Store, "x", "", 1000))
		synctest.Wait()
		require.Equal(t, "memory", b.has("x"))
	})
}

func TestCommitNeverWaits(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower[0].Write = tier.Through })
		wait := make(chan struct{})
		for _, l := range []*tiertest.Fault{b.disk, b.remote} {
			l.Do(func(tiertest.Call) tiertest.Answer { return tiertest.Answer{Wait: wait} })
		}
		l := b.lease("l")
		b.store(l, "x", "", 1000)
		b.store(l, "y", "x", 1000)
		l.Release()
		require.Equal(t, "memory", b.has("x"))
		require.Equal(t, int64(2000), b.memory.Usage().Held)
		close(wait)
		synctest.Wait()
		require.Equal(t, "memory disk remote", b.has("x"))
		require.Equal(t, "memory disk remote", b.has("y"))
		require.Zero(t, b.memory.Usage().Held)
	})
}

func TestPutFrom(t *testing.T) {
	for name, memory := range map[string]int64{"memory": 1 << 20, "no room in memory": 1} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				b := newBed(t, memory, func(o *tier.Options) { o.Lower[0].Write = tier.Through })
				from := func(name string, size, have int64) tier.Put {
					return tier.Put{Object: object(name, "", size), From: bytes.NewReader(content(name, have))}
				}
				broken := errors.New("broken")
				puts := []tier.Put{
					from("a", 1000, 1000), from("short", 1000, 999), from("long", 1000, 1001), from("empty", 0, 0), from("none", 10, 0),
					{Object: object("broken", "", 100), From: io.MultiReader(strings.NewReader("xyz"), failingReader{broken})},
					{Object: object("wrong", "", 100), Bytes: make([]byte, 99)},
					{Object: object("none", "none", 1), Bytes: make([]byte, 1)},
				}
				b.Put(t.Context(), puts)
				synctest.Wait()
				require.NoError(t, puts[0].Err)
				require.ErrorIs(t, puts[1].Err, io.ErrUnexpectedEOF)
				require.ErrorIs(t, puts[2].Err, fs.ErrInvalid)
				require.NoError(t, puts[3].Err)
				require.ErrorIs(t, puts[4].Err, io.ErrUnexpectedEOF)
				require.ErrorIs(t, puts[5].Err, broken)
				require.ErrorIs(t, puts[6].Err, fs.ErrInvalid)
				require.ErrorIs(t, puts[7].Err, fs.ErrInvalid)
				require.NoError(t, b.get("a"))
				require.NoError(t, b.get("empty"))
				for _, name := range []string{"short", "long", "none", "broken", "wrong"} {
					require.Empty(t, b.has(name), name)
				}
				require.Contains(t, b.has("a"), "disk remote")
				require.Zero(t, b.memory.Usage().Held)
			})
		})
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

func TestPutTwiceInABatch(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower = nil })
		p := tier.Put{Object: object("x", "", 10), Bytes: content("x", 10)}
		puts := []tier.Put{p, p, {Object: p.Object, From: bytes.NewReader(p.Bytes)}}
		b.Put(t.Context(), puts)
		for _, p := range puts {
			require.NoError(t, p.Err)
		}
		require.NoError(t, b.get("x"))
	})
}

func TestPutWithoutRoom(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1000, nil)
		require.NoError(t, put(b.Store, "x", "", 2000))
		require.Equal(t, "disk remote", b.has("x"))
		b.disk.Fail(tier.ErrUnavailable)
		require.NoError(t, put(b.Store, "y", "", 2000))
		require.Equal(t, "remote", b.has("y"))
		b.remote.Fail(tier.ErrFull)
		require.ErrorIs(t, put(b.Store, "z", "", 2000), tier.ErrFull)
		require.NoError(t, put(b.Store, "small", "", 200))
		require.Equal(t, "memory", b.has("small"))
		require.NotZero(t, b.counter("remote not written: full"))
	})
}

func TestPutWhatIsThere(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower[0].Write = tier.Through })
		require.NoError(t, put(b.memory, "x", "", 1000))
		require.NoError(t, put(b.Store, "x", "", 1000))
		require.Contains(t, b.has("x"), "memory disk", "Through is a promise")
		synctest.Wait()
		require.Equal(t, "memory disk remote", b.has("x"), "and so is what Drain waits for")
		l := b.lease("l")
		require.NoError(t, l.Reserve([]tier.Object{object("y", "", 100)})[0].Err)
		require.NoError(t, put(b.Store, "y", "", 100), "somebody else is writing it to memory")
		require.Contains(t, b.has("y"), "disk")
		l.Release()
	})
}

// TestDamageIsNotWritten: somebody writes to the shared memory while an object waits to be written.
func TestDamageIsNotWritten(t *testing.T) {
	for _, when := range []string{"before it is read", "after it was checked"} {
		for _, commit := range []bool{false, true} {
			in(t, func(t *testing.T) {
				b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower = o.Lower[1:] })
				wait := make(chan struct{})
				b.remote.Do(func(tiertest.Call) tiertest.Answer { return tiertest.Answer{Wait: wait} })
				l := b.lease("l")
				if when == "before it is read" { // the two that are written keep the worker away
					for _, name := range []string{"1", "2", "3", "4"} {
						require.NoError(t, put(b.Store, name, "", 1<<10))
						synctest.Wait()
					}
				}
				if commit {
					b.store(l, "x", "", 1000)
				} else {
					require.NoError(t, put(b.Store, "x", "", 1000))
				}
				placed := l.Pin(keys("x"))
				require.NoError(t, placed[0].Err)
				if when != "before it is read" {
					synctest.Wait() // a worker waits in the level
				}
				placed[0].Bytes[999] ^= 1
				close(wait)
				synctest.Wait()
				require.NotContains(t, b.has("x"), "remote", "%s, commit %v", when, commit)
				require.Zero(t, b.State().Backlog)
				l.Release()
			})
		}
	}
}

// TestWhatIsKnownToBeWrongIsNotServed: a client writes to the segment where it must not, and lets go.
func TestWhatIsKnownToBeWrongIsNotServed(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		b.disk.Fail(tier.ErrUnavailable)
		b.remote.Fail(tier.ErrUnavailable)
		require.NoError(t, put(b, "x", "", 1000))
		l := b.lease("client")
		p := l.Pin(keys("x"))[0]
		require.NoError(t, p.Err)
		p.Bytes[123]++
		l.Release()
		b.disk.Do(nil)
		b.remote.Do(nil)
		b.drain()
		require.Equal(t, int64(1), b.counter("disk not written: corrupt"))
		require.Equal(t, int64(1), b.counter("remote not written: corrupt"))
		require.Empty(t, b.has("x"))
	})
}

// TestPutOfWhatIsChangedMeanwhile: the level below is written to from memory, before Put returns.
func TestPutOfWhatIsChangedMeanwhile(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower[0].Write, o.Lower[1].Write = tier.Through, tier.Around })
		l := b.lease("client")
		b.disk.Do(func(c tiertest.Call) tiertest.Answer {
			if is(c, "Put") {
				l.Pin(keys("x"))[0].Bytes[999]++
				l.Unpin(keys("x"))
			}
			return tiertest.Answer{}
		})
		p := []tier.Put{{Object: object("x", "", 1000), From: bytes.NewReader(content("x", 1000))}}
		b.Put(t.Context(), p)
		require.ErrorIs(t, p[0].Err, tier.ErrCorrupt, "no level has it")
		require.Empty(t, b.has("x"))
	})
}

func TestDrain(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		left, err := b.Drain(t.Context())
		require.NoError(t, err)
		require.Empty(t, left)
		wait := make(chan struct{})
		b.disk.Do(func(c tiertest.Call) tiertest.Answer { return tiertest.Answer{Wait: wait} })
		b.remote.Fail(tier.ErrFull)
		for _, name := range []string{"a", "b", "c"} {
			require.NoError(t, put(b.Store, name, "", 100))
		}
		done := make(chan error)
		go func() { _, err := b.Drain(t.Context()); done <- err }()
		synctest.Wait()
		close(wait)
		require.NoError(t, <-done, "what a level refuses is given up")
		require.Equal(t, int64(3), b.counter("remote not written: full"))

		b.disk.Fail(tier.ErrUnavailable)
		require.NoError(t, put(b.Store, "d", "", 100))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		left, err = b.Drain(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "1 objects of 100 bytes")
		require.Equal(t, keys("d"), left)

		go func() { _, err := b.Drain(t.Context()); done <- err }()
		synctest.Wait()
		b.disk.Do(nil)
		require.NoError(t, <-done, "the level came back")
		require.Equal(t, "memory disk", b.has("d"))
	})
}

func TestCloseEndsDrain(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		b.disk.Do(func(tiertest.Call) tiertest.Answer { return tiertest.Answer{Hang: true} })
		require.NoError(t, put(b.Store, "d", "", 100))
		done := make(chan error)
		go func() {
			left, err := b.Drain(t.Context())
			require.Equal(t, keys("d"), left) //nolint:testifylint // ends the goroutine, and then the test
			done <- err
		}()
		synctest.Wait()
		require.NoError(t, b.Close())
		require.ErrorContains(t, <-done, "closed")
	})
}

// TestPendingWritesSurviveARestart: of the process, or of the store alone.
func TestPendingWritesSurviveARestart(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		b.disk.Fail(tier.ErrUnavailable)
		require.NoError(t, put(b.Store, "x", "", 1000))
		l := b.lease("l")
		b.store(l, "y", "", 1000)
		l.Release()
		synctest.Wait()
		require.Equal(t, "memory remote", b.has("x"))
		written := b.remote.Elements("Put")
		require.Equal(t, 2, written)

		killed := b.Store
		b.memory = b.memory.Reopen()
		b.options.Memory = b.memory
		require.NoError(t, killed.Close())
		require.Equal(t, int64(2000), b.memory.Usage().Held)
		b.open()
		require.Equal(t, 2, b.State().Backlog)
		require.NoError(t, b.get("x"))
		b.disk.Do(nil)
		left, err := b.Drain(t.Context())
		require.NoError(t, err)
		require.Empty(t, left)
		require.Equal(t, "memory disk remote", b.has("x"))
		require.Equal(t, "memory disk remote", b.has("y"))
		require.Equal(t, written, b.remote.Elements("Put"), "a level that has it gets nothing again")
		require.Zero(t, b.memory.Usage().Held)
	})
}

// TestKilledReservationsAreGivenUp: those of Put and of promotions, and the pins of these.
func TestKilledReservationsAreGivenUp(t *testing.T) {
	in(t, func(t *testing.T) {
		m := tiertest.NewMap(tiertest.MapOptions{Name: "memory"})
		for _, id := range []string{"ringcache store: pending writes", "ringcache store: promoted"} {
			l, err := m.Lease(t.Context(), tier.LeaseOptions{ID: id, Owner: "ringcache store"})
			require.NoError(t, err)
			placed := l.Reserve([]tier.Object{object("half of "+id, "", 100), object(id, "", 100)})
			require.NoError(t, placed[1].Err)
			copy(placed[1].Bytes, content(id, 100))
			require.NoError(t, l.Commit(keys(id))[0])
		}
		b := newBed(t, 0, func(o *tier.Options) { o.Memory = m.Reopen() })
		b.memory = b.options.Memory.(*tiertest.Map)
		synctest.Wait()
		require.Zero(t, b.memory.Usage().Held)
		require.Equal(t, "memory disk remote", b.has("ringcache store: pending writes"))
		require.Equal(t, "memory", b.has("ringcache store: promoted"))
		require.Empty(t, b.has("half of ringcache store: pending writes"))
	})
}

func TestMaxBacklogAndQuotas(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) {
			o.Lower = o.Lower[1:]
			o.MaxBacklog = 3000
			o.Quotas = map[string]int64{"small": 1000}
		})
		b.remote.Fail(tier.ErrUnavailable)
		l := b.lease("l")
		commit := func(name, tenant string) {
			o := object(name, "", 1000)
			o.Tenant = tenant
			placed := l.Reserve([]tier.Object{o})
			require.NoError(t, placed[0].Err)
			copy(placed[0].Bytes, content(name, 1000))
			require.NoError(t, l.Commit(keys(name))[0], "a full store fails no Commit")
		}
		commit("a", "small")
		commit("b", "small")
		require.Equal(t, int64(1000), b.State().BacklogBytes)
		commit("c", "")
		commit("d", "large")
		commit("e", "large")
		require.Equal(t, int64(3000), b.State().BacklogBytes)
		require.Equal(t, 5, b.State().Backlog, "b and e wait without a pin")
		l.Release()
		l = b.lease("m")
		require.Equal(t, int64(3000), b.memory.Usage().Held)
		require.NoError(t, b.memory.Delete(t.Context(), keys("e"))[0], "evicted")
		b.remote.Do(nil)
		_, err := b.Drain(t.Context())
		require.ErrorContains(t, err, "had no room for 1 writes")
		require.Equal(t, int64(1), b.counter("remote not written: quota"))
		require.Equal(t, "memory remote", b.has("a"))
		require.Equal(t, "memory remote", b.has("b"))
		commit("f", "small")
		synctest.Wait()
		require.Equal(t, "memory remote", b.has("f"), "the quota is free again")

		wait := make(chan struct{})
		b.remote.Do(func(tiertest.Call) tiertest.Answer { return tiertest.Answer{Wait: wait} })
		commit("g", "small")
		done := make(chan error)
		go func() {
			p := []tier.Put{{Object: tier.Object{Key: key("h"), Size: 10, Tenant: "small"}, Bytes: content("h", 10)}}
			b.Put(t.Context(), p)
			done <- p[0].Err
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("Put is to write what the backlog has no room for")
		default:
		}
		close(wait)
		require.NoError(t, <-done)
		require.Equal(t, "memory remote", b.has("h"))
	})
}

// TestChildrenAreWrittenAfterTheirParents, also when several workers write.
func TestChildrenAreWrittenAfterTheirParents(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<30, func(o *tier.Options) { o.Lower = o.Lower[1:] })
		var order []string
		b.remote.Do(func(c tiertest.Call) tiertest.Answer {
			if is(c, "Put") {
				order = append(order, c.Key.Name)
			}
			return tiertest.Answer{}
		})
		l := b.lease("l")
		parent := ""
		for _, name := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
			b.store(l, name, parent, 1<<19)
			parent = name
		}
		synctest.Wait()
		require.Equal(t, "abcdefghijklmnopqrstuvwxyz", strings.Join(order, ""))
	})
}
