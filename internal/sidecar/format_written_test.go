//go:build linux

package sidecar_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ringcache/ringcache/internal/sidecar"
)

// made reads by the document what the package wrote.
func (f *format) made(dir string) (err error) {
	seg, st, err := newSegment(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, seg.Close()) }()
	want := sample()
	w, err := sidecar.Create(dir, "s", want.o, seg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	gone := map[int]bool{}
	for range want.o.Objects { // in the order in which the package gives out entries
		i := w.Put(sidecar.Record{Address: 64}, 1)
		r, ok := want.records[i]
		w.Drop(i)
		if !ok {
			i = w.Put(sidecar.Record{Address: 64}, 1)
			gone[i] = true
			continue
		}
		w.Put(r, 9)
		w.SetUse(i, want.uses[i])
	}
	for i := range gone {
		w.Drop(i)
	}
	const seq = 3 // 1 and 2 are those of a new sidecar
	w.SetState(want.state)
	r, err := sidecar.Open(dir, "s")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	other, err := sidecar.Open(dir, "s")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, other.Close()) }()
	if _, err := other.TakeSlot(1); err != nil {
		return err
	}
	slot, err := r.TakeSlot(want.pid)
	if err != nil {
		return err
	}
	for _, id := range want.held {
		slot.Hold(id)
	}
	b, err := os.ReadFile(filepath.Join(dir, "s.ctl"))
	if err != nil {
		return err
	}
	var diff errs
	diff.equal("bytes of the file", f.size(), len(b))
	if len(diff) > 0 {
		return errors.Join(diff...)
	}
	f.compareHeader(&diff, f.header(b), want.o, st)

	newest := f.state(b, seq%2) // the document: n mod 2
	diff.equal("sequence number", seq, f.get(newest, "State", "sequence number"))
	diff.equal("sequence number before", seq-1, f.get(f.state(b, (seq-1)%2), "State", "sequence number"))
	diff.equal("epoch", want.state.Epoch, f.get(newest, "State", "epoch"))
	diff.equal("next id", want.state.NextID, f.get(newest, "State", "next id"))
	diff.equal("readers", want.state.Readers, f.get(newest, "State", "number of readers"))
	diff.equal("clean mark", 1, f.get(newest, "State", "the clean mark"))
	diff.equal("pid", want.state.PID, f.get(newest, "State", "pid"))
	for i := range 2 {
		diff.equal("checksum of a state", f.sum(f.state(b, i), "State", "checksum"), f.get(f.state(b, i), "State", "checksum"))
	}

	s := f.slot(b, 1)
	diff.equal("mark", 1, f.mark(b, 1)[0])
	diff.equal("places", len(want.held), f.get(s, "Slots", "how many"))
	diff.equal("pid of a slot", want.pid, f.get(s, "Slots", "pid"))
	for i, id := range want.held {
		diff.equal("place", id+1, binary.LittleEndian.Uint32(s[f.row("Slots", "places").at+4*i:]))
	}
	places := 2
	for ; ; places++ {
		if _, ok := slot.Hold(7); !ok {
			break
		}
	}
	diff.equal("places of a slot", f.found("Slots", "how many", `at most (\d+)`)[0], places)
	diff.equal("bytes of the places", 4*places, f.row("Slots", "places").size)

	for i := range want.o.Objects {
		f.compareEntry(&diff, f.entry(b, i), i, want)
	}
	f.compareUnused(&diff, b)
	return errors.Join(diff...)
}

func (f *format) compareHeader(diff *errs, h []byte, o sidecar.Options, seg *syscall.Stat_t) {
	text := func(name, s string) {
		r := f.row("Header", name)
		got := h[r.at:][:r.size]
		diff.equal(name, fmt.Sprintf("%q", s+strings.Repeat("\x00", max(0, r.size-len(s)))), fmt.Sprintf("%q", got))
	}
	text("`RINGCTL`", f.magic())
	text("vLLM version", o.Generation)
	text("owner", o.Owner)
	for name, want := range map[string]uint64{
		"layout version": f.version(), "policy": f.policy(o.Policy.String()), "N": uint64(o.RingSize), "bytes in front": uint64(o.DataOffset),
		"slots": uint64(o.Slots), "objects": uint64(o.Objects), "inode": seg.Ino, "device": seg.Dev, "user id": uint64(os.Geteuid()),
		"checksum": uint64(f.sum(h, "Header", "checksum")),
	} {
		diff.equal(name, want, f.get(h, "Header", name))
	}
}

func (f *format) compareEntry(diff *errs, e []byte, i int, want content) {
	r, ok := want.records[i]
	if !ok {
		m := f.row("Table", "mark")
		diff.equal("mark of a free entry", f.freeMark(), string(e[m.at:][:m.size]))
		return
	}
	for name, want := range map[string]uint64{
		"address": r.Address, "id": uint64(r.ID), "size of the chunk": uint64(r.Size), "where the description begins": uint64(r.DescriptionOffset),
		"bytes of the description": uint64(r.DescriptionLength), "checksum of the payload": uint64(r.Sum),
		"1 if that covers every byte": map[bool]uint64{true: 1}[r.Full],
		"use word":                    f.useWord(i, want.uses[i]), "mark": f.validMark(e),
	} {
		diff.equal(name, want, f.get(e, "Table", name))
	}
	if at := time.Unix(0, int64(f.get(e, "Table", "when the object was published"))); time.Since(at) < 0 || time.Since(at) > time.Hour {
		diff.equal("when the object was published", "a moment ago", at)
	}
}

// compareUnused looks for bytes that are not 0 where the document has no field.
func (f *format) compareUnused(diff *errs, b []byte) {
	b = bytes.Clone(b)
	wipe := func(part []byte, table string) {
		for _, r := range f.tables[table] {
			if r.text != "" {
				clear(part[r.at:][:r.size])
			}
		}
	}
	wipe(f.header(b), "Header")
	wipe(f.state(b, 0), "State")
	wipe(f.state(b, 1), "State")
	for i := range f.slots {
		clear(f.mark(b, i))
		wipe(f.slot(b, i), "Slots")
	}
	for i := range sample().o.Objects {
		e := f.entry(b, i)
		if _, ok := sample().records[i]; ok {
			wipe(e, "Table")
		} else { // only its mark has a meaning
			last := f.row("Table", "when the object was published")
			clear(e[:last.at+last.size])
		}
	}
	if i := bytes.IndexFunc(b, func(r rune) bool { return r != 0 }); i >= 0 {
		*diff = append(*diff, fmt.Errorf("byte %d has no field and is not 0", i))
	}
}
