package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// workerJob is a worker in Go: from the bytes of an address item to the tensors, which are read in place, and
// the count of the read. The first look at an object is a job of its own, since the reader may remember what
// it saw.
type workerJob struct {
	store
	peer   string
	reader *objstore.Reader
	view   objstore.View // used again
	ready  []delivered
	sum    byte
}

// delivered is what a worker gets.
type delivered struct {
	key    string
	frames [][]byte
}

func ourWorker(peer string) func() Job {
	return func() Job { return &workerJob{store: store{policy: oursPool}, peer: peer} }
}

func (j *workerJob) Peer() string { return j.peer }

func (j *workerJob) Prepare(c Case) (err error) {
	if err := j.open(c.Size, objstore.Options{RingSize: c.RingBytes}); err != nil {
		return err
	}
	j.reader, err = objstore.Open(j.Name(), objstore.ReaderOptions{RingSize: c.RingBytes, Readers: 1,
		Lock: make(freeLock, 1)})
	return err
}

// Run puts objects outside of the clock: a batch of new ones before the first looks, or a single one.
func (j *workerJob) Run(n int) ([]float64, error) {
	if j.peer == oursSeen {
		if len(j.ready) == 0 {
			if err := j.deliver(1); err != nil {
				return nil, err
			}
			return []float64{0}, j.look(j.ready[0])
		}
		return timed(n, func() error { return j.look(j.ready[0]) }, func() error { return nil })
	}
	if err := j.deliver(batch); err != nil {
		return nil, err
	}
	return timed(n, func() error {
		d := j.ready[0]
		j.ready = j.ready[1:]
		return j.look(d)
	}, func() error { return j.deliver(batch) })
}

// deliver makes n new objects, and what a worker gets of them.
func (j *workerJob) deliver(n int) (err error) {
	j.ready, err = j.sendNew(n)
	return err
}

// sendNew ends the requests of its last call and puts n new objects for new ones, which keep them until the
// next call. It returns what a worker gets.
func (s *store) sendNew(n int) (all []delivered, err error) {
	for _, r := range s.sent {
		r.Finish()
	}
	s.sent = s.sent[:0]
	for range n {
		key, id := s.nextKey()
		request, h, err := putSent(s.Store, key, id, s.item)
		if err != nil {
			return nil, err
		}
		s.sent = append(s.sent, request)
		frame, err := serde.EncodeAddress(h, "image", serde.Options{})
		if err != nil {
			return nil, err
		}
		all = append(all, delivered{key, [][]byte{frame}})
	}
	return all, nil
}

func (j *workerJob) look(d delivered) error {
	h, ok, err := serde.DecodeAddress(d.frames, serde.Options{})
	if err != nil || !ok {
		return errors.Join(err, fmt.Errorf("an address: %t", ok))
	}
	if err := j.reader.GetInto(&j.view, d.key, h); err != nil {
		return err
	}
	for i := range j.view.Item().Elems {
		j.sum += tensorOf(j.view.Item(), i).Data[0]
	}
	return j.view.Release()
}

func (j *workerJob) Close() error {
	if j.reader == nil {
		return j.store.Close()
	}
	return errors.Join(j.reader.Close(), j.store.Close())
}

// freeLock is a lock without contention, as that of the peer.
type freeLock chan struct{}

func (l freeLock) Lock(context.Context) error { l <- struct{}{}; return nil }
func (l freeLock) Unlock() error              { <-l; return nil }
