package sidecar

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/shmfile"
)

// Finding is a word that is not as it must be. Every method of this file may run while a writer
// and readers change the file, so a finding counts only if another look has it too.
type Finding struct {
	Offset    int64 // in the file
	What      string
	Want, Got string
}

// Alive reports whether a process has the writer's lock. It takes a free lock for a moment, shared with others who
// ask; an adopter tries again. The File must not have the lock itself.
func (f *File) Alive() (bool, error) { return shmfile.Locked(f.file) }

// LookAtState returns the next id of the newer valid record, and what is wrong with the records.
// ok is false if neither is valid. The writer spoils the older record each time it sets the state.
func (r *stateRecords) LookAtState() (next uint32, found []Finding, ok bool) {
	var seq [2]uint64
	var last uint64
	for i := range seq {
		at := offState + i*stateSize
		b := make([]byte, stateSize)
		copy(b, r.mem[at:])
		sum, want := binary.LittleEndian.Uint32(b[stateSum:]), crc32.Checksum(b[:stateSum], castagnoli)
		if sum != want {
			found = append(found, Finding{int64(at + stateSum), fmt.Sprintf("checksum of state record %d", i),
				fmt.Sprintf("%#x", want), fmt.Sprintf("%#x", sum)})
			continue
		}
		seq[i] = binary.LittleEndian.Uint64(b[stateSeq:])
		if !ok || seq[i] > last {
			ok, last, next = true, seq[i], binary.LittleEndian.Uint32(b[stateNextID:])
		}
	}
	older := min(seq[0], seq[1])
	if older > 0 && last-older != 1 {
		found = append(found, Finding{offState + stateSeq, "sequence numbers of the state records", "neighbours",
			fmt.Sprintf("%d and %d", seq[0], seq[1])})
	}
	if ok && next >= idLimit {
		found = append(found, Finding{offState + int64(last%2)*stateSize + stateNextID, "next id", "below 2^31",
			fmt.Sprint(next)})
	}
	return next, found, ok
}

// Reader is a process that has a slot, or has died with one.
type Reader struct {
	PID   int // by its own account
	Alive bool
	Holds []uint32 // ids of chunks that it looks at
}

// Readers returns the readers that have a slot now. What can't be an id is left out.
func (s *slots) Readers() (all []Reader) {
	for i := s.marked(0); i < s.opt.Slots; i = s.marked(i + 1) {
		b := s.slot(i)
		r := Reader{PID: int(int32(mem.Load32(b[slotPID:]))), Alive: s.slotLocked(i)}
		s.names(i, func(id uint32) bool {
			if id < idLimit {
				r.Holds = append(r.Holds, id)
			}
			return false
		})
		all = append(all, r)
	}
	return all
}

// LookAtSlots returns how many readers have a slot, how many have died with one, and what is wrong with the slots.
func (s *slots) LookAtSlots() (taken, dead int, found []Finding) {
	for i := range s.opt.Slots {
		b, at := s.slot(i), int64(slotOffset(i))
		mark, markAt := s.loadMark(i)
		if mark > 1 {
			found = append(found, Finding{markAt, fmt.Sprintf("mark of reader slot %d", i), "0 or 1", fmt.Sprint(mark)})
		}
		if mark == 0 {
			continue // its other words mean nothing
		}
		if s.slotLocked(i) {
			taken++
		} else {
			dead++
		}
		top := mem.Load32(b[slotTop:])
		if top > maxHolds {
			found = append(found, Finding{at + slotTop, fmt.Sprintf("places in use of reader slot %d", i),
				fmt.Sprintf("at most %d", maxHolds), fmt.Sprint(top)})
		}
		for h := range maxHolds {
			place := at + slotHolds + 4*int64(h)
			switch v := mem.Load32(b[slotHolds+4*h:]); {
			case v > idLimit:
				found = append(found, Finding{place, fmt.Sprintf("place %d of reader slot %d", h, i),
					"an id below 2^31, plus 1", fmt.Sprint(v)})
			case v != 0 && uint32(h) >= mem.Load32(b[slotTop:]): // again, since the reader raises it first
				found = append(found, Finding{place, fmt.Sprintf("place %d of reader slot %d", h, i),
					fmt.Sprintf("0, behind the %d in use", top), fmt.Sprint(v)})
			}
		}
	}
	return taken, dead, found
}

// Entry is what one look at the table has found.
type Entry struct {
	Record
	Index int
	Free  bool
	mark  uint64
}

// LookAtEntry returns entry i with all words from one moment, unless something writes there
// all the time.
func (t *table) LookAtEntry(i int) (e Entry) {
	b := t.entry(i)
	var body [entrySize]byte
	for range 100 {
		e = Entry{Index: i, mark: mem.Load64(b[entryMark:])}
		if e.Free = e.mark == markFree; e.Free {
			return e
		}
		mem.Fence()
		copy(body[entryBody:], b[entryBody:entryEnd])
		e.Record = t.record(body[:], e.mark)
		mem.Fence()
		if t.Has(e) {
			break
		}
	}
	return e
}

// Has reports whether the entry is still the one that was looked at: the object's bytes belong to
// it from before it was found until now.
func (t *table) Has(e Entry) bool {
	mem.Fence()
	return mem.Load64(t.entry(e.Index)[entryMark:]) == e.mark
}

// EntryOffset returns where entry i begins in the file.
func (t *table) EntryOffset(i int) int64 {
	return int64(slotOffset(t.opt.Slots)) + int64(i)*entrySize
}

// CheckEntry returns what is wrong with the words of an entry that is not free.
func (t *table) CheckEntry(e Entry) (found []Finding) {
	at := t.EntryOffset(e.Index)
	add := func(offset int64, what, want, got string) {
		found = append(found, Finding{at + offset, fmt.Sprintf("%s of entry %d", what, e.Index), want, got})
	}
	low, high := uint32(e.mark), uint32(e.mark>>32)
	switch {
	case low != ^high:
		add(entryMark, "mark", "a checksum and its complement, or FREEFREE", fmt.Sprintf("%#016x", e.mark))
	case e.Damaged:
		add(entryBody, "checksum of bytes 8 to 39", "that of the mark", fmt.Sprintf("another; the mark has %#x", low))
	}
	if word := mem.Load64(t.entry(e.Index)[entryUse:]); word != t.sealUse(e.Index, word) {
		add(entryUse, "check of the use word", fmt.Sprintf("%#016x", t.sealUse(e.Index, word)),
			fmt.Sprintf("%#016x", word))
	}
	if e.Damaged {
		return found
	}
	if e.ID >= idLimit {
		add(entryID, "id", "below 2^31", fmt.Sprint(e.ID))
	}
	return found
}
