package ring

import (
	"encoding/binary"
	"errors"
)

// ErrNoSpace is what Take fails with.
var ErrNoSpace = errors.New("ring: no space")

// Queue hands out slots of a []byte in turn and takes them back oldest first. Positions are plain
// offsets, and the memory that is in use is counted.
type Queue struct {
	Bug Bug

	mem   []byte
	align int
	slots []slot // in use, oldest first
	tail  int    // where the next slot begins
	used  int    // bytes of slots, and what was left out at the end in front of them
	next  uint32

	last   int    // bytes of the slot before; for a bug
	stored func() // is called after each store
}

type slot struct {
	id           uint32
	off, len     int // with the header
	skip, behind int // bytes left out in front, at the end of the memory; bytes left out behind
}

// NewQueue makes an empty queue. Slots begin at multiples of align.
func NewQueue(mem []byte, align int, firstID uint32) *Queue {
	return &Queue{mem: mem, align: align, next: firstID, stored: func() {}}
}

func (q *Queue) put(off int, v uint32) {
	binary.LittleEndian.PutUint32(q.mem[off:], v)
	q.stored()
}

// Take hands out a slot for n bytes.
func (q *Queue) Take(n int) (off int, id uint32, err error) {
	if q.Bug != NegativeSize && n <= 0 || n > len(q.mem) && q.Bug != Overflow {
		return 0, 0, ErrNoSpace
	}
	need := n + 8
	if q.Bug == Overflow {
		need = int(int32(need))
	}
	off, skip, ok := q.place(need)
	if !ok {
		return 0, 0, ErrNoSpace
	}
	q.write(off, need)
	s := slot{id: q.next, off: off, len: need, skip: skip}
	if end := q.roundUp(off + need); end <= len(q.mem) {
		s.behind = end - off - need
	}
	q.tail = off + need + s.behind
	q.used += s.skip + s.len + s.behind
	if q.Bug != LostAtExactFit || off+need != len(q.mem) {
		q.slots = append(q.slots, s)
	}
	q.next++
	if q.Bug != IDNotWrapped {
		q.next %= 1 << 31
	}
	return off, s.id, nil
}

// place finds room, and how many bytes at the end of the memory it leaves out.
func (q *Queue) place(need int) (off, skip int, ok bool) {
	if len(q.slots) == 0 { // the longest piece begins at 0
		switch {
		case q.Bug == EmptyBeginsBehind && need+8 <= len(q.mem)/2:
			off = 8
		case q.Bug == StartNotReset:
			off = q.tail
		}
		return off, 0, off+need <= len(q.mem) && q.used+need <= len(q.mem)
	}
	head := q.slots[0].off
	if q.tail > head {
		if q.tail+need <= len(q.mem) {
			return q.tail, 0, q.used+need <= len(q.mem)
		}
		skip = len(q.mem) - q.tail
		if q.Bug == RefusalMovesTail {
			q.tail = 0
		}
		return 0, skip, need <= head+q.limit() && q.used+skip+need <= len(q.mem)+q.limit()
	}
	return q.tail, 0, q.tail+need <= head+q.limit() && q.used+need <= len(q.mem)+q.limit()
}

// limit is how far a slot may reach into the oldest one: not at all.
func (q *Queue) limit() int {
	switch q.Bug {
	case LimitOffByThree:
		return 3
	case LimitOffByOne:
		return 1
	}
	return 0
}

func (q *Queue) write(off, need int) {
	if need < 8 || off+need > len(q.mem) {
		return // only bugs come here
	}
	size := need
	switch q.Bug {
	case SizeWithoutHeader:
		size -= 8
	case SizeOfTheLast:
		if q.last != 0 {
			size = q.last
		}
	case Blink: // the oldest slot loses its id for a moment
		if len(q.slots) > 0 {
			q.put(q.slots[0].off, 0xffffffff)
			q.put(q.slots[0].off, q.slots[0].id)
		}
	}
	q.last = need
	q.put(off, q.next)
	q.put(off+4, uint32(size))
}

func (q *Queue) roundUp(off int) int {
	if q.Bug == RoundDown {
		return off / q.align * q.align
	}
	return (off + q.align - 1) / q.align * q.align
}

// Return takes slots back, oldest first, as long as done reports true.
func (q *Queue) Return(done func(id uint32) bool) (returned []uint32) {
	if q.Bug == NewestFirst && len(q.slots) > 1 && done(q.slots[len(q.slots)-1].id) && !done(q.slots[0].id) {
		s := q.slots[len(q.slots)-1]
		q.slots = q.slots[:len(q.slots)-1]
		q.tail = s.off
		q.used -= s.len + s.skip + s.behind
		return []uint32{s.id}
	}
	for len(q.slots) > 0 && done(q.slots[0].id) {
		if q.Bug == LastIsKept && len(q.slots) == 1 && len(returned) > 1 {
			break
		}
		s := q.slots[0]
		q.slots = q.slots[1:]
		returned = append(returned, s.id)
		q.used -= s.len + s.skip + s.behind
		switch {
		case q.Bug == PaddingForgotten:
			q.used += s.skip
		case q.Bug == ScrubTooFar:
			clear(q.mem[s.off:min(s.off+s.len+1, len(q.mem))])
		}
	}
	return returned
}

// Reset takes everything back.
func (q *Queue) Reset() {
	keep := 0
	if q.Bug == ClearLeavesOne {
		keep = min(1, len(q.slots))
	}
	q.slots = q.slots[len(q.slots)-keep:]
	q.used, q.tail = 0, 0
	for _, s := range q.slots {
		q.used, q.tail = s.len, s.off+s.len
	}
	if q.Bug == IDsRestart {
		q.next = 0
	}
}
