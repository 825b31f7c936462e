package main

import (
	"context"
	"errors"
)

// control is the negative control: the slot is overwritten before the copy's event. If the comparison did not
// find that, its silence in the other runs would mean nothing.
type control struct {
	Size   int `json:"size"`
	Tries  int `json:"tries"`
	Caught int `json:"caught"`
}

var errNotCaught = errors.New("a slot was overwritten before its copy was done, and the comparison found nothing: the copies end too soon for this check, or it is broken")

// measureControl overwrites a slot from its end, so that the device, which begins at the front, meets
// what is new.
func (b *bench) measureControl(ctx context.Context) (err error) {
	const tries = 5
	size := b.ControlMiB * mib
	r, err := newRing(ctx, b.driver, size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	device, err := b.driver.Alloc(size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Free()) }()

	c := &control{Size: size}
	b.report.Control = c
	slot, back, other := r.writer.Bytes(), make([]byte, size), make([]byte, min(size, mib))
	for ; c.Tries < tries; c.Tries++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		seed := uint64(c.Tries + 1)
		fill(slot, seed)
		copied, err := b.driver.Copy(device, 0, r.reader.Bytes())
		if err != nil {
			return err
		}
		for end := size; end > 0; end -= len(other) {
			copy(slot[end-len(other):end], other)
		}
		if err := copied.Wait(); err != nil {
			return err
		}
		if err := b.driver.Read(back, device, 0); err != nil {
			return err
		}
		if differs(back, seed) >= 0 {
			c.Caught++
		}
	}
	if c.Caught == 0 {
		return errNotCaught
	}
	return nil
}
