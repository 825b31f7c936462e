package sidecar

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/shmring"
)

// State is what changes rarely in a sidecar.
type State struct {
	Epoch   uint64 // number of writers that the segment had
	NextID  uint32 // no id from here on was given out
	Readers int
	Clean   bool // the last writer closed it
	PID     int  // of the last writer, for people
}

// readState reads the newer of the valid state records of m. ok is false if neither
// is valid.
func (f *File) readState(m []byte) (ok bool) {
	last := uint64(0)
	f.intact = true
	for i := range 2 {
		r := m[offState+i*stateSize : offState+(i+1)*stateSize]
		if binary.LittleEndian.Uint32(r[stateSum:]) != crc32.Checksum(r[:stateSum], castagnoli) {
			f.intact = false
			continue
		}
		seq := binary.LittleEndian.Uint64(r[stateSeq:])
		f.intact = f.intact && (!ok || seq-last == 1 || last-seq == 1)
		last = seq
		if !ok || seq > f.seq {
			ok, f.seq = true, seq
			f.state = State{
				Epoch: binary.LittleEndian.Uint64(r[stateEpoch:]), NextID: binary.LittleEndian.Uint32(r[stateNextID:]) % shmring.IDLimit,
				Readers: int(binary.LittleEndian.Uint32(r[stateReaders:])), Clean: r[stateClean] != 0,
				PID: int(binary.LittleEndian.Uint32(r[statePID:])),
			}
		}
	}
	f.opt.Readers = f.state.Readers
	return ok
}

// State returns the state as it was last set.
func (f *File) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// StateIntact reports whether both state records were valid when the sidecar was
// opened. If one was not, a writer was killed while it set the state, or the newer
// record is damaged: then the state is the one before.
func (f *File) StateIntact() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.intact
}

// SetState changes the state in one step: there are two records, the older one is
// written, and becomes valid by its checksum. If the memory is gone, the state is
// as before.
func (f *File) SetState(s State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	seq := f.seq + 1
	at := offState + int(seq%2)*stateSize
	r := f.mem[at : at+stateSize]
	failpoint.Hit("control.state.begin")
	binary.LittleEndian.PutUint32(r[stateSum:], ^binary.LittleEndian.Uint32(r[stateSum:]))
	mem.Fence()
	binary.LittleEndian.PutUint64(r[stateSeq:], seq)
	binary.LittleEndian.PutUint64(r[stateEpoch:], s.Epoch)
	failpoint.Hit("control.state.half")
	binary.LittleEndian.PutUint32(r[stateNextID:], s.NextID)
	binary.LittleEndian.PutUint32(r[stateReaders:], uint32(s.Readers))
	r[stateClean] = 0
	if s.Clean {
		r[stateClean] = 1
	}
	binary.LittleEndian.PutUint32(r[statePID:], uint32(s.PID))
	mem.Fence()
	mem.Store32(r[stateSum:], crc32.Checksum(r[:stateSum], castagnoli))
	f.seq, f.state = seq, s
	failpoint.Hit("control.state.end")
}
