//go:build linux

package memory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/leasetable"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring/memory"
	"github.com/ringcache/ringcache/tier"
)

func TestLeaseKeepsObjects(t *testing.T) {
	o := options(t)
	o.Size = 8 << 10
	l := open(t, o)
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, put(l, object(name, "", 1500)))
	}
	x := leaseOf(t, l, tier.LeaseOptions{ID: "x", Owner: "me"})
	placed := x.Pin(keys("a", "none", "b", "a"))
	require.ErrorIs(t, placed[1].Err, tier.ErrNotFound)
	requirePlaced(t, []tier.Placed{placed[0], placed[2], placed[3]})
	require.Equal(t, placed[0], placed[3], "twice is fine")
	require.Equal(t, content("a", 1500), placed[0].Bytes)
	require.Equal(t, content("a", 1500), l.seg.Bytes()[placed[0].Offset:][:1500], "where other processes find it")
	require.Zero(t, placed[0].Offset%64)
	require.ErrorIs(t, l.Delete(context.Background(), keys("a"))[0], tier.ErrInUse)
	require.ErrorIs(t, put(l, object("large", "", 6000)), tier.ErrFull)
	require.NoError(t, put(l, object("d", "", 1500)))
	require.NoError(t, put(l, object("e", "", 1500)))
	require.NoError(t, put(l, object("f", "", 1500)))
	require.Equal(t, []string{"a", "b"}, present(l, "a", "b", "none"))
	require.Equal(t, tier.LeaseState{ID: "x", Owner: "me", Pinned: keys("a", "b"), Bytes: 3000}, x.State())
	require.GreaterOrEqual(t, l.Usage().Held, int64(3000))

	y := leaseOf(t, l, tier.LeaseOptions{ID: "y"})
	requirePlaced(t, y.Pin(keys("a")))
	x.Unpin(keys("a", "none", "a"))
	require.ErrorIs(t, l.Delete(context.Background(), keys("a"))[0], tier.ErrInUse, "another has it")
	y.Release()
	y.Release()
	require.NoError(t, l.Delete(context.Background(), keys("a"))[0])
	require.ErrorIs(t, y.Pin(keys("b"))[0].Err, tier.ErrEnded)
	require.ErrorIs(t, y.Reserve([]tier.Object{object("g", "", 1)})[0].Err, tier.ErrEnded)
	require.ErrorIs(t, y.Commit(keys("g"))[0], tier.ErrEnded)
	require.ErrorIs(t, y.Abort(keys("g"))[0], tier.ErrEnded)
	require.ErrorIs(t, y.SetUntil(time.Now()), tier.ErrEnded)
	require.Len(t, l.Leases(), 1)
	x.Release()
	require.Zero(t, l.Usage().Held)
}

func TestReserveInPlace(t *testing.T) {
	l := open(t, options(t))
	x := leaseOf(t, l, tier.LeaseOptions{ID: "x"})
	y := leaseOf(t, l, tier.LeaseOptions{ID: "y"})
	require.NoError(t, put(l, object("there", "", 10)))
	placed := x.Reserve([]tier.Object{object("a", "", 1000), object("b", "a", 1000), object("there", "", 10), object("a", "", 1), object("huge", "", 1<<20), {}})
	requirePlaced(t, placed[:2])
	require.ErrorIs(t, placed[2].Err, tier.ErrExists)
	require.ErrorIs(t, placed[3].Err, tier.ErrPending)
	require.ErrorIs(t, placed[4].Err, tier.ErrTooLarge)
	require.ErrorIs(t, placed[5].Err, fs.ErrInvalid)
	require.ErrorIs(t, y.Reserve([]tier.Object{object("a", "", 1)})[0].Err, tier.ErrPending)
	require.ErrorIs(t, y.Pin(keys("a"))[0].Err, tier.ErrPending)
	require.ErrorIs(t, x.Pin(keys("a"))[0].Err, tier.ErrPending)
	require.ErrorIs(t, l.Delete(context.Background(), keys("a"))[0], tier.ErrInUse)
	require.ErrorIs(t, put(l, object("a", "", 1000)), tier.ErrPending)
	require.ErrorIs(t, y.Commit(keys("a"))[0], tier.ErrNotFound, "it is another's")
	require.ErrorIs(t, y.Abort(keys("a"))[0], tier.ErrNotFound)
	x.Unpin(keys("a")) // is none
	require.Equal(t, keys("a", "b"), x.State().Reserved)
	require.Empty(t, present(l, "a", "b"))

	copy(placed[0].Bytes, content("a", 1000))
	copy(l.seg.Bytes()[placed[1].Offset:], content("b", 1000)) // as another process does
	requireNone(t, x.Commit(keys("a", "b")))
	require.ErrorIs(t, x.Commit(keys("a"))[0], tier.ErrNotFound, "it is none any more")
	requireContent(t, l, "a", 1000)
	requireContent(t, l, "b", 1000)
	require.Equal(t, keys("a", "b"), x.State().Pinned)
	require.ErrorIs(t, l.Delete(context.Background(), keys("b"))[0], tier.ErrInUse, "commit pins")

	requirePlaced(t, x.Reserve([]tier.Object{object("c", "", 100), object("d", "", 100)}))
	requireNone(t, x.Abort(keys("c")))
	require.NoError(t, put(l, object("c", "", 100)))
	x.Release()
	require.NoError(t, put(l, object("d", "", 100)), "the end of a lease gives reservations up")
	require.Zero(t, l.Usage().Held)
}

func TestLeasesAreByID(t *testing.T) {
	c := newClock()
	o := options(t)
	o.Now = c.now
	l := open(t, o)
	x := leaseOf(t, l, tier.LeaseOptions{ID: "x", Owner: "me", Until: c.at.Add(time.Minute)})
	_, err := l.Lease(context.Background(), tier.LeaseOptions{ID: "x", Owner: "you"})
	require.ErrorIs(t, err, fs.ErrPermission)
	for _, bad := range []tier.LeaseOptions{{}, {ID: strings.Repeat("x", 256)}, {ID: "y", Owner: strings.Repeat("x", 256)}} {
		_, err := l.Lease(context.Background(), bad)
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
	same := leaseOf(t, l, tier.LeaseOptions{ID: "x", Owner: "me", Until: c.at.Add(time.Second)})
	require.Same(t, x, same)
	require.True(t, x.State().Until.Equal(c.at.Add(time.Minute)), "the later of the two")
	leaseOf(t, l, tier.LeaseOptions{ID: "x", Owner: "me", Until: c.at.Add(time.Hour)})
	require.True(t, x.State().Until.Equal(c.at.Add(time.Hour)))
	leaseOf(t, l, tier.LeaseOptions{ID: "x", Owner: "me"})
	require.True(t, x.State().Until.IsZero(), "never is later")
	leaseOf(t, l, tier.LeaseOptions{ID: "x", Owner: "me", Until: c.at.Add(time.Hour)})
	require.True(t, x.State().Until.IsZero())
	long := leaseOf(t, l, tier.LeaseOptions{ID: strings.Repeat("x", 255), Owner: strings.Repeat("y", 255)})
	for i := range 14 {
		leaseOf(t, l, tier.LeaseOptions{ID: string(rune('a' + i))})
	}
	_, err = l.Lease(context.Background(), tier.LeaseOptions{ID: "one too many"})
	require.ErrorIs(t, err, tier.ErrFull)
	require.NoError(t, long.SetUntil(c.at.Add(time.Hour)), "a full table has room for changes")
	l = reopen(t, l)
	states := l.Leases()
	require.Len(t, states, 16)
	long = leaseOf(t, l, tier.LeaseOptions{ID: strings.Repeat("x", 255), Owner: strings.Repeat("y", 255), Until: c.at})
	require.True(t, long.State().Until.Equal(c.at.Add(time.Hour)))
	require.True(t, long.State().FromRestart)
}

func TestPinsOfAFullTable(t *testing.T) {
	o := options(t)
	o.MaxPins = 2
	l := open(t, o)
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, put(l, object(name, "", 10)))
	}
	x := leaseOf(t, l, tier.LeaseOptions{ID: "x"})
	placed := x.Pin(keys("a", "b", "c"))
	requirePlaced(t, placed[:2])
	require.ErrorIs(t, placed[2].Err, tier.ErrFull)
	require.ErrorIs(t, x.Reserve([]tier.Object{object("d", "", 10)})[0].Err, tier.ErrFull)
	require.NoError(t, l.Delete(context.Background(), keys("c"))[0])
	require.NoError(t, put(l, object("d", "", 10)), "its room was given back")
	x.Unpin(keys("a"))
	requirePlaced(t, x.Pin(keys("b")))
	requirePlaced(t, x.Reserve([]tier.Object{object("e", "", 10)}))
}

func TestLeasesEndByTime(t *testing.T) {
	c := newClock()
	o := options(t)
	o.Now = c.now
	l := open(t, o)
	for _, name := range []string{"a", "b"} {
		require.NoError(t, put(l, object(name, "", 10)))
	}
	x := leaseOf(t, l, tier.LeaseOptions{ID: "x", Until: c.at.Add(time.Minute)})
	y := leaseOf(t, l, tier.LeaseOptions{ID: "y", Until: c.at.Add(time.Minute)})
	requirePlaced(t, x.Pin(keys("a")))
	requirePlaced(t, y.Pin(keys("b")))
	requirePlaced(t, y.Reserve([]tier.Object{object("r", "", 10), object("s", "", 10), object("t", "", 10)}))
	c.pass(time.Minute - 1)
	require.Len(t, l.Leases(), 2)
	c.pass(1)
	require.ErrorIs(t, x.Pin(keys("a"))[0].Err, tier.ErrEnded)
	require.NoError(t, l.Delete(context.Background(), keys("a"))[0])
	require.NoError(t, l.Delete(context.Background(), keys("b"))[0])
	require.Len(t, l.Leases(), 1)
	require.Equal(t, keys("r", "s", "t"), y.State().Reserved)
	require.ErrorIs(t, y.Pin(keys("a"))[0].Err, tier.ErrEnded)
	require.ErrorIs(t, y.Reserve([]tier.Object{object("u", "", 10)})[0].Err, tier.ErrEnded)
	require.NoError(t, l.CheckStructure())
	l = reopen(t, l)
	y = leaseOf(t, l, tier.LeaseOptions{ID: "y", Until: c.at.Add(-time.Hour)})
	require.NoError(t, y.Commit(keys("r"))[0], "a client was writing")
	require.Empty(t, y.State().Pinned)
	require.NoError(t, l.Delete(context.Background(), keys("r"))[0])
	require.NoError(t, y.SetUntil(c.at.Add(time.Minute)), "it goes on")
	require.NoError(t, y.Commit(keys("s"))[0])
	require.Equal(t, keys("s"), y.State().Pinned)
	c.pass(time.Hour)
	require.NoError(t, y.Abort(keys("t"))[0])
	require.ErrorIs(t, y.Abort(keys("t"))[0], tier.ErrEnded, "that was the last")
	require.Empty(t, l.Leases())
	require.Zero(t, l.Usage().Held)
}

// What a lease has stays where it is when the process ends, and belongs to the lease of the next one.
// A level that was closed or removed stayed mapped, with two descriptors, until the end of the process if a lease had
// pinned something before and was not released: every tier.Store has such leases.
func TestEmptyLeasesKeepNoMapping(t *testing.T) {
	for name, end := range map[string]func(*Level) error{"closed": (*Level).Close, "removed": (*Level).Remove} {
		t.Run(name, func(t *testing.T) {
			l := open(t, options(t))
			put := []tier.Put{{Object: object("a", "", 10), Bytes: make([]byte, 10)}}
			l.Put(t.Context(), put)
			require.NoError(t, put[0].Err)
			x, err := l.Lease(t.Context(), tier.LeaseOptions{ID: "x"})
			require.NoError(t, err)
			require.NoError(t, x.Pin([]tier.Key{key("a")})[0].Err)
			x.Unpin([]tier.Key{key("a")})
			require.NoError(t, end(l))
			require.Zero(t, l.seg.Holds())
			if name == "closed" {
				next := open(t, l.o)
				require.Len(t, next.Leases(), 1, "the lease is still there for the next process")
			}
		})
	}
}

func TestLeasesSurvive(t *testing.T) {
	o := options(t)
	l := open(t, o)
	segment := l.Segment()
	require.Equal(t, o.Size+frontSize, segment.Size)
	require.NotZero(t, segment.Generation)
	require.NoError(t, put(l, object("pinned", "", 2000)))
	require.NoError(t, put(l, object("free", "", 2000)))
	x := leaseOf(t, l, tier.LeaseOptions{ID: "x", Owner: "me"})
	pinned := x.Pin(keys("pinned"))
	requirePlaced(t, pinned)
	child := object("reserved", "free", 3000)
	child.Note, child.Tenant, child.Cost = []byte("note"), "tenant", time.Second
	reserved := x.Reserve([]tier.Object{child, object("given up", "", 500)})
	requirePlaced(t, reserved)
	copy(reserved[0].Bytes[:1000], content("reserved", 3000))
	leaseOf(t, l, tier.LeaseOptions{ID: "empty"})

	old := l
	l = reopen(t, l)
	require.Equal(t, segment, l.Segment())
	copy(reserved[0].Bytes[1000:], content("reserved", 3000)[1000:]) // a client writes on
	require.Len(t, l.Leases(), 2)
	require.Equal(t, tier.LeaseState{
		ID: "x", Owner: "me", Pinned: keys("pinned"), Reserved: keys("given up", "reserved"), Bytes: 5500, FromRestart: true,
	}, l.Leases()[1])
	x.Release() // only gives the memory of the old mapping back
	require.Zero(t, old.seg.Holds())
	x = leaseOf(t, l, tier.LeaseOptions{ID: "x", Owner: "me"})
	require.ErrorIs(t, l.Delete(context.Background(), keys("pinned"))[0], tier.ErrInUse)
	again := x.Pin(keys("pinned"))
	require.Equal(t, pinned[0].Offset, again[0].Offset)
	require.Equal(t, content("pinned", 2000), again[0].Bytes)
	require.ErrorIs(t, put(l, child), tier.ErrPending)
	for i := range 60 {
		_ = put(l, object(string(rune('A'+i)), "", 1000)) // nobody gets the place
	}
	require.Equal(t, []string{"free"}, present(l, "free"), "the parent of what is being stored stays")
	requireNone(t, x.Commit(keys("reserved")))
	requireContent(t, l, "reserved", 3000)
	require.Equal(t, child, l.Stat(context.Background(), keys("reserved"))[0].Object)
	require.Equal(t, reserved[0].Offset, x.Pin(keys("reserved"))[0].Offset)
	requireNone(t, x.Abort(keys("given up")))
	l = reopen(t, l)
	requireContent(t, l, "reserved", 3000)
	for _, s := range l.Leases() {
		leaseOf(t, l, tier.LeaseOptions{ID: s.ID, Owner: s.Owner}).Release()
	}
	require.Zero(t, l.Usage().Held)
	require.NoError(t, l.Remove())
	next := open(t, o)
	require.NotEqual(t, segment.Generation, next.Segment().Generation)
}

// A client wrote in front of its reservation, where the description is.
func TestReservationOfALostDescription(t *testing.T) {
	l := open(t, options(t))
	x := leaseOf(t, l, tier.LeaseOptions{ID: "x"})
	placed := x.Reserve([]tier.Object{object("a", "", 1000)})
	requirePlaced(t, placed)
	l.seg.Bytes()[placed[0].Offset-50] ^= 1
	l = reopen(t, l)
	x = leaseOf(t, l, tier.LeaseOptions{ID: "x"})
	require.ErrorIs(t, x.Commit(keys("a"))[0], tier.ErrNotFound)
	lost := x.State().Reserved
	require.Len(t, lost, 1)
	require.ErrorIs(t, x.Commit(lost)[0], tier.ErrCorrupt)
	require.Positive(t, l.Usage().Held, "the client may be writing")
	require.NoError(t, put(l, object("a", "", 1000)))
	l = reopen(t, l)
	x = leaseOf(t, l, tier.LeaseOptions{ID: "x"})
	requireNone(t, x.Abort(x.State().Reserved))
	require.Zero(t, l.Usage().Held)
}

// The last process was killed before it had a table of leases, and the one before while it removed its segment.
func TestTableOfAnEarlierSegment(t *testing.T) {
	o := options(t)
	l := open(t, o)
	require.NoError(t, put(l, object("a", "", 1000)))
	leases, err := os.ReadFile(o.Dir + "/level.leases")
	require.NoError(t, err)
	require.NoError(t, l.Remove())
	require.NoError(t, open(t, o).Close())
	require.NoError(t, os.WriteFile(o.Dir+"/level.leases", leases, 0o600))
	l = open(t, o)
	require.NoError(t, put(l, object("a", "", 1000)), "there is nothing to be careful with")
	require.NoError(t, l.Close())
	require.NoError(t, os.WriteFile(o.Dir+"/level.leases", leases, 0o600))
	l = open(t, o)
	require.ErrorIs(t, put(l, object("b", "", 1000)), tier.ErrFull, "somebody may have had a lease")
}

// Nobody can tell what was promised: everything stays for ten minutes, and nothing is stored.
func TestDamagedTable(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, file string){
		"gone":      func(t *testing.T, file string) { require.NoError(t, os.Remove(file)) },
		"empty":     func(t *testing.T, file string) { require.NoError(t, os.Truncate(file, 0)) },
		"short":     func(t *testing.T, file string) { require.NoError(t, os.Truncate(file, 5000)) },
		"a magic":   func(t *testing.T, file string) { flip(t, file, 0) },
		"a version": func(t *testing.T, file string) { flip(t, file, 8) },
		"a header":  func(t *testing.T, file string) { flip(t, file, 25) },
		"a lease":   func(t *testing.T, file string) { flip(t, file, 4096+16) },
		"a mark":    func(t *testing.T, file string) { flip(t, file, 4096+3) },
		"an item":   func(t *testing.T, file string) { flip(t, file, 4096+17*576+24) },
		"a state":   func(t *testing.T, file string) { flip(t, file, 4096+17*576+48) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			o := options(t)
			o.Now = c.now
			l := open(t, o)
			require.NoError(t, put(l, object("pinned", "", 1000)))
			require.NoError(t, put(l, object("free", "", 1000)))
			x := leaseOf(t, l, tier.LeaseOptions{ID: "x"})
			requirePlaced(t, x.Pin(keys("pinned")))
			requirePlaced(t, x.Reserve([]tier.Object{object("reserved", "", 1000)}))
			y := leaseOf(t, l, tier.LeaseOptions{ID: "y"})
			requirePlaced(t, y.Pin(keys("pinned")))
			require.NoError(t, l.Close())
			damage(t, o.Dir+"/level.leases")
			l = open(t, o)
			require.ErrorIs(t, l.Delete(context.Background(), keys("pinned"))[0], tier.ErrInUse)
			require.NoError(t, l.Delete(context.Background(), keys("free"))[0])
			require.ErrorIs(t, put(l, object("free", "", 1000)), tier.ErrFull)
			require.NoError(t, put(l, object("pinned", "", 1000)), "it is there")
			z := leaseOf(t, l, tier.LeaseOptions{ID: "z"})
			require.ErrorIs(t, z.Reserve([]tier.Object{object("r", "", 10)})[0].Err, tier.ErrFull)
			requireContent(t, l, "pinned", 1000)
			c.pass(3 * time.Minute)
			l = reopen(t, l) // the time goes on where it was
			require.ErrorIs(t, l.Delete(context.Background(), keys("pinned"))[0], tier.ErrInUse)
			require.ErrorIs(t, put(l, object("free", "", 1000)), tier.ErrFull)
			c.pass(7 * time.Minute)
			require.NoError(t, put(l, object("free", "", 1000)))
			for _, s := range l.Leases() {
				leaseOf(t, l, tier.LeaseOptions{ID: s.ID}).Release()
			}
			require.Zero(t, l.Usage().Held)
			require.NoError(t, l.Delete(context.Background(), keys("pinned"))[0])
			l = reopen(t, l)
			require.NoError(t, put(l, object("pinned", "", 1000)), "it was a matter of time")
		})
	}
}

func flip(t *testing.T, file string, at int64) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	require.NoError(t, err)
	b[0] ^= 4
	_, err = f.WriteAt(b[:], at)
	require.NoError(t, err)
}

// A table with two records of one object is not one that a level wrote. Nothing is lost by it.
func TestTwoRecordsOfOnePin(t *testing.T) {
	o := options(t)
	l := open(t, o)
	require.NoError(t, put(l, object("a", "", 1000)))
	x := leaseOf(t, l, tier.LeaseOptions{ID: "x"})
	requirePlaced(t, x.Pin(keys("a")))
	it := x.(*lease).find(key("a"))
	_, err := l.table.PutItem(leasetable.Item{Serial: x.(*lease).record.Serial, Record: sidecar.Record{ID: it.o.Handle().ID}})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	l = open(t, o)
	require.NoError(t, l.CheckStructure())
	require.ErrorIs(t, l.Delete(context.Background(), keys("a"))[0], tier.ErrInUse)
	leaseOf(t, l, tier.LeaseOptions{ID: "x"}).Release()
	require.NoError(t, l.Delete(context.Background(), keys("a"))[0])
}

func TestPrepare(t *testing.T) {
	l := open(t, options(t))
	r, err := l.Prepare(context.Background(), memory.Options{Prefault: true})
	require.NoError(t, err)
	require.NotNil(t, r)
	require.NoError(t, l.Remove())
	_, err = l.Prepare(context.Background(), memory.Options{})
	require.ErrorIs(t, err, fs.ErrClosed)
	require.NoError(t, l.Close())
	require.NoError(t, l.Remove(), "twice")
}

// TestLargeReleaseOfReservations: they go in pieces, as pins do, and others have the level in between.
func TestLargeReleaseOfReservations(t *testing.T) {
	failpoint.Need(t)
	o := options(t)
	o.Size, o.MaxObjects, o.MaxPins = 1<<20, 1024, 2048
	l := open(t, o)
	var all []tier.Object
	for i := range 5*slice + 7 {
		all = append(all, object(fmt.Sprint("object ", i), "", 10))
	}
	for _, expired := range []bool{false, true} {
		now := time.Unix(1_800_000_000, 0)
		l.now = func() time.Time { return now }
		x := leaseOf(t, l, tier.LeaseOptions{ID: "writer", Until: now.Add(time.Minute)})
		requirePlaced(t, x.Reserve(all))
		if expired {
			now = now.Add(time.Hour)
			l.Usage()
			require.True(t, x.(*lease).expired)
		}
		alone := 0 // that went before the lease did
		failpoint.Set(func(name string) {
			if name == "tier.memory.abort" {
				alone++
			}
		})
		x.Release()
		failpoint.Set(nil)
		require.Equal(t, len(all)-7, alone)
		require.Empty(t, l.Leases())
		require.Zero(t, l.Usage().Held)
		require.NoError(t, l.CheckStructure())
	}
}

// TestLargeLeaseInPieces: more objects than are pinned or let go at once, with reservations among them.
func TestLargeLeaseInPieces(t *testing.T) {
	o := options(t)
	o.Size, o.MaxObjects, o.MaxPins = 1<<20, 1024, 2048
	l := open(t, o)
	var all []tier.Object
	var names []string
	for i := range 5*slice + 7 {
		names = append(names, fmt.Sprint("object ", i))
		all = append(all, object(names[i], "", 10))
	}
	writer := leaseOf(t, l, tier.LeaseOptions{ID: "writer"})
	requirePlaced(t, writer.Reserve(all))
	requireNone(t, writer.Commit(keys(names[:4*slice]...)))
	reader := leaseOf(t, l, tier.LeaseOptions{ID: "reader"})
	placed := reader.Pin(keys(names...))
	requirePlaced(t, placed[:4*slice])
	for i, p := range placed {
		require.Equal(t, i >= 4*slice, errors.Is(p.Err, tier.ErrPending), i)
	}
	reader.Unpin(keys(names[:2*slice+1]...))
	require.Len(t, reader.State().Pinned, 2*slice-1)
	writer.Release()
	require.NoError(t, l.CheckStructure())
	require.Equal(t, []string{"reader"}, []string{l.Leases()[0].ID})
	reader.Release()
	require.Empty(t, l.Leases())
	require.Zero(t, l.Usage().Held)
	require.ErrorIs(t, reader.Pin(keys(names...))[4*slice].Err, tier.ErrEnded)
}

// refusing is an account that lets a lease have so many objects.
type refusing struct{ left int }

func (a *refusing) Charge(tier.Charge) error {
	if a.left == 0 {
		return tier.ErrFull
	}
	a.left--
	return nil
}
func (a *refusing) Credit(int64) { a.left++ }
func (*refusing) Expired()       {}

// TestPinsOfOneCallThatAreRefused: some of what one call asks for is pinned, and of the rest nothing is kept,
// whether the account of the lease refuses it or the table of leases is full.
func TestPinsOfOneCallThatAreRefused(t *testing.T) {
	for name, o := range map[string]tier.LeaseOptions{"account": {ID: "l", Account: &refusing{2}}, "table": {ID: "l", Account: &refusing{100}}} {
		t.Run(name, func(t *testing.T) {
			options := options(t)
			options.MaxPins = 2
			if name == "account" {
				options.MaxPins = 100
			}
			l := open(t, options)
			for _, name := range []string{"a", "b", "c", "d"} {
				require.NoError(t, put(l, object(name, "", 1000)))
			}
			x := leaseOf(t, l, o)
			for _, pin := range []func([]tier.Key) []tier.Placed{x.Pin, x.PinPrefix} {
				placed := pin(keys("a", "b", "a", "c", "d", "c"))
				requirePlaced(t, placed[:3])
				for _, p := range placed[3:] {
					require.ErrorIs(t, p.Err, tier.ErrFull)
					require.Zero(t, p.Offset)
				}
				require.NoError(t, l.CheckStructure())
				require.ElementsMatch(t, keys("a", "b"), x.State().Pinned)
			}
			require.Len(t, x.PinPrefix(keys("a", "c", "b")), 2, "a prefix ends with what is refused")
			x.Unpin(keys("a", "a"))
			placed := x.Reserve([]tier.Object{object("e", "", 10), object("f", "", 10)})
			require.NoError(t, placed[0].Err)
			require.ErrorIs(t, placed[1].Err, tier.ErrFull)
			require.ElementsMatch(t, keys("e"), x.State().Reserved)
			require.NoError(t, l.CheckStructure())
			x.Release()
			require.Zero(t, l.Usage().Held)
		})
	}
}
