//go:build linux

package sidecar_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/ringcache/ringcache/internal/sidecar"
)

// content is what the sidecar of these tests contains.
type content struct {
	o       sidecar.Options
	state   sidecar.State // the newest
	records map[int]sidecar.Record
	uses    map[int]uint64
	held    []uint32 // by the reader in slot 1
	pid     int      // of that reader
}

// sample has a bit in the highest byte of every field that can have one.
func sample() content {
	record := func(n uint32) sidecar.Record {
		return sidecar.Record{
			Address: 1<<62 + uint64(n)*64, ID: 1<<30 + n, Size: 1<<31 + int(n), DescriptionOffset: 1<<31 + 5, DescriptionLength: 1<<31 + 6,
			Sum: 0xdeadbeef + n, Full: n%2 == 1,
		}
	}
	return content{
		o: sidecar.Options{
			Policy: sidecar.Pool, Generation: "0.33.0.post1+some-label!", Owner: strings.Repeat("owner-", 10) + "1234",
			Readers: 1<<31 + 3, Objects: 3, Slots: 2, RingSize: 1<<62 + 4096, DataOffset: 1<<31 + 32,
		},
		state:   sidecar.State{Epoch: 1<<63 + 7, NextID: 1<<30 + 70000, Readers: 1<<31 + 3, Clean: true, PID: 1<<31 + 8},
		records: map[int]sidecar.Record{0: record(1), 2: record(2)},
		uses:    map[int]uint64{0: 3<<62 | math.MaxUint32, 2: 1<<63 | 5},
		held:    []uint32{1<<30 + 1, 0},
		pid:     1<<31 + 9,
	}
}

// make returns the bytes of a sidecar with this content and the segment's identity.
func (f *format) make(c content, seg *syscall.Stat_t) []byte {
	b := make([]byte, f.size())
	h := f.header(b)
	copy(h[f.row("Header", "`RINGCTL`").at:], f.magic())
	f.put(h, "Header", "layout version", f.version())
	f.put(h, "Header", "policy", f.policy(c.o.Policy.String()))
	f.put(h, "Header", "N", uint64(c.o.RingSize))
	f.put(h, "Header", "bytes in front", uint64(c.o.DataOffset))
	f.put(h, "Header", "slots", uint64(c.o.Slots))
	f.put(h, "Header", "objects", uint64(c.o.Objects))
	f.put(h, "Header", "inode", seg.Ino)
	f.put(h, "Header", "device", seg.Dev)
	f.put(h, "Header", "user id", uint64(os.Geteuid()))
	copy(h[f.row("Header", "vLLM version").at:], c.o.Generation)
	copy(h[f.row("Header", "owner").at:], c.o.Owner)
	f.put(h, "Header", "checksum", uint64(f.sum(h, "Header", "checksum")))

	// The state before has the number before, in the other record.
	for i, seq := range []uint64{1<<62 - 1, 1 << 62} {
		r := f.state(b, int(seq%2))
		f.put(r, "State", "sequence number", seq)
		if i == 1 {
			f.put(r, "State", "epoch", c.state.Epoch)
			f.put(r, "State", "next id", uint64(c.state.NextID))
			f.put(r, "State", "number of readers", uint64(c.state.Readers))
			f.put(r, "State", "the clean mark", 1)
			f.put(r, "State", "pid", uint64(c.state.PID))
		}
		f.put(r, "State", "checksum", uint64(f.sum(r, "State", "checksum")))
	}

	s := f.slot(b, 1)
	f.mark(b, 1)[0] = 1
	f.put(s, "Slots", "how many", uint64(len(c.held)))
	f.put(s, "Slots", "pid", uint64(c.pid))
	for i, id := range c.held {
		binary.LittleEndian.PutUint32(s[f.row("Slots", "places").at+4*i:], id+1)
	}
	// A place that is not in use, whatever stands there.
	binary.LittleEndian.PutUint32(s[f.row("Slots", "places").at+4*len(c.held):], 99)

	for i := range c.o.Objects {
		e := f.entry(b, i)
		r, ok := c.records[i]
		if !ok {
			copy(e[f.row("Table", "mark").at:], f.freeMark())
			continue
		}
		f.put(e, "Table", "address", r.Address)
		f.put(e, "Table", "id", uint64(r.ID))
		f.put(e, "Table", "size of the chunk", uint64(r.Size))
		f.put(e, "Table", "where the description begins", uint64(r.DescriptionOffset))
		f.put(e, "Table", "bytes of the description", uint64(r.DescriptionLength))
		f.put(e, "Table", "checksum of the payload", uint64(r.Sum))
		f.put(e, "Table", "1 if that covers every byte", map[bool]uint64{true: 1}[r.Full])
		f.put(e, "Table", "use word", f.useWord(i, c.uses[i]))
		f.put(e, "Table", "when the object was published", uint64(i)+1_000_000_000_000)
		f.put(e, "Table", "mark", f.validMark(e))
	}
	return b
}

func (f *format) magic() string {
	return f.found("Header", "`RINGCTL`", "`(.*)` and a zero byte")[0] + "\x00"
}

func (f *format) version() uint64 {
	n, _ := strconv.ParseUint(f.found("Header", "layout version", `u32: (\d+)`)[0], 10, 32)
	return n
}

func (f *format) policy(name string) uint64 {
	n, _ := strconv.ParseUint(f.found("Header", "policy", `(\d+) `+name)[0], 10, 32)
	return n
}

func (f *format) freeMark() string { return f.found("Table", "mark", "`(.*)` if free")[0] }

func (f *format) validMark(e []byte) uint64 {
	sum := f.sum(e, "Table", "mark")
	return uint64(sum) | uint64(^sum)<<32
}

// useWord adds the check to a use word, see the table of its bits: bits 32 to 61.
func (f *format) useWord(i int, use uint64) uint64 {
	b := binary.LittleEndian.AppendUint64(nil, use)
	b = binary.LittleEndian.AppendUint32(b, uint32(i))
	return use | uint64(crc32c(b)&(1<<30-1))<<32
}

// errs collects what differs.
type errs []error

func (e *errs) equal(what string, want, got any) {
	if fmt.Sprint(want) != fmt.Sprint(got) {
		*e = append(*e, fmt.Errorf("%s: want %v, got %v", what, want, got))
	}
}

// opened compares the package's reading of a sidecar that was made from the document.
func (f *format) opened(dir string) (err error) {
	seg, st, err := newSegment(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, seg.Close()) }()
	want := sample()
	if err := os.WriteFile(filepath.Join(dir, "s.ctl"), f.make(want, st), 0o600); err != nil {
		return err
	}
	file, err := sidecar.Open(dir, "s")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := file.Own(); err != nil {
		return err
	}
	var diff errs
	diff.equal("header", want.o, file.Options())
	diff.equal("segment", true, file.Describes(seg))
	diff.equal("state", want.state, file.State())
	records, uses := map[int]sidecar.Record{}, map[int]uint64{}
	for i, r := range file.Records() {
		use, ok := file.Use(i)
		diff.equal("check of a use word", true, ok)
		records[i], uses[i] = r, use
		diff.equal("when the object was published", int64(i)+1_000_000_000_000, file.PutTime(i).UnixNano())
	}
	diff.equal("records", want.records, records)
	diff.equal("use words", want.uses, uses)
	diff.equal("free entries", want.o.Objects-len(want.records), file.Free())
	reader, err := os.OpenFile(file.Path(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := lockByte(reader, f.slotLock(1)); err != nil {
		return errors.Join(err, reader.Close())
	}
	held, dead := file.Held()
	diff.equal("held", map[uint32]struct{}{want.held[0]: {}, want.held[1]: {}}, held)
	diff.equal("dead readers", 0, dead)
	if err := reader.Close(); err != nil { // which frees the lock
		return err
	}
	held, dead = file.Held()
	diff.equal("held by a dead reader", 0, len(held))
	diff.equal("dead readers", 1, dead)
	return errors.Join(diff...)
}
