package main

import "errors"

// Case is one row of a comparison: what is done, and how large everything is.
type Case struct {
	Job string `json:"job"`
	// Size is the bytes of the object: pixel_values of an item, or the file that is hashed, or the
	// segment that is prefaulted.
	Size int `json:"size"`
	// Ring names the ring: "warm" has room for eight objects and at least 1 MiB; "cold" is larger than the
	// processor's caches should keep. RingBytes is what that is here.
	Ring      string `json:"ring,omitempty"`
	RingBytes int    `json:"ring_bytes,omitempty"`
	// Live is the number of objects in the store, Goroutines the number that work at once.
	Live       int `json:"live,omitempty"`
	Goroutines int `json:"goroutines,omitempty"`
}

// Job is the work of a case as one peer does it. The jobs of one case do the same work;
// docs/performance.md lists the steps of each.
type Job interface {
	// Peer is the name of its column.
	Peer() string
	// Prepare makes what the work needs. Its time does not count.
	Prepare(c Case) error
	// Run does the work n times and returns times in nanoseconds: that of each, or a single one, their mean,
	// where reading the clock each time would take too long beside the work.
	Run(n int) ([]float64, error)
	// Close gives everything back, also after a Prepare that failed.
	Close() error
}

// noter is a Job that has figures besides times, such as bytes of heap. They are read after the last Run.
type noter interface{ Notes() map[string]float64 }

// errUnavailable is wrapped by the error of a Prepare whose peer is not on this machine. The peer is left
// out, with the error as the reason; any other error ends the program.
var errUnavailable = errors.New("not available")
