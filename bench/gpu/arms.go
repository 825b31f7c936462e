package main

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/pin/cuda"
)

// cell is one point of the sweep.
type cell struct {
	Size   int `json:"size"`   // bytes of a payload
	Offset int `json:"offset"` // bytes between a page's begin and the payload
	Batch  int `json:"batch"`  // copies that are submitted before the first wait
}

// timings are the rounds of one arm in one cell, in nanoseconds.
type timings struct {
	Submit []float64 `json:"submit_ns"` // until the last call that submits has returned
	Total  []float64 `json:"total_ns"`  // until the last byte is on the device
}

// arm is one way of bytes to the device.
type arm interface {
	name() string
	// measure copies once into poisoned memory and compares, then times the given number of rounds.
	measure(c cell, rounds int) (timings, error)
}

// goArm copies from a mapping by package pin/cuda.
type goArm struct {
	label  string
	driver *cuda.Driver
	source []byte
	target *target
	turn   int
}

func (a *goArm) name() string { return a.label }

func (a *goArm) measure(c cell, rounds int) (t timings, err error) {
	s := slotsOf(len(a.source), c.Size)
	if err := a.target.check(s.at(a.source, c.Offset, a.next())); err != nil {
		return t, err
	}
	copies := make([]*cuda.Copy, 0, c.Batch)
	for range rounds {
		copies = copies[:0]
		begin := time.Now()
		for range c.Batch {
			copied, err := a.driver.Copy(a.target.memory, 0, s.at(a.source, c.Offset, a.next()))
			if err != nil {
				return t, errors.Join(err, spin(copies)) // or they would keep the ring
			}
			copies = append(copies, copied)
		}
		submitted := time.Since(begin)
		if err := spin(copies); err != nil {
			return t, err
		}
		t.Total = append(t.Total, float64(time.Since(begin)))
		t.Submit = append(t.Submit, float64(submitted))
	}
	return t, nil
}

// next returns the number of the slot after the last one.
func (a *goArm) next() int {
	a.turn++
	return a.turn
}

// spin waits as PyTorch's events do by default: Copy.Wait sleeps, and notices the end later.
func spin(copies []*cuda.Copy) (err error) {
	for _, c := range copies {
		for {
			done, failed := c.Done()
			err = errors.Join(err, failed)
			if done || failed != nil {
				break
			}
		}
	}
	return err
}

// target is memory of the device, with what is needed to check the bytes that were copied there.
type target struct {
	driver *cuda.Driver
	memory *cuda.Memory
	poison []byte // never what a payload is
	back   []byte
}

func newTarget(d *cuda.Driver, size int) (*target, error) {
	t := &target{driver: d, back: make([]byte, size)}
	var err error
	if t.poison, err = anonymous(size); err != nil {
		return nil, err
	}
	for i := range t.poison {
		t.poison[i] = 0xA5
	}
	if t.memory, err = d.Alloc(size); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *target) close() error {
	if err := t.memory.Free(); err != nil {
		return err
	}
	return unix.Munmap(t.poison)
}

// check copies source to the poisoned device memory, and compares every byte of the copy.
func (t *target) check(source []byte) error {
	for _, m := range [][]byte{t.poison[:len(source)], source} {
		copied, err := t.driver.Copy(t.memory, 0, m)
		if err != nil {
			return err
		}
		if err := copied.Wait(); err != nil {
			return err
		}
	}
	back := t.back[:len(source)]
	if err := t.driver.Read(back, t.memory, 0); err != nil {
		return err
	}
	if !bytes.Equal(back, source) {
		return fmt.Errorf("a copy of %d bytes is damaged", len(source))
	}
	return nil
}
