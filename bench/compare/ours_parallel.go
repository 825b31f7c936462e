package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// parallelJob puts new objects, or looks up ones that are there, from several goroutines at once. Its time is
// that of all of them by the number of objects: less is more throughput.
type parallelJob struct {
	store
	items []*serde.Item // one for each goroutine
	round int
	hit   bool
	known []string // the keys of the look-ups
}

func ourParallel(hit bool) func() Job {
	return func() Job { return &parallelJob{store: store{policy: oursPool}, hit: hit} }
}

func (j *parallelJob) Peer() string { return j.policy }

func (j *parallelJob) Prepare(c Case) error {
	if err := j.open(c.Size, objstore.Options{RingSize: c.RingBytes}); err != nil {
		return err
	}
	for range c.Goroutines {
		j.items = append(j.items, qwenItem(c.Size))
	}
	put := func() error {
		key, id := j.nextKey()
		if _, err := putFinished(j.Store, key, id, j.item); err != nil {
			return err
		}
		if j.hit {
			j.known = append(j.known, key)
		}
		return nil
	}
	if j.hit { // so few that all of them stay
		_, err := timed(known, put, j.settle)
		return err
	}
	return j.fill(c, put)
}

// known are the objects of the look-ups.
const known = 1000

func (j *parallelJob) Run(n int) ([]float64, error) {
	if j.hit {
		return together(len(j.items), n, func(worker, i int) error {
			return lookFinished(j.Store, j.known[i%known], requestIDs[worker])
		})
	}
	j.round++
	names := make([][]name, len(j.items)) // made before the clock starts
	for worker := range names {
		for i := range n/len(j.items) + 1 {
			text := fmt.Sprintf("%d-%d-%d", j.round, worker, i)
			names[worker] = append(names[worker], name{"key-" + text, "request-" + text})
		}
	}
	return together(len(j.items), n, func(worker, i int) error {
		_, err := putFinished(j.Store, names[worker][i].key, names[worker][i].id, j.items[worker])
		return err
	})
}

var requestIDs = []string{"request-0", "request-1", "request-2", "request-3"}

// together does work in several goroutines, at least n times in all, and returns the time by the number of
// times.
func together(goroutines, n int, work func(worker, i int) error) ([]float64, error) {
	each := (n + goroutines - 1) / goroutines
	errs := make(chan error, goroutines)
	var wait sync.WaitGroup
	began := time.Now()
	for worker := range goroutines {
		wait.Go(func() {
			for i := range each {
				if err := work(worker, i); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wait.Wait()
	spent := time.Since(began)
	select {
	case err := <-errs:
		return nil, err
	default:
		return []float64{float64(spent) / float64(each*goroutines)}, nil
	}
}

// copyJob is the limit of parallelJob: goroutines that copy, each into a part of its own of a ring.
type copyJob struct {
	limit
	parts [][]byte
}

func parallelCopy() Job { return &copyJob{limit: limit{peer: limitCopy}} }

func (j *copyJob) Prepare(c Case) error {
	if err := j.openRing(c); err != nil {
		return err
	}
	part := c.RingBytes / c.Goroutines
	for i := range c.Goroutines {
		j.parts = append(j.parts, j.segment.Ring()[i*part:(i+1)*part])
	}
	return nil
}

func (j *copyJob) Run(n int) ([]float64, error) {
	data := tensorOf(j.item, 0).Data
	return together(len(j.parts), n, func(worker, i int) error {
		part := j.parts[worker]
		copy(part[i%(len(part)/len(data))*len(data):], data)
		return nil
	})
}
