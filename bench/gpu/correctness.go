package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringcache/ringcache/pin/cuda"
)

// correct is a run in which a writer reuses every slot as soon as the copy from it is done.
type correct struct {
	Seconds float64 `json:"seconds"`
	Slots   int     `json:"slots"`
	Size    int     `json:"size"`
	Copies  int     `json:"copies"` // each compared byte by byte
	Bytes   int     `json:"bytes"`
	Damaged int     `json:"damaged"` // copies with a wrong byte
	First   string  `json:"first_damage,omitempty"`
}

// payload is what the writer put into a slot.
type payload struct {
	slot int
	seed uint64 // different for every fill
}

// inFlight is the number of copies that go on at once.
const inFlight = 4

// measureCorrectness copies from the registered mapping of a ring while a goroutine fills slots at full
// speed through the other mapping, as another process would.
func (b *bench) measureCorrectness(ctx context.Context) (err error) {
	size := b.CorrectnessKiB * kib
	s := slotsOf(0, size)
	s.count = 4 * inFlight
	r, err := newRing(ctx, b.driver, s.count*s.stride)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	device, err := b.driver.Alloc(inFlight * size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Free()) }()

	free, filled := make(chan int, s.count), make(chan payload, s.count)
	for slot := range s.count {
		free <- slot
	}
	go func() {
		defer close(filled)
		var sequence uint64
		for slot := range free {
			sequence++
			p := payload{slot, sequence}
			fill(s.at(r.writer.Bytes(), offsetOf(slot), slot), p.seed)
			filled <- p
		}
	}()
	defer func() {
		close(free)
		for range filled { // until the writer has ended
		}
	}()

	c := &correct{Slots: s.count, Size: size}
	b.report.Correct = c
	run := &copying{b.driver, device, r.reader.Bytes(), s, make([]byte, size), free, c}
	begin := time.Now()
	var pending []pendingCopy
	for ; time.Since(begin) < b.Correctness && ctx.Err() == nil; c.Copies++ {
		if len(pending) == inFlight {
			if err := run.finish(pending[0]); err != nil {
				return err
			}
			pending = pending[1:]
		}
		f, err := run.start(<-filled, c.Copies%inFlight)
		if err != nil {
			return err
		}
		pending = append(pending, f)
	}
	for _, f := range pending {
		if err := run.finish(f); err != nil {
			return err
		}
	}
	c.Seconds, c.Bytes = time.Since(begin).Seconds(), c.Copies*size
	if c.Damaged > 0 {
		return fmt.Errorf("%d of %d copies are damaged: %s", c.Damaged, c.Copies, c.First)
	}
	return ctx.Err()
}

// offsetOf returns an offset for the payload of a slot: different slots have different ones.
func offsetOf(slot int) int { return []int{0, 8, 12}[slot%3] }

// copying is what start and finish share.
type copying struct {
	driver *cuda.Driver
	device *cuda.Memory
	ring   []byte
	slots  slots
	back   []byte
	free   chan<- int
	result *correct
}

// pendingCopy is a copy that has started.
type pendingCopy struct {
	payload
	copied *cuda.Copy
	at     int // in the device's memory
}

func (c *copying) start(p payload, region int) (pendingCopy, error) {
	at := region * c.slots.size
	copied, err := c.driver.Copy(c.device, at, c.slots.at(c.ring, offsetOf(p.slot), p.slot))
	return pendingCopy{p, copied, at}, err
}

// finish waits for the copy, returns the slot to the writer, and only then compares the copied bytes: a copy
// that is not complete would be overwritten by the writer.
func (c *copying) finish(f pendingCopy) error {
	if err := f.copied.Wait(); err != nil {
		return err
	}
	c.free <- f.slot
	if err := c.driver.Read(c.back, c.device, f.at); err != nil {
		return err
	}
	if at := differs(c.back, f.seed); at >= 0 {
		if c.result.Damaged++; c.result.Damaged == 1 {
			c.result.First = fmt.Sprintf("slot %d, byte %d of %d", f.slot, at, c.slots.size)
		}
	}
	return nil
}
