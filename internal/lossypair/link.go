package lossypair

import (
	"encoding/gob"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
)

// ErrDown reports that the other end of a link is gone.
var ErrDown = errors.New("the link is down")

// Link is the frontend's end of a connection.
type Link struct {
	// Done is closed when the other end is gone.
	Done chan struct{}

	mu      sync.Mutex
	out     *gob.Encoder
	rnd     *rand.Rand // nil loses nothing
	held    *request   // to be overtaken
	flying  int        // requests that will be answered
	waiting map[uint64]chan reply
	last    uint64
	down    bool
	err     error

	dropped, swapped int
}

// NewLink returns a link over a connection. With rnd, one of 30 requests is lost and one of 30
// is overtaken by the next.
func NewLink(conn net.Conn, rnd *rand.Rand) *Link {
	l := &Link{Done: make(chan struct{}), out: gob.NewEncoder(conn), rnd: rnd, waiting: map[uint64]chan reply{}}
	go l.read(conn)
	return l
}

// Lossless ends the losses.
func (l *Link) Lossless() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rnd = nil
}

// Losses returns how many requests were lost, and how many overtaken.
func (l *Link) Losses() (dropped, swapped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped, l.swapped
}

// Err returns why the link is down: io.EOF if the other end closed it.
func (l *Link) Err() error {
	<-l.Done
	return l.err
}

// read hands out the answers. Who waits when the receiver is gone gets none.
func (l *Link) read(conn net.Conn) {
	defer close(l.Done)
	in := gob.NewDecoder(conn)
	for {
		var a reply
		err := in.Decode(&a)
		l.mu.Lock()
		if err != nil {
			for _, w := range l.waiting {
				close(w)
			}
			clear(l.waiting)
			l.down, l.err = true, err
			l.mu.Unlock()
			return
		}
		l.flying--
		l.waiting[a.ID] <- a
		delete(l.waiting, a.ID)
		if l.flying == 0 && l.held != nil { // nobody is left to overtake it
			_ = l.write(*l.held) // if that fails, so does the next Decode
			l.held = nil
		}
		l.mu.Unlock()
	}
}

func (l *Link) write(q request) error {
	l.flying++
	return l.out.Encode(q)
}

// send returns where the answer will come; a channel that is closed without one stands for a
// client that gave up waiting. The error is ErrDown.
func (l *Link) send(q request) (<-chan reply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, ErrDown
	}
	l.last++
	q.ID = l.last
	answer := make(chan reply, 1)
	if l.rnd != nil && !q.List {
		switch l.rnd.IntN(30) {
		case 0:
			l.dropped++
			close(answer)
			return answer, nil
		case 1:
			if l.held == nil && l.flying > 0 {
				l.waiting[q.ID], l.held = answer, &q
				return answer, nil
			}
		}
	}
	l.waiting[q.ID] = answer
	err := l.write(q)
	if l.held != nil && err == nil {
		l.swapped++
		_ = l.write(*l.held) // if that fails, nobody answers, and read ends
		l.held = nil
	}
	if err != nil {
		delete(l.waiting, q.ID)
		return nil, errors.Join(ErrDown, err)
	}
	return answer, nil
}
