package main

import (
	"strconv"

	"github.com/ringcache/ringcache/objstore"
)

// repeatJob is a request with an image that is there: Begin of a request that has ended, Lookup,
// AppendAddress, Commit, Finish.
type repeatJob struct {
	store
	keys, ids []string
	asked     int
}

func ourRepeat(policy string) func() Job {
	return func() Job { return &repeatJob{store: store{policy: policy}} }
}

func (j *repeatJob) Peer() string { return j.policy }

func (j *repeatJob) Prepare(c Case) error {
	if err := j.open(c.Size, objstore.Options{RingSize: c.RingBytes}); err != nil {
		return err
	}
	for range c.Live {
		key, id := j.nextKey()
		h, err := putFinished(j.Store, key, id, j.item)
		if err != nil {
			return err
		}
		j.unread = append(j.unread, h)
		j.keys = append(j.keys, key)
		j.ids = append(j.ids, "request-"+strconv.Itoa(len(j.ids)))
	}
	return j.settle()
}

func (j *repeatJob) Run(n int) ([]float64, error) { return timed(n, j.once, j.settle) }

func (j *repeatJob) once() error {
	j.asked++
	at := j.asked % len(j.keys)
	request, err := j.begin(j.ids[at])
	if err != nil {
		return err
	}
	h, err := request.Lookup(j.keys[at])
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
