package sidecar

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/mem"
)

// State is the part of a sidecar that the writer changes rarely.
type State struct {
	Epoch   uint64 // number of writers that the segment has had
	NextID  uint32 // neither this id nor a later one was given out
	Readers int    // number of processes that read every object
	Clean   bool   // the last writer detached; false while it is alive or if it was killed
	PID     int    // of the last writer, for people

	// Damaged reports that one of the two state records was invalid when the sidecar was
	// opened: a writer was killed while it set the state, or the newer record is damaged.
	// The other fields are those of the valid record, perhaps the state before the last.
	// SetState ignores it.
	Damaged bool
}

// readState reads the newer valid state record of m. ok is false if neither record is
// valid.
func (f *File) readState(m []byte) (ok bool) {
	last, damaged := uint64(0), false
	for i := range 2 {
		r := m[offState+i*stateSize : offState+(i+1)*stateSize]
		if binary.LittleEndian.Uint32(r[stateSum:]) != crc32.Checksum(r[:stateSum], castagnoli) {
			damaged = true
			continue
		}
		seq := binary.LittleEndian.Uint64(r[stateSeq:])
		damaged = damaged || ok && seq-last != 1 && last-seq != 1
		last = seq
		if !ok || seq > f.seq {
			ok, f.seq = true, seq
			f.state = State{
				Epoch: binary.LittleEndian.Uint64(r[stateEpoch:]), NextID: binary.LittleEndian.Uint32(r[stateNextID:]) % idLimit,
				Readers: int(binary.LittleEndian.Uint32(r[stateReaders:])), Clean: r[stateClean] != 0,
				PID: int(binary.LittleEndian.Uint32(r[statePID:])),
			}
		}
	}
	f.state.Damaged = damaged
	f.opt.Readers = f.state.Readers
	return ok
}

// State returns the state that was set last, or that Open or Own found.
func (f *File) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// SetState changes the state in one step: it writes the older one of two records, which the
// checksum, stored last, makes valid. If the memory is gone, the state stays unchanged.
func (f *File) SetState(s State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	seq := f.seq + 1
	at := offState + int(seq%2)*stateSize
	r := f.mem[at : at+stateSize]
	failpoint.Hit("sidecar.state.begin")
	binary.LittleEndian.PutUint32(r[stateSum:], ^binary.LittleEndian.Uint32(r[stateSum:]))
	mem.Fence()
	binary.LittleEndian.PutUint64(r[stateSeq:], seq)
	binary.LittleEndian.PutUint64(r[stateEpoch:], s.Epoch)
	failpoint.Hit("sidecar.state.half")
	binary.LittleEndian.PutUint32(r[stateNextID:], s.NextID)
	binary.LittleEndian.PutUint32(r[stateReaders:], uint32(s.Readers))
	r[stateClean] = 0
	if s.Clean {
		r[stateClean] = 1
	}
	binary.LittleEndian.PutUint32(r[statePID:], uint32(s.PID))
	mem.Fence()
	mem.Store32(r[stateSum:], crc32.Checksum(r[:stateSum], castagnoli))
	s.Damaged = false
	f.seq, f.state = seq, s
	failpoint.Hit("sidecar.state.end")
}
