package daemontest

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/ringcache/ringcache/daemon/wire"
)

// frame encodes a request; what the codec refuses to encode is replaced.
func frame(q *wire.Request) []byte {
	b, err := wire.AppendRequest(nil, q)
	if err != nil {
		b, _ = wire.AppendRequest(nil, &wire.Request{ID: q.ID, Op: "nothing"})
	}
	return b
}

func (l *liar) frames(next func() []byte) [][]byte {
	frames := [][]byte{frame(l.hello())}
	for range batch {
		frames = append(frames, next())
	}
	return frames
}

// wrong sends requests that are right as messages and have anything in their fields.
func (l *liar) wrong() (int, error) {
	return l.talk(l.frames(func() []byte { return frame(l.request()) }))
}

// mutated sends right requests, of which something was changed.
func (l *liar) mutated() (int, error) {
	frames := l.frames(func() []byte { return l.mutate(frame(l.request())) })
	return l.talk(frames[:4]) // after the first that can't be read, nothing is
}

func (l *liar) mutate(b []byte) []byte {
	for range 1 + l.rng.IntN(3) {
		at := 4 + l.rng.IntN(len(b)-4)
		switch l.rng.IntN(6) {
		case 0:
			b[at] ^= 1 << l.rng.IntN(8)
		case 1:
			b[at] = byte(l.rng.Uint32())
		case 2:
			b = append(b[:at], b[min(len(b), at+1+l.rng.IntN(8)):]...)
		case 3:
			b = append(b[:at:at], append([]byte{byte(l.rng.Uint32()), 0xdf, 0xff, 0xff}, b[at:]...)...)
		case 4:
			b = append(b, b[at:]...)
		case 5:
			b = b[:at+1]
		}
		if len(b) < 6 {
			b = append(b, 0x81, 0xa1, 'x')
		}
	}
	if l.rng.IntN(10) > 0 {
		binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	}
	return b
}

// half sends the beginning of a request, and then nothing or nobody.
func (l *liar) half() (int, error) {
	c, err := l.dial()
	if err != nil {
		return 1, err
	}
	b := frame(l.hello())
	if l.rng.IntN(2) == 0 {
		b = append(b, frame(l.request())...)
	}
	_, _ = c.Write(b[:l.rng.IntN(len(b))])
	if l.rng.IntN(2) == 0 {
		_ = c.Close()
	} else {
		l.stall(c)
	}
	return 1, nil
}

// lengths announces bytes that never come.
func (l *liar) lengths() (int, error) {
	n := []uint32{0, 1, 1 << 10, wire.MaxRequest, wire.MaxRequest + 1, 1 << 30, 1<<32 - 1}[l.rng.IntN(7)]
	b := binary.LittleEndian.AppendUint32(nil, n)
	switch l.rng.IntN(4) {
	case 0: // much is there
		b = append(b, make([]byte, l.rng.IntN(int(min(n, wire.MaxRequest))+1))...)
	case 1: // a map or list of very many
		b = append(b, 0xdf, 0xff, 0xff, 0xff, 0xff, 0xa5, 'n', 'a', 'm', 'e', 's', 0xdd, 0xff, 0xff, 0xff, 0xff)
	case 2: // lists in lists
		for range 200 {
			b = append(b, 0x91)
		}
	}
	if l.rng.IntN(4) > 0 {
		return l.talk([][]byte{frame(l.hello()), b})
	}
	c, err := l.dial()
	if err != nil {
		return 1, err
	}
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = c.Write(b)
	l.stall(c)
	return 1, nil
}

// deaf asks for long answers and reads none.
func (l *liar) deaf() (int, error) {
	c, err := l.dial()
	if err != nil {
		return 1, err
	}
	b := frame(l.hello())
	q := &wire.Request{ID: 2, Op: wire.Stat, List: true}
	if l.rng.IntN(2) == 0 {
		q = &wire.Request{ID: 2, Op: wire.Pin, Lease: "deaf", Space: "lies", Names: l.manyNames(), Seconds: 1}
	}
	for range batch {
		b = append(b, frame(q)...)
	}
	_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)) // it need not take all
	_, _ = c.Write(b)
	l.stall(c)
	return batch, nil
}

// crowdIn makes connections that say nothing, until one more has been answered.
func (l *liar) crowdIn() (int, error) {
	for range crowded {
		c, err := l.dial()
		if err != nil {
			return 1, err
		}
		defer func() { _ = c.Close() }()
	}
	n, err := l.talk([][]byte{frame(l.hello())})
	return crowded + n, err
}

// sessions opens ever more sessions, with a lease in each.
func (l *liar) sessions() (answered int, err error) {
	for range batch {
		q := l.hello()
		q.Session = fmt.Sprintf("liar-%d-%d-%d", l.o.Seed, l.rng.Uint32(), l.session)
		n, err := l.talk([][]byte{frame(q), frame(&wire.Request{ID: 2, Op: wire.Pin, Lease: "lie", Space: "lies", Names: []string{l.name()}, Seconds: 1 << 31})})
		if answered += n; err != nil {
			return answered, err
		}
	}
	return answered, nil
}

// leases opens ever more leases.
func (l *liar) leases() (int, error) {
	frames := [][]byte{frame(l.hello())}
	for i := range uint64(10 * batch) {
		q := &wire.Request{ID: 2 + i, Op: wire.Pin, Lease: fmt.Sprint("lie ", l.rng.Uint32()), Space: "lies", Names: []string{l.name()}, Seconds: 1 << 31}
		frames = append(frames, frame(q))
	}
	return l.talk(frames)
}

// hoard reserves as much as it gets, and never writes.
func (l *liar) hoard() (int, error) {
	return l.talk(l.frames(func() []byte {
		q := &wire.Request{ID: 7, Op: wire.Reserve, Lease: fmt.Sprint("lie ", l.rng.IntN(100)), Space: "lies", Seconds: 3600}
		for range 1 + l.rng.IntN(50) {
			q.Objects = append(q.Objects, wire.Object{Name: fmt.Sprint("hoard ", l.rng.Uint32()), Size: 1 << l.rng.IntN(24)})
		}
		return frame(q)
	}))
}

// steal wants another process's session, which must be refused; speaks other versions; and speaks before it
// has said hello.
func (l *liar) steal() (int, error) {
	q := l.hello()
	switch l.rng.IntN(4) {
	case 0, 1:
		q.Session = l.o.Victim
		return l.talkTo([][]byte{frame(q), frame(l.request())}, func(p *wire.Reply) error {
			if p.Error == nil {
				return fmt.Errorf("it was given: %+v", p)
			}
			return nil
		})
	case 2:
		q.Version = int(l.rng.Int32())
	case 3:
		q = l.request()
	}
	return l.talk([][]byte{frame(q), frame(l.request())})
}
