package main

import (
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// newJob is a request with an image that is new: Begin of a request that has ended, Put, AppendAddress,
// Commit, Finish.
type newJob struct{ store }

func ourNew(policy string) func() Job {
	return func() Job { return &newJob{store{policy: policy}} }
}

func (j *newJob) Peer() string { return j.policy }

func (j *newJob) Prepare(c Case) error {
	if err := j.open(c.Size, objstore.Options{RingSize: c.RingBytes}); err != nil {
		return err
	}
	return j.fill(c, j.once)
}

func (j *newJob) Run(n int) ([]float64, error) { return timed(n, j.once, j.settle) }

func (j *newJob) once() error {
	key, id := j.nextKey()
	request, err := j.begin(id)
	if err != nil {
		return err
	}
	h, err := request.Put(key, j.item, objstore.PutOptions{})
	if err != nil {
		return err
	}
	if err := j.encodeAddress(h); err != nil {
		return err
	}
	if err := request.Commit(); err != nil {
		return err
	}
	request.Finish()
	j.unread = append(j.unread, h)
	return nil
}

// encodeAddress makes the bytes that the engine gets in place of the item, in memory that is used again.
func (s *store) encodeAddress(h serde.Address) (err error) {
	s.frame, err = serde.AppendAddress(s.frame[:0], h, "image", serde.Options{})
	return err
}
