package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/zmq"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// ourLink puts objects into a pool and sends their addresses over a ZeroMQ socket, as package engine does.
// The receiver is a Python worker with our reader.
type ourLink struct {
	store
	delivery bool // time counts from the commit on
	socket   engine.Socket
	worker   string
	request  objstore.Request // of the object that was sent last
}

// deliver is the ZeroMQ socket and our reader.
func deliver() maker {
	return over(oursPython, "receive", func(*environment) link { return &ourLink{store: store{policy: oursPool}} })
}

func (l *ourLink) open(c Case, folder string) (map[string]any, error) {
	l.delivery = c.Job == "delivery"
	if err := l.store.open(c.Size, objstore.Options{RingSize: c.RingBytes}); err != nil {
		return nil, err
	}
	var err error
	if l.socket, err = (zmq.Transport{}).Router("ipc://"+filepath.Join(folder, "socket"), 0); err != nil {
		return nil, err
	}
	return map[string]any{"way": "ours", "endpoint": l.socket.Endpoint(), "name": l.Name()}, nil
}

func (l *ourLink) accept() error {
	m, err := l.socket.Recv(context.Background())
	l.worker = m.Peer
	return err
}

func (l *ourLink) send() (began int64, err error) {
	key, id := l.nextKey()
	began = now()
	request, err := l.Begin(id)
	if err != nil {
		return 0, err
	}
	r, err := request.Reserve(key, l.item, objstore.PutOptions{}) // copies what has data
	if err != nil {
		return 0, err
	}
	h, err := r.Commit()
	if err != nil {
		return 0, err
	}
	if l.delivery {
		began = now()
	}
	frame, err := serde.EncodeAddress(h, "image", serde.Options{})
	if err != nil {
		return 0, err
	}
	l.request = request
	return began, errors.Join(request.Commit(), l.socket.Send(l.worker, []byte(key), frame))
}

func (l *ourLink) answer() (int64, error) {
	m, err := l.socket.Recv(context.Background())
	if err != nil {
		return 0, err
	}
	if m.Gone {
		return 0, errors.Join(errEnded, m.Err)
	}
	if len(m.Frames[0]) != 8 {
		return 0, fmt.Errorf("the worker's answer has %d bytes instead of 8", len(m.Frames[0]))
	}
	l.request.Finish()
	return int64(binary.LittleEndian.Uint64(m.Frames[0])), nil
}

func (l *ourLink) Close() (err error) {
	if l.worker != "" {
		err = l.socket.Send(l.worker, []byte{}) // nothing follows
	}
	if l.socket != nil {
		// The receiver answers, so that the socket is not closed before it has the message.
		if err == nil && l.worker != "" {
			_, err = l.socket.Recv(context.Background())
		}
		err = errors.Join(err, l.socket.Close())
	}
	return errors.Join(err, l.store.Close())
}

// readerJob is a worker in Python with our reader, on objects of this process: from the bytes of an address
// item to the first byte of each tensor, read in place.
type readerJob struct {
	remote
	store
}

func pythonReader() maker {
	return maker{make: func(e *environment) Job {
		return &readerJob{remote: remote{peer: oursPython, env: e}, store: store{policy: oursPool}}
	}}
}

func (j *readerJob) Prepare(c Case) error {
	if err := j.open(c.Size, objstore.Options{RingSize: c.RingBytes}); err != nil {
		return err
	}
	j.more = map[string]any{"name": j.Name()}
	return j.prepare("reader", c)
}

// Run looks n times at a batch of new objects, in turn: our reader in Python remembers nothing of a handle.
func (j *readerJob) Run(n int) ([]float64, error) {
	sent, err := j.sendNew(min(n, batch))
	if err != nil {
		return nil, err
	}
	var keys, frames []string
	for _, d := range sent {
		keys, frames = append(keys, d.key), append(frames, fmt.Sprintf("%x", d.frames[0]))
	}
	a, err := j.call(map[string]any{"op": "run", "n": n, "keys": keys, "frames": frames})
	return a.Samples, err
}

func (j *readerJob) Close() error { return errors.Join(j.remote.Close(), j.store.Close()) }
