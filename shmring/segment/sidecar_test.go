//go:build linux

package segment_test

import (
	"encoding/binary"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring/segment"
)

// Offsets in a sidecar, from docs/format.md.
const (
	offVersion   = 8
	offPolicy    = 12
	offSlots     = 28
	offObjects   = 32
	offInode     = 40
	offHeaderSum = 152
	offState     = 1024
	stateSize    = 64
	offMarks     = 4096
	offSlotTable = 8192

	// sidecarSize are the bytes of one with sidecarOptions.
	sidecarSize = offSlotTable + 4*2048 + 5*64
)

// sidecarOptions make a small sidecar.
func sidecarOptions() *segment.SidecarOptions {
	return &segment.SidecarOptions{Pool: true, Format: "0.33.0", Owner: "tests", Readers: 3, Objects: 5, Slots: 4}
}

// withSidecar makes a segment with a sidecar in a folder of its own.
func withSidecar(t *testing.T) (*segment.Segment, segment.Options) {
	t.Helper()
	o := segment.Options{Name: "s", Dir: t.TempDir(), RingSize: 4096, DataOffset: 32, Sidecar: sidecarOptions()}
	s := create(t, o)
	o.Sidecar = nil
	return s, o
}

func TestSidecarOfASegment(t *testing.T) {
	s, o := withSidecar(t)
	f, err := sidecar.Open(o.Dir, o.Name)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	want := sidecar.Options{
		Policy: sidecar.Pool, Generation: "0.33.0", Owner: "tests", Readers: 3, Objects: 5, Slots: 4, RingSize: 4096, DataOffset: 32,
	}
	require.Equal(t, want, f.Options())
	require.Equal(t, want, sidecar.Of(s).Options())
	require.True(t, sidecar.Matches(s, f))
	private, err := segment.Private(make([]byte, 4128), o)
	require.NoError(t, err)
	require.False(t, sidecar.Matches(private, f))
	require.Nil(t, sidecar.Of(private))
	o.Sidecar = sidecarOptions()
	private, err = segment.Private(make([]byte, 4128), o)
	require.NoError(t, err)
	require.Equal(t, want, sidecar.Of(private).Options())

	require.NoError(t, s.Unlink())
	require.Empty(t, filesIn(t, o.Dir))
	_, err = sidecar.Open(o.Dir, o.Name)
	require.ErrorIs(t, err, segment.ErrForeign)
}

// A segment whose sidecar can't be made is not there either.
func TestCreateRefusesBadSidecars(t *testing.T) {
	o := sidecarOptions()
	o.Objects = 1<<24 + 1
	dir := t.TempDir()
	_, err := segment.Create(segment.Options{Name: "s", Dir: dir, RingSize: 4096, Sidecar: o})
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, "16777217 objects")
	require.Empty(t, filesIn(t, dir))
	_, err = segment.Private(make([]byte, 4096), segment.Options{RingSize: 4096, Sidecar: o})
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, "16777217 objects")
}

// Sweep removes what can't be a sidecar, but for what a later release may have made.
func TestSweepOfHostileHeaders(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s.ctl")
	made := abandoned(t, dir, "s", "label")
	require.NoError(t, os.Remove(filepath.Join(dir, made.Name)))
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Len(t, good, sidecarSize)
	for name, change := range map[string]func(b []byte) []byte{
		"empty":      func(b []byte) []byte { return nil },
		"one byte":   func(b []byte) []byte { return b[:1] },
		"header":     func(b []byte) []byte { return b[:offMarks-1] },
		"truncated":  func(b []byte) []byte { return b[:len(b)-1] },
		"longer":     func(b []byte) []byte { return append(b, 0) },
		"zeros":      func(b []byte) []byte { return make([]byte, len(b)) },
		"magic":      func(b []byte) []byte { b[0]++; return b },
		"version":    put32(offVersion, 0),
		"newer":      put32(offVersion, 4),
		"policy":     put32(offPolicy, 0),
		"policy 3":   put32(offPolicy, 3),
		"slots":      put32(offSlots, math.MaxUint32),
		"slots -1":   put32(offSlots, 1<<31),
		"more slots": put32(offSlots, 5),
		"objects":    put32(offObjects, math.MaxUint32),
		"objects+1":  put32(offObjects, 6),
		"table only": func(b []byte) []byte { return put32(offObjects, 1<<24)(b)[:offMarks] },
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, change(append([]byte(nil), good...)), 0o600))
			all, err := segment.Sweep(segment.SweepOptions{Dir: dir, Prefix: "s", AnyOwner: true, Remove: true})
			require.NoError(t, err)
			require.Len(t, all, 1)
			var bad *sidecar.FormatError
			if name == "newer" {
				require.ErrorAs(t, all[0].Err, &bad)
				require.True(t, bad.Newer)
				require.FileExists(t, path, "what can't be judged stays")
				return
			}
			require.NoError(t, all[0].Err)
			require.ErrorAs(t, all[0].Damage, &bad)
			require.True(t, strings.HasSuffix(bad.Path, "s.ctl"))
			require.NoFileExists(t, path)
		})
	}
}

// put32 changes a field of a header, with the right checksum.
func put32(at int, v uint32) func(b []byte) []byte {
	return func(b []byte) []byte {
		binary.LittleEndian.PutUint32(b[at:], v)
		binary.LittleEndian.PutUint32(b[offHeaderSum:], crc32.Checksum(b[:offHeaderSum], crc32.MakeTable(crc32.Castagnoli)))
		return b
	}
}
