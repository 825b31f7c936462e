package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// copied is what one arm took in one cell.
type copied struct {
	Arm string `json:"arm"`
	cell
	Bytes     int     `json:"bytes"` // of a round
	Submit    summary `json:"submit"`
	Total     summary `json:"total"`
	Bandwidth float64 `json:"gb_per_s"` // by the median round
}

// measureCopies times every arm in every cell. The arms take turns, and every second repetition goes through
// them backwards.
func (b *bench) measureCopies(ctx context.Context) (err error) {
	largest := slices.Max(b.sizes())
	size := ringSize(b.RingMiB*mib, largest)
	r, err := newRing(ctx, b.driver, size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	t, err := newTarget(b.driver, largest)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	arms := []arm{
		&goArm{label: goRegistered, driver: b.driver, source: r.reader.Bytes(), target: t},
		&goArm{label: goUnregistered, driver: b.driver, source: r.writer.Bytes(), target: t},
	}
	if err := b.observeLink(ctx, arms[0], largest); err != nil {
		return err
	}
	p, err := b.startPeer(ctx, r, largest)
	if err != nil {
		return err
	}
	if p != nil {
		defer func() { err = errors.Join(err, p.close()) }()
		arms = append(arms, p.arms()...)
	}
	if err := b.sweep(ctx, arms); err != nil {
		return err
	}
	b.report.derive()
	return b.measureOverlap(ctx, p)
}

func (b *bench) sweep(ctx context.Context, arms []arm) error {
	submit, total := map[string][][]float64{}, map[string][][]float64{}
	for repetition := range b.Repetitions {
		order := slices.Clone(arms)
		if repetition%2 == 1 {
			slices.Reverse(order)
		}
		for _, c := range b.cells() {
			for _, a := range order {
				if err := ctx.Err(); err != nil {
					return err
				}
				if !measures(a.name(), c) {
					continue
				}
				b.progress("repetition %d: %s, offset %d, %d at once: %s", repetition+1, bytesText(c.Size), c.Offset, c.Batch, a.name())
				t, err := a.measure(c, b.rounds(c))
				if err != nil {
					return err
				}
				key := fmt.Sprint(a.name(), c)
				submit[key] = append(submit[key], t.Submit)
				total[key] = append(total[key], t.Total)
			}
		}
	}
	for _, c := range b.cells() {
		for _, a := range arms {
			key := fmt.Sprint(a.name(), c)
			if len(total[key]) == 0 {
				continue
			}
			row := copied{Arm: a.name(), cell: c, Bytes: c.Size * c.Batch, Submit: summarise(submit[key]), Total: summarise(total[key])}
			row.Bandwidth = gigabytes(row.Bytes, row.Total.Median)
			b.report.Copies = append(b.report.Copies, row)
		}
	}
	return nil
}

// cells are single copies of every size and offset, and batches without an offset.
func (b *bench) cells() (all []cell) {
	for _, size := range b.sizes() {
		for _, offset := range []int{0, 8, 12} {
			all = append(all, cell{Size: size, Offset: offset, Batch: 1})
		}
		all = append(all, cell{Size: size, Batch: batch})
	}
	return all
}

// batch is the number of copies that are submitted back to back.
const batch = 32

// measures reports whether an arm is timed in a cell. A batch by vLLM's path would be as many pinned buffers.
func measures(arm string, c cell) bool { return c.Batch == 1 || !isReceiver(arm) }

// sizes are those of the sweep and those of the way to the device, in bytes.
func (b *bench) sizes() (all []int) {
	for _, k := range slices.Concat(b.KiB, b.ObjectKiB) {
		all = append(all, k*kib)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// rounds are as many as copy a GiB, but enough for a median and not more than a p99 needs.
func (b *bench) rounds(c cell) int {
	most, least := 200, 20
	if c.Batch > 1 {
		most, least = 20, 3
	}
	if b.Quick {
		most, least = 10, 2
	}
	return min(max(gib/(c.Size*c.Batch), least), most)
}

// observeLink reads the PCIe link while copies go on: an idle link is slower.
func (b *bench) observeLink(ctx context.Context, a arm, size int) error {
	if !b.report.Machine.Real {
		b.report.leaveOut("PCIe link under load", "the driver is not real")
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	loaded, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(ended)
		for i := 0; ctx.Err() == nil; i++ {
			if i == 20 { // some seconds of copies: the link has risen
				close(loaded)
			}
			if _, err := a.measure(cell{Size: size, Batch: batch}, 1); err != nil {
				ended <- err
				return
			}
		}
	}()
	select {
	case <-loaded:
	case err := <-ended:
		return err
	}
	link, err := querySMI(b.Device, "pcie.link.gen.current", "pcie.link.width.current", "pcie.link.gen.max", "pcie.link.width.max")
	cancel()
	if err != nil {
		b.report.leaveOut("PCIe link under load", err.Error())
	}
	b.report.Machine.Link = link
	return <-ended
}
