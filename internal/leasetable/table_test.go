//go:build linux

package leasetable

import (
	"encoding/binary"
	"hash/crc32"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/sidecar"
)

func small() Options { return Options{Leases: 4, Items: 6, Generation: 42} }

func create(t testing.TB, dir string, o Options) *Table {
	t.Helper()
	x, err := Create(dir, "s", o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

func reopen(t testing.TB, dir string) (*Table, []*Loaded) {
	t.Helper()
	x, err := Open(dir, "s", 42)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	all := x.Load()
	slices.SortFunc(all, func(a, b *Loaded) int { return int(a.Serial) - int(b.Serial) })
	return x, all
}

func TestTable(t *testing.T) {
	dir := t.TempDir()
	o := small()
	o.Caution = time.Unix(1700000000, 5)
	x := create(t, dir, o)
	long := Lease{Serial: 1, ID: strings.Repeat("i", 255), Owner: strings.Repeat("o", 255), Until: 1<<63 - 1}
	plain := Lease{Serial: 2, ID: "b"}
	place, err := x.PutLease(long)
	require.NoError(t, err)
	other, err := x.PutLease(plain)
	require.NoError(t, err)
	rec := sidecar.Record{Address: 1 << 40, ID: 7, Size: 1000, DescriptionOffset: 56, DescriptionLength: 99, Sum: 0xfeedbeef}
	reserved, err := x.PutItem(Item{Serial: 1, Reserved: true, Record: rec})
	require.NoError(t, err)
	pinned, err := x.PutItem(Item{Serial: 2, Record: sidecar.Record{ID: 9}})
	require.NoError(t, err)
	orphan, err := x.PutItem(Item{Serial: 3, Record: sidecar.Record{ID: 9}})
	require.NoError(t, err)

	y, all := reopen(t, dir)
	require.False(t, y.Damaged)
	require.True(t, y.Options().Caution.Equal(o.Caution))
	o.Caution = y.opt.Caution
	require.Equal(t, o, y.Options())
	require.Equal(t, []*Loaded{
		{Lease: long, Record: place, Items: map[int]Item{reserved: {Serial: 1, Reserved: true, Record: rec}}},
		{Lease: plain, Record: other, Items: map[int]Item{pinned: {Serial: 2, Record: sidecar.Record{ID: 9}}}},
	}, all)
	_, ok := y.ItemAt(orphan)
	require.False(t, ok, "its lease has ended")
	leases, items := y.Free()
	require.Equal(t, []int{2, 4}, []int{leases, items})

	y.SetPinned(reserved)
	plain.Until = 5
	other = y.ReplaceLease(other, plain)
	y.DropItem(pinned)
	_, all = reopen(t, dir)
	require.Equal(t, map[int]Item{reserved: {Serial: 1, Record: rec}}, all[0].Items)
	require.Equal(t, Loaded{Lease: plain, Record: other, Items: map[int]Item{}}, *all[1])
	z, err := Create(t.TempDir(), "s", small())
	require.NoError(t, err)
	defer z.Close()
	require.NoError(t, z.Save(all))
	got, ok := z.LeaseAt(all[0].Record)
	require.True(t, ok)
	require.Equal(t, long, got)
	require.ErrorIs(t, z.Save([]*Loaded{all[0], all[0]}), ErrFull)
}

func TestFullTable(t *testing.T) {
	x := create(t, t.TempDir(), small())
	var last int
	for i := range 3 {
		var err error
		last, err = x.PutLease(Lease{Serial: uint64(i), ID: "x"})
		require.NoError(t, err)
	}
	_, err := x.PutLease(Lease{Serial: 4, ID: "x"})
	require.ErrorIs(t, err, ErrFull)
	for range 10 {
		last = x.ReplaceLease(last, Lease{Serial: 2, ID: "x"})
	}
	for range 6 {
		_, err := x.PutItem(Item{})
		require.NoError(t, err)
	}
	_, err = x.PutItem(Item{})
	require.ErrorIs(t, err, ErrFull)
}

func TestCreateRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, o := range []Options{{Leases: 1, Items: 1}, {Leases: 2}, {Leases: 1 << 21, Items: 1}, {Leases: 2, Items: 1 << 25}} {
		_, err := Create(dir, "s", o)
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
	_, err := Create(dir, strings.Repeat("x", 250), small())
	require.ErrorIs(t, err, fs.ErrInvalid)
	for _, name := range []string{"s.leases", "s.leases.ctl"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	_, err = Create(dir, "s", small())
	require.ErrorIs(t, err, fs.ErrExist, "it is a segment")
	_, err = Open(dir, "none", 1)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Equal(t, []string{"s.leases", "s.leases.ctl"}, names(t, dir), "nothing is left")
}

func names(t testing.TB, dir string) (all []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range files {
		all = append(all, f.Name())
	}
	return all
}

func TestTimes(t *testing.T) {
	for at, want := range map[time.Time]int64{
		{}: 0, time.Unix(0, 0): 1, time.Unix(-5, 0): 1, time.Unix(1, 2): 1e9 + 2, time.Unix(1<<40, 0): 1<<63 - 1,
	} {
		require.Equal(t, want, Nanoseconds(at))
	}
	require.True(t, Time(0).IsZero())
	require.True(t, Time(5).Equal(time.Unix(0, 5)))
}

// Every flipped bit of a record in use, and of the header, is noticed; one of a free record is, or means nothing.
func TestEveryFlippedBit(t *testing.T) {
	dir := t.TempDir()
	x := create(t, dir, Options{Leases: 2, Items: 2, Generation: 42})
	_, err := x.PutLease(Lease{Serial: 1, ID: "id", Owner: "owner", Until: 77})
	require.NoError(t, err)
	_, err = x.PutItem(Item{Serial: 1, Reserved: true, Record: sidecar.Record{Address: 64, ID: 3, Size: 100}})
	require.NoError(t, err)
	good := slices.Clone(x.mem)
	want := x.Load()
	noticed, without := 0, 0
	for at := range good {
		if at >= 44 && at < pageSize {
			continue // has no field
		}
		for bit := range 8 {
			copy(x.mem, good)
			x.mem[at] ^= 1 << bit
			y, err := Open(dir, "s", 42)
			if err != nil {
				require.ErrorIs(t, err, ErrDamaged)
				require.Less(t, at, pageSize)
				noticed++
				continue
			}
			got := y.Load()
			require.GreaterOrEqual(t, at, pageSize)
			if y.Damaged {
				noticed++
			} else {
				without++
				require.Equal(t, want[0].Lease, got[0].Lease, "byte %d", at)
				require.True(t, maps.Equal(want[0].Items, got[0].Items), "byte %d", at)
			}
			require.NoError(t, y.Close())
		}
	}
	copy(x.mem, good)
	require.Greater(t, noticed, 8*(44+544+56))
	require.Positive(t, without)
}

// TestTableOfALaterRelease: it is neither read nor taken for damage, which would be replaced. A version that was damaged is damage.
func TestTableOfALaterRelease(t *testing.T) {
	dir := t.TempDir()
	x := create(t, dir, small())
	binary.LittleEndian.PutUint32(x.mem[offVersion:], version+1)
	_, err := Open(dir, "s", 42)
	require.ErrorIs(t, err, ErrDamaged, "its checksum is that of another version")
	require.NoError(t, Check(dir, "s", true))

	binary.LittleEndian.PutUint32(x.mem[offHeaderSum:], crc32.Checksum(x.mem[:offHeaderSum], castagnoli))
	_, err = Open(dir, "s", 42)
	_, lookErr := Look(dir, "s", 42)
	for _, err := range []error{err, lookErr, Check(dir, "s", true)} {
		require.ErrorIs(t, err, ErrNewer)
		require.NotErrorIs(t, err, ErrDamaged)
		require.ErrorContains(t, err, "has layout version 2, this release reads 1")
	}
}

// FuzzTable: whatever is in a file, what comes out of it can be used.
func FuzzTable(f *testing.F) {
	dir := f.TempDir()
	x := create(f, dir, small())
	_, _ = x.PutLease(Lease{Serial: 1, ID: "id", Owner: "owner", Until: 77})
	_, _ = x.PutLease(Lease{Serial: 1, ID: "id", Owner: "owner", Until: 78})
	_, _ = x.PutItem(Item{Serial: 1, Reserved: true, Record: sidecar.Record{Address: 64, ID: 3, Size: 100}})
	good := slices.Clone(x.mem)
	f.Add(uint64(1), 3)
	f.Fuzz(func(t *testing.T, seed uint64, n int) {
		rng := rand.New(rand.NewPCG(seed, 0))
		copy(x.mem, good)
		for range n & 31 {
			at := rng.IntN(len(good))
			if rng.IntN(2) == 0 {
				at = rng.IntN(64)
			}
			x.mem[at] = byte(rng.Uint32())
		}
		if rng.IntN(2) == 0 { // valid, with any content
			for i := range 4 {
				b := x.lease(i)
				putMark(b, leaseEnd)
			}
			for i := range 6 {
				putMark(x.item(i), itemEnd)
			}
		}
		y, err := Open(dir, "s", 42)
		if err != nil {
			require.ErrorIs(t, err, ErrDamaged)
			return
		}
		defer y.Close()
		all := y.Load()
		leases, items := y.Free()
		for _, l := range all {
			require.NotEmpty(t, l.ID)
			leases++
			items += len(l.Items)
		}
		if !y.Damaged {
			require.Equal(t, []int{4, 6}, []int{leases, items})
		}
		for items > 0 {
			if _, err := y.PutItem(Item{Serial: 1}); err != nil {
				break
			}
			items--
		}
	})
}

func putMark(b []byte, end int) {
	mark := validMark(b[bodyBegin:end])
	for i := range 8 {
		b[i] = byte(mark >> (8 * i))
	}
}

// A process was killed while it changed a lease: the record that it wrote last counts, wherever it is.
func TestTwoRecordsOfALease(t *testing.T) {
	for _, swapped := range []bool{false, true} {
		dir := t.TempDir()
		x := create(t, dir, small())
		if swapped {
			x.leases[2], x.leases[3] = x.leases[3], x.leases[2]
		}
		_, err := x.PutLease(Lease{Serial: 1, ID: "x", Until: 5})
		require.NoError(t, err)
		at, err := x.PutLease(Lease{Serial: 1, ID: "x", Until: 6})
		require.NoError(t, err)
		for range 2 {
			y, all := reopen(t, dir)
			require.Equal(t, []*Loaded{{Lease: Lease{Serial: 1, ID: "x", Until: 6}, Record: at, Items: map[int]Item{}}}, all)
			leases, _ := y.Free()
			require.Equal(t, 3, leases)
			at = y.ReplaceLease(at, all[0].Lease)
		}
	}
}
