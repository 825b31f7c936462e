package sidecar

import (
	"encoding/binary"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/shmring"
)

// options make a small sidecar.
func options() Options {
	return Options{Policy: Pool, Generation: "0.33.0", Owner: "tests", Readers: 3, Objects: 5, Slots: 4, RingSize: 4096, DataOffset: 32}
}

// made makes the sidecar of a file in a folder of its own. To a sidecar, a segment is
// a file with an identity.
func made(t *testing.T) (f *File, dir string) {
	t.Helper()
	dir = t.TempDir()
	f, err := Create(dir, "s", options(), segmentIn(t, dir, "s"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f, dir
}

func segmentIn(t *testing.T, dir, name string) *os.File {
	t.Helper()
	seg, err := os.Create(filepath.Join(dir, name))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, seg.Close()) })
	return seg
}

func open(t *testing.T, dir string) *File {
	t.Helper()
	f, err := Open(dir, "s")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// privateOf is a sidecar over a copy of bytes, as whoever opens it sees it.
func privateOf(m []byte, owner bool) (*File, error) {
	f := &File{path: "copy", mem: append([]byte(nil), m...), readers: make(chan struct{}, 1)}
	return f, f.parse(f.mem, int64(len(f.mem)), owner)
}

// formatted are the bytes of a sidecar whose state was set twice.
func formatted(t testing.TB, o Options) []byte {
	t.Helper()
	f, err := Private(o)
	require.NoError(t, err)
	f.SetState(State{Epoch: 2, NextID: 70000, Readers: 3, PID: 7})
	return f.mem
}

func TestHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := func(label string, most int) string {
			return rapid.StringMatching(`[ -~]{0,`+label+`}`).Filter(func(s string) bool { return len(s) <= most }).Draw(t, label)
		}
		o := Options{
			Policy:     rapid.SampledFrom([]Policy{FIFO, Pool}).Draw(t, "policy"),
			Generation: name("24", 24), Owner: name("64", 64),
			Readers: rapid.IntRange(1, 1<<16).Draw(t, "readers"),
			Objects: rapid.IntRange(0, 100).Draw(t, "objects"), Slots: rapid.IntRange(1, 9).Draw(t, "slots"),
			RingSize: rapid.IntRange(9, math.MaxInt).Draw(t, "ring"), DataOffset: rapid.IntRange(0, 64).Draw(t, "offset"),
		}
		w, err := Private(o)
		require.NoError(t, err)
		state := State{
			Epoch: rapid.Uint64().Draw(t, "epoch"), NextID: rapid.Uint32Range(0, shmring.IDLimit-1).Draw(t, "id"),
			Readers: o.Readers, Clean: rapid.Bool().Draw(t, "clean"), PID: int(rapid.Uint32().Draw(t, "pid")),
		}
		for range rapid.IntRange(1, 4).Draw(t, "times") {
			state.Epoch++
			w.SetState(state)
		}
		c, err := privateOf(w.mem, true)
		require.NoError(t, err)
		require.Equal(t, o, c.Options())
		require.Equal(t, state, c.State())
	})
}

func TestFileOfASegment(t *testing.T) {
	dir := t.TempDir()
	seg := segmentIn(t, dir, "s")
	w, err := Create(dir, "s", options(), seg)
	require.NoError(t, err)
	f := open(t, dir)
	require.Equal(t, options(), f.Options())
	require.Equal(t, layoutVersion, f.Layout())
	require.Equal(t, State{Epoch: 1, Readers: 3, PID: os.Getpid()}, f.State())
	require.True(t, f.Describes(seg))
	require.False(t, f.Describes(segmentIn(t, dir, "other")))
	private, err := Private(options())
	require.NoError(t, err)
	require.False(t, private.Describes(seg))
	st, err := os.Stat(filepath.Join(dir, "s.ctl"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), st.Mode())
	require.Equal(t, st.Size(), f.Size())
	require.ErrorIs(t, f.Own(), ErrOwned)
	_, err = Create(dir, "s", options(), seg)
	require.ErrorIs(t, err, fs.ErrExist)

	// Only its owner removes it, and only what is its own.
	require.NoError(t, os.Rename(filepath.Join(dir, "s.ctl"), filepath.Join(dir, "moved")))
	require.NoError(t, w.Remove())
	require.FileExists(t, filepath.Join(dir, "moved"))
	_, err = Open(dir, "s")
	require.ErrorIs(t, err, ErrForeign)
	require.NoError(t, w.Close())
	require.ErrorIs(t, f.Own(), fs.ErrNotExist, "it has no name any more")
}

func TestOptionsAreChecked(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no policy":       func(o *Options) { o.Policy = 0 },
		"unknown policy":  func(o *Options) { o.Policy = 3 },
		"long generation": func(o *Options) { o.Generation = strings.Repeat("1", 25) },
		"long owner":      func(o *Options) { o.Owner = strings.Repeat("x", 65) },
		"objects":         func(o *Options) { o.Objects = maxObjects + 1 },
		"no objects":      func(o *Options) { o.Objects = -1 },
		"slots":           func(o *Options) { o.Slots = maxSlots + 1 },
		"no slots":        func(o *Options) { o.Slots = -1 },
	} {
		o := options()
		change(&o)
		dir := t.TempDir()
		_, err := Create(dir, "s", o, segmentIn(t, t.TempDir(), "s"))
		require.ErrorIs(t, err, shmring.ErrInvalid, name)
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left, name)
		_, err = Private(o)
		require.ErrorIs(t, err, shmring.ErrInvalid, name)
	}
	o, err := Options{Policy: FIFO}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, 64, o.Slots)
}

// Every bit of the header counts. A state record whose bits are wrong is as good
// as none, and then the other one holds.
func TestBitFlips(t *testing.T) {
	m := formatted(t, options())
	newest, older := State{Epoch: 2, NextID: 70000, Readers: 3, PID: 7}, State{Epoch: 1, Readers: 3, PID: os.Getpid()}
	for bit := range 8 * offSlotTable {
		at := bit / 8
		b := append([]byte(nil), m...)
		b[at] ^= 1 << (bit % 8)
		c, err := privateOf(b, true)
		switch {
		case at < offHeaderSum+4:
			require.ErrorIs(t, err, shmring.ErrCorrupt, "bit %d", bit)
		case at >= offState+stateSize && at < offState+2*stateSize: // the other one is the newest's predecessor
			require.NoError(t, err)
			require.False(t, c.StateIntact())
			require.Equal(t, older, c.State(), "bit %d", bit)
		default:
			require.NoError(t, err)
			require.Equal(t, newest, c.State(), "bit %d", bit)
			require.Equal(t, at < offState || at >= offState+stateSize, c.StateIntact(), "bit %d", bit)
		}
	}
	torn := append([]byte(nil), m...)
	torn[offState]++
	torn[offState+stateSize]++
	_, err := privateOf(torn, true)
	require.ErrorIs(t, err, shmring.ErrCorrupt)
	_, err = privateOf(torn, false)
	require.NoError(t, err, "a reader can come while the state is written")
}

// interrupt runs f until it comes to a failpoint.
func interrupt(t *testing.T, place string, f func()) {
	t.Helper()
	defer failpoint.Set(nil)
	defer func() { require.Equal(t, place, recover()) }()
	failpoint.Set(func(name string) {
		if name == place {
			panic(place)
		}
	})
	f()
}

func TestStateIsSetInOneStep(t *testing.T) {
	m := formatted(t, options())
	for place, done := range map[string]bool{"control.state.begin": false, "control.state.half": false, "control.state.end": true} {
		c, err := privateOf(m, true)
		require.NoError(t, err)
		old := c.State()
		for n := range uint32(5) { // whichever record it is, and as often as it happens
			next := old
			next.NextID += n + 1
			interrupt(t, place, func() { c.SetState(next) })
			c, err = privateOf(c.mem, true)
			require.NoError(t, err)
			want := old
			if done {
				want = next
			}
			require.Equal(t, want, c.State(), place)
			old = want
		}
		c.SetState(State{Epoch: 9})
		c, err = privateOf(c.mem, true)
		require.NoError(t, err)
		require.Equal(t, State{Epoch: 9}, c.State())
	}
}

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
		"control.put.begin": false, "control.put.half": false, "control.put.summed": false, "control.put.end": true,
	} {
		c, _ := records(t, formatted(t, options()))
		kept := c.Put(record(1), 5)
		old := c.Put(record(2), 6)
		c.Drop(old) // what is torn is written over something
		interrupt(t, place, func() { c.Put(record(3), 7) })
		_, all := records(t, c.mem)
		want := map[int]Record{kept: record(1)}
		if done {
			want[old] = record(3)
		}
		require.Equal(t, want, all, place)
	}
	for place, there := range map[string]bool{"control.drop.begin": true, "control.drop.end": false} {
		c, _ := records(t, formatted(t, options()))
		i := c.Put(record(1), 5)
		interrupt(t, place, func() { c.Drop(i) })
		_, all := records(t, c.mem)
		require.Equal(t, there, len(all) == 1, place)
	}
	for place, want := range map[string]uint64{"control.use.begin": 5, "control.use.end": 6} {
		c, _ := records(t, formatted(t, options()))
		i := c.Put(record(1), 5)
		interrupt(t, place, func() { c.SetUse(i, 6) })
		c, _ = records(t, c.mem)
		requireUse(t, c, i, want)
	}
}

func TestTableBitFlips(t *testing.T) {
	c, _ := records(t, formatted(t, options()))
	i := c.Put(record(3), 5)
	at := offSlotTable + c.opt.Slots*slotSize + i*entrySize
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

// Whatever the header says, opening neither crashes nor takes memory for it.
func TestHostileHeaders(t *testing.T) {
	good := formatted(t, options())
	dir := t.TempDir()
	for name, change := range map[string]func(b []byte) []byte{
		"empty":      func(b []byte) []byte { return nil },
		"one byte":   func(b []byte) []byte { return b[:1] },
		"header":     func(b []byte) []byte { return b[:offSlotTable-1] },
		"truncated":  func(b []byte) []byte { return b[:len(b)-1] },
		"longer":     func(b []byte) []byte { return append(b, 0) },
		"zeros":      func(b []byte) []byte { return make([]byte, len(b)) },
		"magic":      func(b []byte) []byte { b[0]++; return b },
		"version":    put32(offVersion, 0),
		"newer":      put32(offVersion, layoutVersion+1),
		"policy":     put32(offPolicy, 0),
		"policy 3":   put32(offPolicy, 3),
		"slots":      put32(offSlots, math.MaxUint32),
		"slots -1":   put32(offSlots, 1<<31),
		"more slots": put32(offSlots, 5),
		"objects":    put32(offObjects, math.MaxUint32),
		"objects+1":  put32(offObjects, 6),
		"table only": func(b []byte) []byte { return put32(offObjects, maxObjects)(b)[:offSlotTable] },
	} {
		t.Run(name, func(t *testing.T) {
			b := change(append([]byte(nil), good...))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "s.ctl"), b, 0o600))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Open(dir, "s")
			runtime.ReadMemStats(&after)
			var bad *FormatError
			require.ErrorAs(t, err, &bad)
			require.Contains(t, bad.Error(), "s.ctl")
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<10))
			require.Equal(t, name == "newer", bad.Newer)
		})
	}
}

// put32 changes a field of a header, with the right checksum.
func put32(at int, v uint32) func(b []byte) []byte {
	return func(b []byte) []byte {
		binary.LittleEndian.PutUint32(b[at:], v)
		binary.LittleEndian.PutUint32(b[offHeaderSum:], crc32.Checksum(b[:offHeaderSum], castagnoli))
		return b
	}
}

// The file of a huge table is mapped, not read.
func TestSparseFile(t *testing.T) {
	dir := t.TempDir()
	o := Options{Policy: Pool, Objects: 1 << 20, Slots: 1}
	b := put32(offVersion, 1)(put32(offObjects, 1<<20)(formatted(t, Options{Policy: Pool, Slots: 1})[:offSlotTable])) // where zeros are free entries
	path := filepath.Join(dir, "s.ctl")
	require.NoError(t, os.WriteFile(path, b, 0o600))
	require.NoError(t, os.Truncate(path, o.bytes()))
	c, err := Open(dir, "s")
	require.NoError(t, err)
	for range c.Records() {
		t.Fatal("there is none")
	}
	require.Equal(t, 1<<20, c.Free())
	// And if it becomes shorter under way, that is an error.
	require.NoError(t, os.Truncate(path, offSlotTable))
	require.Error(t, fault.Guard(func() error {
		for range c.Records() {
			t.Error("there is none")
		}
		return nil
	}))
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
}

// FuzzFile: whatever stands in a sidecar, looking at it ends, and what is
// written to it can be read. The parts that matter are given, and the zeros
// between them are not, since the fuzzer is slow with long inputs.
func FuzzFile(f *testing.F) {
	c, err := privateOf(formatted(f, Options{Policy: Pool, Objects: 2, Slots: 2}), true)
	require.NoError(f, err)
	for range c.Records() { // finds the free ones
		f.Fatal("there is none")
	}
	c.Put(record(3), 5)
	s, err := c.TakeSlot(1)
	require.NoError(f, err)
	s.Hold(3)
	header, states := c.mem[:offHeaderSum+4], c.mem[offState:offState+2*stateSize]
	slot, table := c.mem[offSlotTable:offSlotTable+slotHolds+8], c.mem[offSlotTable+2*slotSize:]
	f.Add(header, states, slot, table, uint16(0), false)
	f.Add(header, states, slot, table, uint16(7), false)
	f.Add(header, states[:70], slot, table, uint16(0), true)
	f.Add([]byte(magic), []byte{}, []byte{}, table[:3], uint16(1), true)
	f.Add(header, states, []byte("\x01\x00\x00\x00\xff\xff\xff\xff"), table, uint16(0), true)
	f.Fuzz(func(t *testing.T, header, states, slot, table []byte, cut uint16, mend bool) {
		const slots = 2
		objects := min((len(table)+entrySize-1)/entrySize, 9)
		b := make([]byte, offSlotTable+slots*slotSize+objects*entrySize)
		copy(b[:offState], header)
		copy(b[offState:offSlotTable], states)
		copy(b[offSlotTable+slotSize:], slot)
		copy(b[offSlotTable+slots*slotSize:], table)
		if mend { // a header that fits, so that what is behind it counts
			copy(b, magic)
			put32(offVersion, 1+binary.LittleEndian.Uint32(b[offVersion:])%layoutVersion)(b)
			put32(offPolicy, 1+binary.LittleEndian.Uint32(b[offPolicy:])%2)(b)
			put32(offSlots, slots)(b)
			put32(offObjects, uint32(objects))(b)
		} else {
			b = b[:len(b)-min(len(b), int(cut))]
		}
		c, err := privateOf(b, false)
		if err != nil {
			require.ErrorIs(t, err, shmring.ErrCorrupt)
			return
		}
		valid := 0
		for i, r := range c.Records() {
			valid++
			use, _ := c.Use(i)
			c.SetUse(i, use+1)
			now, ok := c.Use(i)
			require.True(t, ok)
			require.Equal(t, (use+1)&^useCheck, now)
			require.LessOrEqual(t, r.Size, math.MaxUint32)
		}
		require.Equal(t, c.opt.Objects, valid+c.Free())
		require.LessOrEqual(t, 8*cap(c.free), len(b))
		held, dead := c.Held()
		require.Zero(t, dead)
		require.LessOrEqual(t, len(held), c.opt.Slots*maxHolds)
		if s, err := c.TakeSlot(1); err == nil {
			_, ok := s.Hold(77)
			require.True(t, ok)
			held, _ = c.Held()
			require.Contains(t, held, uint32(77))
			require.NoError(t, s.Close())
		} else {
			require.ErrorIs(t, err, ErrBusy)
			require.Equal(t, c.opt.Slots, takenSlots(c))
		}
		if c.Free() > 0 {
			i := c.Put(record(4), 9)
			again, err := privateOf(c.mem, false)
			require.NoError(t, err)
			for j, r := range again.Records() {
				if i == j {
					require.Equal(t, record(4), r)
				}
			}
			c.Drop(i)
		}
		state := State{Epoch: c.State().Epoch + 1, NextID: 5}
		c.SetState(state)
		again, err := privateOf(c.mem, true)
		require.NoError(t, err)
		require.Equal(t, state, again.State())
	})
}
