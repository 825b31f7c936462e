package sidecar

import (
	"encoding/binary"
	"hash/crc32"
	"sync"

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

// stateRecords are the state of the writer, of which there are two copies: SetState writes the older one.
type stateRecords struct {
	*mapping
	mu    sync.Mutex // guards state and seq
	state State
	seq   uint64 // of the newer record
}

// readState reads the newer valid state record of m. ok is false if neither record is
// valid.
func (r *stateRecords) readState(m []byte) (ok bool) {
	last, damaged := uint64(0), false
	for i := range 2 {
		b := m[offState+i*stateSize : offState+(i+1)*stateSize]
		if binary.LittleEndian.Uint32(b[stateSum:]) != crc32.Checksum(b[:stateSum], castagnoli) {
			damaged = true
			continue
		}
		seq := binary.LittleEndian.Uint64(b[stateSeq:])
		damaged = damaged || ok && seq-last != 1 && last-seq != 1
		last = seq
		if !ok || seq > r.seq {
			ok, r.seq = true, seq
			r.state = State{
				Epoch:   binary.LittleEndian.Uint64(b[stateEpoch:]),
				NextID:  binary.LittleEndian.Uint32(b[stateNextID:]) % idLimit,
				Readers: int(binary.LittleEndian.Uint32(b[stateReaders:])), Clean: b[stateClean] != 0,
				PID: int(binary.LittleEndian.Uint32(b[statePID:])),
			}
		}
	}
	r.state.Damaged = damaged
	r.opt.Readers = r.state.Readers
	return ok
}

// State returns the state that was set last, or that Open or Own found.
func (r *stateRecords) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// SetState changes the state in one step: it writes the older one of two records, which the
// checksum, stored last, makes valid. If the memory is gone, the state stays unchanged.
func (r *stateRecords) SetState(s State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seq := r.seq + 1
	at := offState + int(seq%2)*stateSize
	b := r.mem[at : at+stateSize]
	failpoint.Hit("sidecar.state.begin")
	binary.LittleEndian.PutUint32(b[stateSum:], ^binary.LittleEndian.Uint32(b[stateSum:]))
	mem.Fence()
	binary.LittleEndian.PutUint64(b[stateSeq:], seq)
	binary.LittleEndian.PutUint64(b[stateEpoch:], s.Epoch)
	failpoint.Hit("sidecar.state.half")
	binary.LittleEndian.PutUint32(b[stateNextID:], s.NextID)
	binary.LittleEndian.PutUint32(b[stateReaders:], uint32(s.Readers))
	b[stateClean] = 0
	if s.Clean {
		b[stateClean] = 1
	}
	binary.LittleEndian.PutUint32(b[statePID:], uint32(s.PID))
	mem.Fence()
	mem.Store32(b[stateSum:], crc32.Checksum(b[:stateSum], castagnoli))
	s.Damaged = false
	r.seq, r.state = seq, s
	failpoint.Hit("sidecar.state.end")
}
