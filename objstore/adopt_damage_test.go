package objstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
)

// damagedPool is a pool whose writer has ended, and what it has left.
type damagedPool struct {
	o               Options
	r               *Reader
	needed, idle    serde.Address
	neededAt, other int // entries of the table, by their place in the sidecar
	free            int
	last            uint32 // id that was given out, of an object that is gone
}

const damagedObjects = 16

// leave makes a pool with an object that a request needs and one that nobody does,
// and ends its writer, by plan or not.
func leave(t *testing.T, clean bool) *damagedPool {
	t.Helper()
	w, r, o := realPool(t, Options{MaxObjects: damagedObjects, ReaderSlots: 2, FullSums: true, QuarantineTTL: -1})
	d := &damagedPool{o: o, r: r}
	unleased(t, w, "first", 1000, 'f')
	d.idle = unleased(t, w, "idle", 5000, 'i')
	q := begin(t, w, "q")
	var err error
	d.needed, err = q.Put("needed", image(3000, 'n'))
	require.NoError(t, err)
	require.NoError(t, q.Commit())
	q.Abort()
	d.last = unleased(t, w, "last", 100, 'l').ID
	for _, key := range []string{"first", "last"} { // so that a new object begins in front of the others
		_, err = w.Evict(key)
		require.NoError(t, err)
	}

	table := d.table(t)
	d.free = -1
	for at := len(table) - damagedObjects*64; at < len(table); at += 64 {
		switch id := binary.LittleEndian.Uint32(table[at+16:]); {
		case id == d.idle.ID && binary.LittleEndian.Uint64(table[at+8:]) == d.idle.Address:
			d.other = at
		case id == d.needed.ID:
			d.neededAt = at
		default:
			d.free = at
		}
	}
	require.NotZero(t, d.other)
	require.NotZero(t, d.neededAt)
	if clean {
		require.NoError(t, w.Detach())
	} else {
		abandon(t, w)
	}
	return d
}

// abandon ends a writer as a kill does.
func abandon(t *testing.T, w *writer) {
	t.Helper()
	require.NoError(t, w.Segment().Close())
}

func (d *damagedPool) path() string { return d.segmentPath() + sidecar.Suffix }

func (d *damagedPool) segmentPath() string { return filepath.Join(d.o.Dir, d.o.Name) }

func (d *damagedPool) table(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile(d.path())
	require.NoError(t, err)
	return b
}

func (d *damagedPool) flip(t *testing.T, bit int) {
	t.Helper()
	b := d.table(t)
	b[bit/8] ^= 1 << (bit % 8)
	f, err := os.OpenFile(d.path(), os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(b[bit/8:bit/8+1], int64(bit/8))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// scribbleFree takes all free room, as a producer that fills an object in any order
// does, and changes bytes behind the headers that once stood there.
func scribbleFree(t *testing.T, w *writer, addresses ...uint64) (undo func()) {
	t.Helper()
	var all []*Reservation
	for n := 8 << 10; n >= 256; n /= 2 {
		for {
			r, err := w.Reserve(fmt.Sprintf("room %d %d", n, len(all)), layout(n))
			if err != nil {
				require.ErrorIs(t, err, ErrFull)
				break
			}
			all = append(all, r)
			for _, at := range addresses {
				if b := reservedBytes(w, r, at+700); len(b) >= 100 {
					copy(b, bytes.Repeat([]byte{'X'}, 100))
				}
			}
		}
	}
	return func() {
		for _, r := range all {
			r.Discard()
		}
	}
}

// reservedBytes returns the bytes of a reservation from an address on, nil if it does not
// have that address.
func reservedBytes(w *writer, r *Reservation, address uint64) []byte {
	at, id := r.Place()
	c, err := shmring.ReadChunk(w.Segment().Ring(), at)
	if err != nil || c.ID == id || address < at+shmring.HeaderSize || address >= at+uint64(c.Size) {
		return nil // it is not reserved
	}
	return c.Payload[address-at-shmring.HeaderSize:]
}

// bytesBehind returns what a handle leads to; a nil error means that it was checked.
func bytesBehind(r *Reader, h serde.Address, key string) ([]byte, error) {
	v, err := r.Get(key, h)
	if err != nil {
		return nil, err
	}
	b := bytes.Clone(v.Item().Elems[0].Data.(*serde.Tensor).Data)
	return b, errors.Join(v.Check(), v.Release())
}

// TestDamagedEntryNeverShowsOtherBytes: whichever bit of an entry of the table
// flips between two writers, a handle leads to its own bytes or to an error, what a
// request needs is not evicted, and what is lost is reported.
func TestDamagedEntryNeverShowsOtherBytes(t *testing.T) {
	for _, clean := range []bool{true, false} {
		for name, entry := range map[string]func(d *damagedPool) int{
			"needed": func(d *damagedPool) int { return d.neededAt },
			"idle":   func(d *damagedPool) int { return d.other },
			"free":   func(d *damagedPool) int { return d.free },
		} {
			t.Run(fmt.Sprintf("clean=%v/%s", clean, name), func(t *testing.T) {
				t.Parallel()
				bits := 48 * 8
				if name == "free" {
					bits = 64 // the rest means nothing
				}
				for bit := range bits {
					damagedEntry(t, clean, entry, bit)
				}
			})
		}
	}
}

func damagedEntry(t *testing.T, clean bool, entry func(*damagedPool) int, bit int) {
	t.Helper()
	d := leave(t, clean)
	d.flip(t, 8*entry(d)+bit)
	w, a, err := adoptPool(d.o)
	require.NoError(t, err)
	require.NoError(t, w.CheckStructure())
	gone, err := w.Evict("needed")
	require.NoError(t, err)
	require.False(t, gone, "bit %d: a needed object was evicted, and %+v is all that is said", bit, a)
	_, err = w.FreeUnused()
	require.NoError(t, err)
	undo := scribbleFree(t, w, d.needed.Address, d.idle.Address)

	b, err := bytesBehind(d.r, d.needed, "needed")
	if err == nil {
		require.True(t, bytes.Equal(bytes.Repeat([]byte{'n'}, 3000), b), "bit %d: other bytes, and no error; adoption %+v", bit, a)
	} else {
		require.Positive(t, a.Dropped, "bit %d: what a request needs is lost without a word: %v", bit, err)
	}
	if b, err = bytesBehind(d.r, d.idle, "idle"); err == nil {
		require.True(t, bytes.Equal(bytes.Repeat([]byte{'i'}, 5000), b), "bit %d: other bytes, and no error; adoption %+v", bit, a)
	}
	undo()
	require.NoError(t, w.CheckStructure())
	require.NoError(t, d.r.Close())
	require.NoError(t, w.Close())
}

// TestDamagedStateRepeatsNoID: whichever bit of the state records flips, no id is
// given out twice, the epoch rises, and the segment is not taken for clean.
func TestDamagedStateRepeatsNoID(t *testing.T) {
	const states, size = 1024, 64
	for bit := 0; bit < 2*2*size*8; bit += 7 { // in each byte of the two records
		// One who was killed has marked ids in the newest record alone.
		clean := bit >= 2*size*8
		d := leave(t, clean)
		d.flip(t, 8*states+bit%(2*size*8))
		w, a, err := adoptPool(d.o)
		require.NoError(t, err)
		require.False(t, a.Clean, "bit %d", bit)
		require.Greater(t, a.Epoch, uint64(1), "bit %d", bit)
		require.Equal(t, 2, a.Kept)
		require.Greater(t, unleased(t, w, "new", 100, 'x').ID, d.last, "bit %d: the id is given out again", bit)
		require.NoError(t, w.CheckStructure())
		require.NoError(t, d.r.Close())
		require.NoError(t, w.Close())
	}
}

// TestAdoptRemovesTheCleanMarkFirst: an adopter that is killed has not ended by plan,
// wherever it was.
func TestAdoptRemovesTheCleanMarkFirst(t *testing.T) {
	failpoint.Need(t)
	for _, place := range []string{"adopt.state", "adopt.dropping", "adopt.end"} {
		d := leave(t, true)
		d.flip(t, 8*d.other) // so that there is something to drop
		func() {
			defer failpoint.Set(nil)
			defer func() { require.Equal(t, place, recover()) }()
			failpoint.Set(func(name string) {
				if name == place {
					panic(place)
				}
			})
			seg, err := segment.Adopt(d.o.segment())
			require.NoError(t, err)
			defer seg.Close()
			_, _, _ = adoptSegment(seg, d.o)
		}()
		w, a, err := adoptPool(d.o)
		require.NoError(t, err)
		require.False(t, a.Clean, place)
		require.NoError(t, w.CheckStructure())
		require.NoError(t, d.r.Close())
		require.NoError(t, w.Close())
	}
}
