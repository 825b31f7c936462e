package main

import (
	"errors"
	"runtime"

	"github.com/ringcache/ringcache/objstore"
)

// liveJob works on a store with so many live objects: it puts another one, which evicts, or looks one up at
// random. Its notes are the bytes of heap of an object.
type liveJob struct {
	store
	hit     bool
	keys    []string // some of those that are there
	objects int
	heap    float64
}

func ourLive(hit bool) func() Job {
	return func() Job { return &liveJob{store: store{policy: oursPool}, hit: hit} }
}

func (j *liveJob) Peer() string { return j.policy }

// Prepare puts until the store is full: until a put does not make it longer.
func (j *liveJob) Prepare(c Case) error {
	before := heapBytes()
	if err := j.open(c.Size, objstore.Options{RingSize: c.RingBytes, MaxObjects: max(2*c.Live, 1024)}); err != nil {
		return err
	}
	j.objects = c.Live
	for range c.Live {
		if err := j.put(); err != nil {
			return err
		}
	}
	j.heap = (heapBytes() - before) / float64(c.Live)
	if j.hit {
		const asked = 4096
		for i := range min(asked, c.Live) { // spread over all
			j.keys = append(j.keys, keyOf(1+int(uint64(i)*2654435761%uint64(c.Live))))
		}
		return nil
	}
	for held := -1; held != j.Len(); { // full
		held = j.Len()
		for range 64 {
			if err := j.put(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j *liveJob) Len() int {
	s, err := j.Stats()
	if err != nil {
		return 0
	}
	return int(s.Objects)
}

func (j *liveJob) Run(n int) ([]float64, error) {
	if j.hit {
		return timed(n, j.look, j.settle)
	}
	return timed(n, j.put, j.settle)
}

func (j *liveJob) put() error {
	key, id := j.nextKey()
	h, err := putFinished(j.Store, key, id, j.item)
	j.unread = append(j.unread[:0], h)
	return err
}

func (j *liveJob) look() error {
	j.made++
	request, err := j.Begin("request")
	if err != nil {
		return err
	}
	_, err = request.Lookup(j.keys[j.made%len(j.keys)])
	if err := errors.Join(err, request.Commit()); err != nil {
		return err
	}
	request.Finish()
	return nil
}

func (j *liveJob) Notes() map[string]float64 {
	return map[string]float64{"heap_bytes_per_object": j.heap}
}

func heapBytes() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
