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

// privateOf is a sidecar over a copy of bytes, read as Open reads a file.
func privateOf(m []byte, owner bool) (*File, error) {
	f := newFile(mapping{path: "copy", mem: append([]byte(nil), m...)})
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
	for name, c := range map[string]struct {
		change func(*Options)
		what   string
	}{
		"no policy":       {func(o *Options) { o.Policy = 0 }, "Policy(0)"},
		"unknown policy":  {func(o *Options) { o.Policy = 3 }, "Policy(3)"},
		"long generation": {func(o *Options) { o.Generation = strings.Repeat("1", 25) }, `Generation "1111111111111111111111111"`},
		"long owner":      {func(o *Options) { o.Owner = strings.Repeat("x", 65) }, `Owner "` + strings.Repeat("x", 65) + `"`},
		"objects":         {func(o *Options) { o.Objects = maxObjects + 1 }, "16777217 objects"},
		"no objects":      {func(o *Options) { o.Objects = -1 }, "-1 objects"},
		"slots":           {func(o *Options) { o.Slots = maxSlots + 1 }, "4097 reader slots"},
		"no slots":        {func(o *Options) { o.Slots = -1 }, "-1 reader slots"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			c.change(&o)
			dir := t.TempDir()
			_, err := Create(dir, "s", o, segmentIn(t, t.TempDir(), "s"))
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.ErrorContains(t, err, c.what)
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
			_, err = Private(o)
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.ErrorContains(t, err, c.what)
		})
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
	for bit := range 8 * pageSize {
		at := bit / 8
		b := append([]byte(nil), m...)
		b[at] ^= 1 << (bit % 8)
		c, err := privateOf(b, true)
		switch {
		case at < offHeaderSum+4:
			require.ErrorIs(t, err, shmring.ErrCorrupt, "bit %d", bit)
		case at >= offState+stateSize && at < offState+2*stateSize: // the other one is the newest's predecessor
			require.NoError(t, err)
			want := older
			want.Damaged = true
			require.Equal(t, want, c.State(), "bit %d", bit)
		default:
			require.NoError(t, err)
			want := newest
			want.Damaged = at >= offState && at < offState+stateSize
			require.Equal(t, want, c.State(), "bit %d", bit)
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

// Whatever the header contains, opening neither crashes nor allocates memory for it.
func TestHostileHeaders(t *testing.T) {
	good := formatted(t, options())
	dir := t.TempDir()
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		what   string
	}{
		"empty":      {func(b []byte) []byte { return nil }, "it has 0 bytes"},
		"one byte":   {func(b []byte) []byte { return b[:1] }, "it has 1 bytes"},
		"header":     {func(b []byte) []byte { return b[:pageSize-1] }, "it has 4095 bytes"},
		"truncated":  {func(b []byte) []byte { return b[:len(b)-1] }, "16703 bytes for 4 slots and 5 objects"},
		"longer":     {func(b []byte) []byte { return append(b, 0) }, "16705 bytes for 4 slots and 5 objects"},
		"zeros":      {func(b []byte) []byte { return make([]byte, len(b)) }, "it does not begin as one"},
		"magic":      {func(b []byte) []byte { b[0]++; return b }, "it does not begin as one"},
		"checksum":   {func(b []byte) []byte { b[offHeaderSum]++; return b }, "its header's checksum is wrong"},
		"version":    {put32(offVersion, 0), "layout version 0"},
		"newer":      {put32(offVersion, layoutVersion+1), "layout version 2"},
		"policy":     {put32(offPolicy, 0), "Policy(0)"},
		"policy 3":   {put32(offPolicy, 3), "Policy(3)"},
		"slots":      {put32(offSlots, math.MaxUint32), "4294967295 reader slots, at most"},
		"slots -1":   {put32(offSlots, 1<<31), "2147483648 reader slots, at most"},
		"more slots": {put32(offSlots, 5), "16704 bytes for 5 slots and 5 objects"},
		"objects":    {put32(offObjects, math.MaxUint32), "4294967295 objects"},
		"objects+1":  {put32(offObjects, 6), "16704 bytes for 4 slots and 6 objects"},
		"table only": {func(b []byte) []byte { return put32(offObjects, maxObjects)(b)[:pageSize] }, "4096 bytes for 4 slots and 16777216 objects"},
	} {
		t.Run(name, func(t *testing.T) {
			b := c.change(append([]byte(nil), good...))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "s.ctl"), b, 0o600))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Open(dir, "s")
			runtime.ReadMemStats(&after)
			var bad *FormatError
			require.ErrorAs(t, err, &bad)
			require.Equal(t, filepath.Join(dir, "s.ctl"), bad.Path)
			require.Contains(t, bad.What, c.what)
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
	b := put32(offObjects, 1<<20)(formatted(t, Options{Policy: Pool, Slots: 1})[:pageSize])
	path := filepath.Join(dir, "s.ctl")
	require.NoError(t, os.WriteFile(path, b, 0o600))
	require.NoError(t, os.Truncate(path, o.bytes()))
	c, err := Open(dir, "s")
	require.NoError(t, err)
	n := 0
	for _, r := range c.Records() {
		if !r.Damaged {
			t.Fatal("zeros are no entry")
		}
		n++
	}
	require.Equal(t, 1<<20, n)
	require.Zero(t, c.Free())
	// And if it becomes shorter under way, that is an error.
	require.NoError(t, os.Truncate(path, pageSize))
	require.ErrorIs(t, fault.Guard(func() error {
		for range c.Records() {
			t.Error("there is none")
		}
		return nil
	}), fault.ErrFault)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
}
