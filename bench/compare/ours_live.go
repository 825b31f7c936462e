package main

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/ringcache/ringcache/objstore"
)

// liveJob works on a store with so many live objects, which is full. Its notes are the bytes of heap of an
// object.
type liveJob struct {
	store
	once  func(*liveJob) error // what is timed
	keys  []string             // those that are there, of a look-up
	asked int
	heap  float64
}

func ourLive(once func(*liveJob) error) func() Job {
	return func() Job { return &liveJob{store: store{policy: oursPool}, once: once} }
}

func (j *liveJob) Peer() string { return j.policy }

func (j *liveJob) Prepare(c Case) error {
	before := heapBytes()
	if err := j.open(c.Size, objstore.Options{RingSize: c.RingBytes, MaxObjects: max(2*c.Live, 1024)}); err != nil {
		return err
	}
	if c.Job == "live-refused" {
		return j.holdAll()
	}
	for range c.Live {
		if err := j.put(); err != nil {
			return err
		}
	}
	if c.Live >= 1000 { // of fewer, what else is on the heap decides
		j.heap = (heapBytes() - before) / float64(c.Live)
	}
	if c.Job == "live-put" {
		return j.fillUp()
	}
	for i := range c.Live {
		j.keys = append(j.keys, keyOf(1+scattered(i, c.Live)))
	}
	return nil
}

// fillUp puts until the store does not grow any more.
func (j *liveJob) fillUp() error {
	for held := -1; ; {
		s, err := j.Stats()
		if err != nil || s.Objects == held {
			return err
		}
		held = s.Objects
		for range 64 {
			if err := j.put(); err != nil {
				return err
			}
		}
	}
}

// holdAll puts what fits, for one request that does not end.
func (j *liveJob) holdAll() error {
	request, err := j.Begin("holds everything")
	if err != nil {
		return err
	}
	for {
		key, _ := j.nextKey()
		if _, err := request.Put(key, j.item, objstore.PutOptions{}); errors.Is(err, objstore.ErrFull) {
			return request.Commit()
		} else if err != nil {
			return err
		}
	}
}

// scattered returns the i-th of n numbers in an order in which neighbours are far apart, so that the caches
// of the processor don't help. All of them come: of a few, all would soon be in these caches.
func scattered(i, n int) int { return i * 2654435761 % n }

func (j *liveJob) Run(n int) ([]float64, error) {
	return timed(n, func() error { return j.once(j) }, j.settle)
}

func (j *liveJob) put() error {
	key, id := j.nextKey()
	_, err := putFinished(j.Store, key, id, j.item)
	return err
}

func (j *liveJob) look() error {
	j.asked++
	return lookFinished(j.Store, j.keys[j.asked%len(j.keys)], "request")
}

func (j *liveJob) refused() error {
	if err := j.put(); !errors.Is(err, objstore.ErrFull) {
		return fmt.Errorf("a put into a store of which everything is needed: %w", err)
	}
	return nil
}

func (j *liveJob) stats() error {
	_, err := j.Stats()
	return err
}

func (j *liveJob) Notes() map[string]float64 {
	if j.heap == 0 {
		return nil
	}
	return map[string]float64{"heap_bytes_per_object": j.heap}
}

func heapBytes() float64 {
	for range 2 { // the first run lets finalizers free more
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
