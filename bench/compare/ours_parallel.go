package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// parallelJob puts new objects from several goroutines at once. Its time is that of all of them by the number of
// objects: less is more throughput.
type parallelJob struct {
	store
	items []*serde.Item // one for each goroutine
	round int
}

func ourParallel() Job { return &parallelJob{store: store{policy: oursPool}} }

func (j *parallelJob) Peer() string { return j.policy }

func (j *parallelJob) Prepare(c Case) error {
	if err := j.open(c.Size, objstore.Options{RingSize: c.RingBytes}); err != nil {
		return err
	}
	for range c.Goroutines {
		j.items = append(j.items, qwenItem(c.Size))
	}
	return j.fill(c, func() error {
		key, id := j.nextKey()
		_, err := putFinished(j.Store, key, id, j.item)
		return err
	})
}

func (j *parallelJob) Run(n int) ([]float64, error) {
	j.round++
	return together(len(j.items), n, func(worker, i int) error {
		name := fmt.Sprintf("%d-%d-%d", j.round, worker, i)
		_, err := putFinished(j.Store, "key-"+name, "request-"+name, j.items[worker])
		return err
	})
}

// together does work in several goroutines, at least n times in all, and returns the time by the number of times.
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

func parallelCopy() Job { return &copyJob{limit: limit{peer: "limit: copy"}} }

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
