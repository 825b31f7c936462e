package sidecar

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func requireUse(t *testing.T, c *File, i int, want uint64) {
	t.Helper()
	use, ok := c.Use(i)
	require.True(t, ok)
	require.Equal(t, want, use)
}

func record(n int) Record {
	return Record{Address: uint64(n) * 64, ID: uint32(n), Size: 100 + n, DescriptionOffset: 8, DescriptionLength: 4, Sum: uint32(n) * 77}
}

// records are the entries that are valid, by their number.
func records(t *testing.T, m []byte) (*File, map[int]Record) {
	t.Helper()
	c, err := privateOf(m, true)
	require.NoError(t, err)
	all := map[int]Record{}
	for i, r := range c.Records() {
		all[i] = r
	}
	require.Equal(t, c.Options().Objects, len(all)+c.Free())
	return c, all
}

func TestTable(t *testing.T) {
	c, all := records(t, formatted(t, options()))
	require.Empty(t, all)
	want := map[int]Record{}
	for n := range 5 {
		want[c.Put(record(n), uint64(n)<<62|7)] = record(n)
	}
	require.Zero(t, c.Free())
	c, all = records(t, c.mem)
	require.Equal(t, want, all)
	for i, r := range all {
		requireUse(t, c, i, uint64(r.ID)<<62|7)
		c.SetUse(i, math.MaxUint64)
		requireUse(t, c, i, 3<<62|math.MaxUint32)
	}
	c.Drop(2)
	delete(want, 2)
	c, all = records(t, c.mem)
	require.Equal(t, want, all)
	require.Equal(t, 2, c.Put(record(9), 0), "its entry is used again")
	for range c.Records() { // ending early is fine
		break
	}
}

// An entry is there from one moment to the next, and gone so.
func TestTableIsChangedInOneStep(t *testing.T) {
	for place, done := range map[string]bool{
		"sidecar.put.begin": false, "sidecar.put.half": false, "sidecar.put.summed": false, "sidecar.put.end": true,
	} {
		t.Run(place, func(t *testing.T) {
			c, _ := records(t, formatted(t, options()))
			kept := c.Put(record(1), 5)
			old := c.Put(record(2), 6)
			c.Drop(old) // what is torn is written over something
			interrupt(t, place, func() { c.Put(record(3), 7) })
			c, all := records(t, c.mem)
			want := map[int]Record{kept: record(1)}
			if done {
				want[old] = record(3)
			}
			require.Equal(t, want, all)
			requireUse(t, c, kept, 5)
			if done {
				requireUse(t, c, old, 7) // and not that of the last object there
			}
		})
	}
	for place, there := range map[string]bool{"sidecar.drop.begin": true, "sidecar.drop.end": false} {
		t.Run(place, func(t *testing.T) {
			c, _ := records(t, formatted(t, options()))
			i := c.Put(record(1), 5)
			interrupt(t, place, func() { c.Drop(i) })
			_, all := records(t, c.mem)
			require.Equal(t, there, len(all) == 1)
		})
	}
	for place, want := range map[string]uint64{"sidecar.use.begin": 5, "sidecar.use.end": 6} {
		t.Run(place, func(t *testing.T) {
			c, _ := records(t, formatted(t, options()))
			i := c.Put(record(1), 5)
			interrupt(t, place, func() { c.SetUse(i, 6) })
			c, _ = records(t, c.mem)
			requireUse(t, c, i, want)
		})
	}
}

func TestTableBitFlips(t *testing.T) {
	c, _ := records(t, formatted(t, options()))
	i := c.Put(record(3), 5)
	at := int(c.EntryOffset(i))
	for bit := range 8 * entrySize {
		b := append([]byte(nil), c.mem...)
		b[at+bit/8] ^= 1 << (bit % 8)
		_, all := records(t, b)
		now, err := privateOf(b, true)
		require.NoError(t, err)
		use, ok := now.Use(i)
		if bit/8 < entryEnd {
			require.True(t, all[i].Damaged, "bit %d", bit)
		} else {
			require.Equal(t, record(3), all[i], "bit %d", bit)
		}
		if bit/8 >= entryUse && bit/8 < entryUse+8 {
			require.False(t, ok, "bit %d", bit)
		} else {
			require.True(t, ok, "bit %d", bit)
			require.Equal(t, uint64(5), use)
		}
	}
	// A free one is not an object because of a few bits.
	for bit := range 64 {
		b := append([]byte(nil), c.mem...)
		b[at+entrySize+bit/8] ^= 1 << (bit % 8) // its neighbour
		_, all := records(t, b)
		require.Len(t, all, 2)
		require.True(t, all[i+1].Damaged && !all[i].Damaged, "bit %d", bit)
	}
}

// Up to three bits of a use word can flip without another word becoming right, and
// the word of another entry is not right either.
func TestUseWordBitFlips(t *testing.T) {
	c, _ := records(t, formatted(t, options()))
	for _, use := range []uint64{0, 1, 5, 1<<63 | 1, 3<<62 | math.MaxUint32} {
		word := c.sealUse(2, use)
		wrong := func(w uint64) { require.NotEqual(t, w, c.sealUse(2, w), "%#x of %#x", w, word) }
		require.Equal(t, word, c.sealUse(2, word))
		require.NotEqual(t, word, c.sealUse(3, word))
		for a := range 64 {
			wrong(word ^ 1<<a)
			for b := range a {
				wrong(word ^ 1<<a ^ 1<<b)
				for d := range b {
					wrong(word ^ 1<<a ^ 1<<b ^ 1<<d)
				}
			}
		}
	}
	require.NotEqual(t, uint64(0), c.sealUse(2, 0), "a hole in the file is no use word")
}
