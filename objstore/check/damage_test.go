//go:build linux

package check_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/objstore/check"
	"github.com/ringcache/ringcache/serde"
)

func put32(b []byte, at int, v uint32) { binary.LittleEndian.PutUint32(b[at:], v) }

// sealEntry makes the mark of an entry right.
func sealEntry(b []byte, at int) {
	s := sum(b[at+8 : at+40])
	put32(b, at, s)
	put32(b, at+4, ^s)
}

// sealUse makes the check of an entry's use word right.
func sealUse(b []byte, at int) {
	word := binary.LittleEndian.Uint64(b[at+40:]) &^ ((1<<30 - 1) << 32)
	var c [12]byte
	binary.LittleEndian.PutUint64(c[:], word)
	put32(c[:], 8, uint32(at-offTable)/64)
	binary.LittleEndian.PutUint64(b[at+40:], word|uint64(sum(c[:]))<<32&((1<<30-1)<<32))
}

// TestDamageIsFoundAndNamed: what is wrong has a name and a place, and is all that is found.
func TestDamageIsFoundAndNamed(t *testing.T) {
	type damage struct {
		suffix string // of the file
		change func(l *left, b []byte) (offset int)
		what   string
	}
	control := func(change func(l *left, b []byte) int, what string) damage { return damage{".ctl", change, what} }
	ring := func(change func(l *left, b []byte) int, what string) damage { return damage{"", change, what} }
	at := func(n int, change func(b []byte)) func(*left, []byte) int {
		return func(_ *left, b []byte) int { change(b[n:]); return n }
	}
	entry := func(n int, change func(b []byte, at int)) func(*left, []byte) int {
		return func(l *left, b []byte) int {
			e := l.entry(l.handles[1].ID)
			change(b, e)
			if n < 0 { // it is found elsewhere
				return n
			}
			return e + n
		}
	}
	chunk := func(n int, change func(b []byte)) func(*left, []byte) int {
		return func(l *left, b []byte) int {
			at := 32 + int(l.handles[1].Address)
			change(b[at:])
			if n < 0 {
				return n
			}
			return at + n
		}
	}
	// resum lets a chunk be changed behind the checksum of its entry.
	resum := func(l *left) {
		l.t.Helper()
		data, err := os.ReadFile(l.path(""))
		require.NoError(l.t, err)
		l.change(".ctl", func(b []byte) {
			e := l.entry(l.handles[1].ID)
			c := data[32+int(l.handles[1].Address):]
			put32(b, e+32, sum(c[12:binary.LittleEndian.Uint32(c[4:])]))
			sealEntry(b, e)
		})
	}
	for name, d := range map[string]damage{
		"magic":            control(at(0, func(b []byte) { b[0]++ }), "sidecar: want one that can be read, got it does not begin as one"),
		"header":           control(at(152, func(b []byte) { b[3]++ }), "header's checksum"),
		"policy":           control(func(_ *left, b []byte) int { b[12] = 7; seal(b[:156]); return 12 }, "no such policy"),
		"slots":            control(func(_ *left, b []byte) int { b[28]++; seal(b[:156]); return 28 }, "bytes for 3 slots"),
		"inode":            control(func(_ *left, b []byte) int { b[40]++; seal(b[:156]); return 40 }, "inode and device"),
		"ring size":        control(func(_ *left, b []byte) int { b[16]++; seal(b[:156]); return -1 }, "bytes of the segment"),
		"older state":      control(at(offStates+64+60, func(b []byte) { b[0]++ }), "checksum of state record 1"),
		"newer state":      control(at(offStates+60, func(b []byte) { b[0]++ }), "checksum of state record 0"),
		"sequence numbers": control(func(_ *left, b []byte) int { b[offStates] += 8; seal(b[offStates : offStates+64]); return offStates }, "sequence numbers"),
		"mark of a slot":   control(at(offMarks, func(b []byte) { b[0] = 2 }), "mark of reader slot 0"),
		"top of a slot":    control(at(offSlots+4, func(b []byte) { b[0], b[1] = 0xff, 0xff }), "places in use of reader slot 0"),
		"place of a slot": control(func(_ *left, b []byte) int {
			put32(b, offSlots+4, 1)
			put32(b, offSlots+16, 1<<31+1)
			return offSlots + 16
		}, "place 0 of reader slot 0"),
		"place behind":      control(func(_ *left, b []byte) int { put32(b, offSlots+20, 5); return offSlots + 20 }, "place 1 of reader slot 0"),
		"mark":              control(entry(0, func(b []byte, e int) { b[e]++ }), "mark of entry"),
		"mark of a free":    control(func(_ *left, b []byte) int { b[len(b)-64]++; return len(b) - 64 }, "mark of entry 15"),
		"body":              control(entry(8, func(b []byte, e int) { b[e+20]++ }), "checksum of bytes 8 to 39 of entry"),
		"use word":          control(entry(40, func(b []byte, e int) { b[e+40]++ }), "check of the use word of entry"),
		"id of another":     control(func(l *left, b []byte) int { return twin(l, b) }, "id of the chunk"),
		"id too high":       control(entry(16, func(b []byte, e int) { put32(b, e+16, 1<<31); sealEntry(b, e) }), "id of entry"),
		"id not given out":  control(entry(16, func(b []byte, e int) { put32(b, e+16, 1<<30); sealEntry(b, e) }), "before the next id"),
		"place":             control(entry(-1, func(b []byte, e int) { b[e+8] += 4; sealEntry(b, e) }), "place of entry"),
		"far place":         control(entry(8, func(b []byte, e int) { b[e+8+4] = 9; sealEntry(b, e) }), "place of entry"),
		"size":              control(entry(-1, func(b []byte, e int) { b[e+20]++; sealEntry(b, e) }), "size of the chunk"),
		"description":       control(entry(-1, func(b []byte, e int) { put32(b, e+24, 1<<20); sealEntry(b, e) }), "begin of the description"),
		"long description":  control(entry(-1, func(b []byte, e int) { put32(b, e+28, 1<<20); sealEntry(b, e) }), "bytes of the description"),
		"overlap":           control(overlap, "begin of the chunk of entry"),
		"id in the header":  ring(chunk(0, func(b []byte) { b[0] ^= 64 }), "id of the chunk"),
		"size in header":    ring(chunk(4, func(b []byte) { b[4]++ }), "size of the chunk"),
		"size out of bound": ring(chunk(0, func(b []byte) { put32(b, 4, 1<<30) }), "size field"),
		"payload":           ring(chunk(8, func(b []byte) { b[1000]++ }), "checksum of the payload"),
		"count":             ring(chunk(8, func(b []byte) { put32(b, 8, 1<<31) }), "count of reads"),
		"metadata":          ring(chunk(-1, func(b []byte) { b[12+20]++ }), ""),
		"frame":             ring(chunk(-1, func(b []byte) { b[binary.LittleEndian.Uint32(b[4:])-3001] = 0xc1 }), ""),
	} {
		t.Run(name, func(t *testing.T) {
			l := orphan(t, "0.33.0")
			if strings.Contains(name, "slot") || name == "place behind" {
				l.change(".ctl", func(b []byte) { put32(b, offMarks, 1) }) // a reader that died
			}
			requireClean(t, l.check(check.Options{}), 4)
			offset := 0
			l.change(d.suffix, func(b []byte) { offset = d.change(l, b) })
			if d.what == "" { // behind the checksum
				require.Contains(t, fmt.Sprint(l.check(check.Options{}).Findings), "checksum of the payload")
				resum(l)
			}
			r := l.check(check.Options{})
			require.NotEmpty(t, r.Findings)
			require.Contains(t, fmt.Sprint(r.Findings), d.what)
			t.Log(r.Findings)
			if offset > 0 {
				require.Equal(t, int64(offset), r.Findings[0].Offset)
			}
			require.True(t, strings.HasPrefix(r.Findings[0].File, "seg"))
		})
	}
}

// twin gives an entry the id of another.
func twin(l *left, b []byte) int {
	e, other := l.entry(l.handles[1].ID), l.entry(l.handles[2].ID)
	put32(b, e+16, binary.LittleEndian.Uint32(b[other+16:]))
	sealEntry(b, e)
	return -1
}

// overlap copies an entry to a free one, with a place and an id of its own.
func overlap(l *left, b []byte) int {
	e := l.entry(l.handles[1].ID)
	free := len(b) - 64
	copy(b[free:], b[e:e+64])
	put32(b, free+8, binary.LittleEndian.Uint32(b[e+8:])+64)
	put32(b, free+16, 77)
	sealEntry(b, free)
	sealUse(b, free)
	return -1
}

// TestFlippedBits: docs/format.md lists the words that are protected. Every bit of these is found when
// it flips, and no other bit is.
func TestFlippedBits(t *testing.T) {
	l := orphan(t, "0.33.0")
	used := l.entry(l.handles[0].ID)
	b, err := os.ReadFile(l.path(".ctl"))
	require.NoError(t, err)
	free := len(b) - 64
	require.Equal(t, "FREEFREE", string(b[free:free+8]))
	for _, r := range []struct {
		what     string
		from, to int
		found    bool
	}{
		{"header", 0, 156, true}, {"behind the header", 156, 160, false},
		{"state records", offStates, offStates + 128, true},
		{"marks behind the last slot", offMarks + slots, offMarks + slots + 8, false},
		{"mark, body and use word", used, used + 48, true}, {"behind the use word", used + 48, used + 64, false},
		{"mark of a free entry", free, free + 8, true}, {"rest of a free entry", free + 8, free + 64, false},
	} {
		for at := r.from; at < r.to; at++ {
			for bit := range 8 {
				flip := func(b []byte) { b[at] ^= 1 << bit }
				l.change(".ctl", flip)
				rep, err := check.Segment(name, check.Options{Dir: l.dir})
				if at >= 8 && at < 12 && err != nil { // a version to come
					require.ErrorContains(t, err, "layout version")
				} else {
					require.NoError(t, err)
					require.Equal(t, r.found, len(rep.Findings) > 0, "%s: bit %d of byte %d: %v", r.what, bit, at, rep.Findings)
				}
				l.change(".ctl", flip)
			}
		}
	}
	requireClean(t, l.check(check.Options{}), 4)
}

// TestHandlesThatAreWrong: of a foreign segment, what a handle names is all that can be checked.
func TestHandlesThatAreWrong(t *testing.T) {
	_, made := store(t, fifo, "0.31.0")
	l := &left{t: t, dir: t.TempDir(), handles: made.handles}
	copySegment(t, made, l)
	require.NoError(t, os.Remove(l.path(".ctl")))
	h := l.handles[1]
	for what, c := range map[string]struct {
		h      serde.Address
		change func(b []byte)
	}{
		"id of the chunk":         {serde.Address{Address: h.Address, ID: h.ID + 1}, nil},
		"below 2^31":              {serde.Address{Address: h.Address, ID: 1 << 31}, nil},
		"bytes left for the head": {serde.Address{Address: ringSize - 3, ID: 1<<31 - 1}, nil},
		"size field":              {h, func(b []byte) { put32(b, 4, 1<<30) }},
		"bytes of the payload":    {h, func(b []byte) { put32(b, 4, 9) }},
		"metadata pickle":         {h, func(b []byte) { b[12]++ }},
		"count of reads":          {h, func(b []byte) { put32(b, 8, 1<<31) }},
	} {
		t.Run(what, func(t *testing.T) {
			before, err := os.ReadFile(l.path(""))
			require.NoError(t, err)
			defer l.change("", func(b []byte) { copy(b, before) })
			if c.change != nil {
				l.change("", func(b []byte) { c.change(b[h.Address:]) })
			}
			r := l.check(check.Options{Handles: []serde.Address{c.h}, Generation: generation(t, "0.31.0")})
			require.Len(t, r.Findings, 1)
			if what == "bytes left for the head" {
				what = "id of the chunk" // there is none
			}
			require.Contains(t, r.Findings[0].String(), what)
		})
	}
	r := l.check(check.Options{Handles: []serde.Address{h}, Generation: generation(t, "0.31.0"), RingSize: ringSize - 64})
	require.Contains(t, r.Findings[0].What, "bytes of the segment")
}

// TestMissingAndShortFiles: what can't be looked at is a finding, and no fault.
func TestMissingAndShortFiles(t *testing.T) {
	for _, suffix := range []string{"", ".ctl"} {
		for _, size := range []int64{0, 5, 100, 4096, 20000} {
			l := orphan(t, "0.33.0")
			require.NoError(t, os.Truncate(l.path(suffix), size))
			r := l.check(check.Options{Handles: l.handles[:1]})
			require.NotEmpty(t, r.Findings, "%s: %d bytes", suffix, size)
			require.Equal(t, name+suffix, r.Findings[0].File)
		}
	}
	l := orphan(t, "0.33.0")
	require.NoError(t, os.Remove(l.path("")))
	r := l.check(check.Options{})
	require.Equal(t, "segment", r.Findings[0].What)
}
