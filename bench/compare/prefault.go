package main

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/shmring/memory"
	"github.com/ringcache/ringcache/shmring/segment"
)

// prefaultJob maps all pages of a segment that was just made. Making and removing it does not count.
type prefaultJob struct {
	peer     string
	prefault func(*segment.Segment) error
	size     int
}

func prefaulting(peer string, prefault func(*segment.Segment) error) func() Job {
	return func() Job { return &prefaultJob{peer: peer, prefault: prefault} }
}

func (j *prefaultJob) Peer() string { return j.peer }

func (j *prefaultJob) Prepare(c Case) error {
	j.size = c.Size
	return nil
}

func (j *prefaultJob) Run(n int) (times []float64, err error) {
	for range n {
		s, err := segment.Create(segment.Options{Name: segmentName(), RingSize: j.size})
		if err != nil {
			return nil, err
		}
		began := time.Now()
		err = j.prefault(s)
		times = append(times, float64(time.Since(began)))
		if e := s.Destroy(); err == nil {
			err = e
		}
		if err != nil {
			return nil, err
		}
	}
	return times, nil
}

func (*prefaultJob) Close() error { return nil }

// prepare is ours.
func prepare(s *segment.Segment) error {
	_, err := s.Prepare(context.Background(), memory.Options{Prefault: true, Require: true})
	return err
}

// touch is a goroutine that writes a byte of every page, as one would do it by hand.
func touch(s *segment.Segment) error {
	ring := s.Ring()
	for at := 0; at < len(ring); at += 4096 {
		ring[at] = 0
	}
	return nil
}

// populate is one thread that asks the kernel for all pages at once.
func populate(s *segment.Segment) error { return unix.Madvise(s.Ring(), unix.MADV_POPULATE_WRITE) }
