package ringtest_test

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/internal/harness/harnesstest"
	"github.com/ringcache/ringcache/fuzz/ringtest"
)

var errLog = errors.New("no room")

// log is a ring that recovers: chunks stand one behind the other from offset 0, a size of 0 is the
// end, and a dead id is that of a freed chunk. Room comes back when nothing is live.
type log struct {
	memory []byte
	next   uint32
	end    int
	live   []uint32
	at     map[uint32]uint64
	stored func()

	sizeFirst bool // the defect: a chunk is there before its id is
	keepIDs   bool // another: freed chunks keep their ids
	blink     bool // another: a header is destroyed for a moment while its neighbour is freed
}

func newLog(size int, firstID uint32) *log {
	return &log{memory: make([]byte, size), next: firstID, at: map[uint32]uint64{}, stored: func() {}}
}

func (l *log) OnStore(f func()) { l.stored = f }

func (l *log) put(offset int, v uint32) {
	binary.LittleEndian.PutUint32(l.memory[offset:], v)
	l.stored()
}

func (l *log) Alloc(size int) (uint64, uint32, error) {
	if size <= 0 || size > len(l.memory) || l.end+8+size+8 > len(l.memory) {
		return 0, 0, errLog
	}
	at, id := l.end, l.next
	l.end += 8 + size
	l.put(l.end+4, 0)
	if l.sizeFirst {
		l.put(at+4, uint32(8+size))
		l.put(at, id)
	} else {
		l.put(at, id)
		l.put(at+4, uint32(8+size))
	}
	l.next = (id + 1) % (1 << 31)
	l.live = append(l.live, id)
	l.at[id] = uint64(at)
	return uint64(at), id, nil
}

func (l *log) Free(ids []uint32) (freed []uint32) {
	for _, id := range ids {
		i := slices.Index(l.live, id)
		if i < 0 {
			continue
		}
		if l.blink && i+1 < len(l.live) {
			l.put(int(l.at[l.live[i+1]]), math.MaxUint32)
			l.put(int(l.at[l.live[i+1]]), l.live[i+1])
		}
		if !l.keepIDs {
			l.put(int(l.at[id]), math.MaxUint32)
		}
		l.live = slices.Delete(l.live, i, i+1)
		delete(l.at, id)
		freed = append(freed, id)
	}
	if len(l.live) == 0 {
		l.put(4, 0)
		l.end = 0
	}
	return freed
}

func (l *log) Live() map[uint32]uint64 { return maps.Clone(l.at) }
func (l *log) Bytes() []byte           { return l.memory }
func (l *log) State() ringtest.State {
	s := ringtest.State{IDStart: l.next, IDEnd: l.next}
	if len(l.live) > 0 {
		s.IDStart = l.live[0]
	}
	return s
}

func recoverLog(memory []byte) (ringtest.Ring, error) {
	l := newLog(len(memory), 0)
	l.memory = memory
	for l.end+8 <= len(memory) {
		id, size := binary.LittleEndian.Uint32(memory[l.end:]), binary.LittleEndian.Uint32(memory[l.end+4:])
		if size == 0 {
			break
		}
		if id != math.MaxUint32 {
			l.live, l.next = append(l.live, id), (id+1)%(1<<31)
			l.at[id] = uint64(l.end)
		}
		l.end += int(size)
	}
	if len(l.live) == 0 {
		l.end = 0
	}
	return l, nil
}

func TestCrashSeesEveryStore(t *testing.T) {
	for name, c := range map[string]struct {
		ring    func(size int, firstID uint32) *log
		recover ringtest.Recover
		want    string
	}{
		"correct": {newLog, recoverLog, ""},
		"size first": {func(size int, firstID uint32) *log {
			l := newLog(size, firstID)
			l.sizeFirst = true
			return l
		}, recoverLog, "crash-recovery"},
		"a header destroyed for a moment": {func(size int, firstID uint32) *log {
			l := newLog(size, firstID)
			l.blink = true
			return l
		}, nil, "crash-reader"},
		"ids of freed chunks stay": {func(size int, firstID uint32) *log {
			l := newLog(size, firstID)
			l.keepIDs = true
			return l
		}, nil, "crash-stale"},
		"nothing recovered": {newLog, func(memory []byte) (ringtest.Ring, error) {
			return newLog(len(memory), 0), nil
		}, "crash-recovery"},
	} {
		t.Run(name, func(t *testing.T) {
			n := func(size int, firstID uint32) ringtest.Ring { return c.ring(size, firstID) }
			ringtest.Check(t, n, ringtest.Options{Ops: 5000}) // which sees the memory between operations alone
			report := harnesstest.FailureOf(t, func(t testing.TB) {
				ringtest.Crash(t, n, ringtest.Options{}, c.recover)
			})
			if c.want == "" {
				require.Empty(t, report)
				return
			}
			require.Contains(t, report, c.want)
			t.Log(report)
		})
	}
}
