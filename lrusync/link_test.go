package lrusync_test

import (
	"context"
	"encoding/gob"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// link is the frontend's side of the socket. With rnd it loses some requests
// and lets others overtake each other.
type link struct {
	mu      sync.Mutex
	out     *gob.Encoder
	rnd     *rand.Rand
	held    *wireRequest // to be overtaken
	flying  int          // requests that will be answered
	waiting map[uint64]chan wireReply
	last    uint64

	dropped, swapped int
}

// startReceiver starts the other process, which the test reaps at its end.
func startReceiver(t *testing.T) *link {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	defer ln.Close()
	require.NoError(t, ln.SetDeadline(time.Now().Add(time.Minute)))
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, kill := context.WithTimeout(context.Background(), 5*time.Minute)
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), receiverAt+"="+path)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	conn, err := ln.Accept()
	if err != nil {
		kill()
		t.Fatalf("the receiver did not start: %v, %v", err, cmd.Wait())
	}
	l := &link{out: gob.NewEncoder(conn), waiting: map[uint64]chan wireReply{}}
	read := make(chan error)
	go func() { read <- l.read(conn) }()
	t.Cleanup(func() {
		defer kill()
		assert.NoError(t, conn.(*net.UnixConn).CloseWrite()) // go on, to leave no process behind
		assert.ErrorIs(t, <-read, io.EOF, "the receiver answers until it is told to end")
		assert.NoError(t, cmd.Wait())
		assert.NoError(t, conn.Close())
	})
	return l
}

// read hands out the answers. Who waits when the receiver is gone gets none.
func (l *link) read(conn net.Conn) error {
	in := gob.NewDecoder(conn)
	for {
		var a wireReply
		err := in.Decode(&a)
		l.mu.Lock()
		if err != nil {
			for _, w := range l.waiting {
				close(w)
			}
			clear(l.waiting)
			l.mu.Unlock()
			return err
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

func (l *link) write(q wireRequest) error {
	l.flying++
	return l.out.Encode(q)
}

// send returns where the answer will come; a channel that is closed without one
// stands for a client that gave up waiting.
func (l *link) send(q wireRequest) (<-chan wireReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	q.ID = l.last
	answer := make(chan wireReply, 1)
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
	if l.held != nil {
		l.swapped++
		err = errors.Join(err, l.write(*l.held))
		l.held = nil
	}
	return answer, err
}
