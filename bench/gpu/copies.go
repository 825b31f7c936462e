package main

import (
	"context"
	"errors"
	"slices"

	"github.com/ringcache/ringcache/bench/internal/stats"
)

// copied is what one arm took in one cell.
type copied struct {
	point
	Bytes     int           `json:"bytes"` // of a round
	Submit    stats.Summary `json:"submit"`
	Total     stats.Summary `json:"total"`
	Bandwidth float64       `json:"gb_per_s"` // by the median round
}

// measureCopies times every arm in every cell.
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
		defer func() { err = errors.Join(err, p.Close()) }()
		arms = append(arms, p.arms()...)
	}
	err = b.sweep(ctx, arms)
	b.report.derive()
	if err != nil || p == nil {
		return err
	}
	return b.measureOverlap(ctx, p)
}

// point is what is measured at once.
type point struct {
	Arm string `json:"arm"`
	cell
}

func (b *bench) sweep(ctx context.Context, arms []arm) error {
	byName := map[string]arm{}
	var points []point
	for _, c := range b.cells() {
		for _, a := range arms {
			byName[a.name()] = a
			if c.Batch == 1 || !isReceiver(a.name()) { // a batch of those would be as many pinned buffers
				points = append(points, point{a.name(), c})
			}
		}
	}
	submit, total := map[point][][]float64{}, map[point][][]float64{}
	err := inTurns(ctx, b, points, func(p point) error {
		t, err := byName[p.Arm].measure(p.cell, b.rounds(p.cell))
		if err != nil {
			return err
		}
		submit[p], total[p] = append(submit[p], t.Submit), append(total[p], t.Total)
		return nil
	})
	for _, p := range points {
		if total[p] == nil {
			continue
		}
		row := copied{point: p, Bytes: p.Size * p.Batch, Submit: stats.Summarise(submit[p]),
			Total: stats.Summarise(total[p])}
		row.Bandwidth = stats.Gigabytes(row.Bytes, row.Total.Median)
		b.report.Copies = append(b.report.Copies, row)
	}
	return err
}

// cells are single copies of every size and offset, and batches without an offset; for the sizes of objects
// alone, single copies without an offset.
func (b *bench) cells() (all []cell) {
	for _, size := range b.sizes() {
		all = append(all, cell{Size: size, Batch: 1})
		if slices.Contains(b.KiB, size/kib) {
			all = append(all, cell{Size: size, Offset: 8, Batch: 1}, cell{Size: size, Offset: 12, Batch: 1},
				cell{Size: size, Batch: batch})
		}
	}
	return all
}

// batch is the number of copies that are submitted back to back.
const batch = 32

// sizes are those of the sweep and those of an object on its way, in bytes.
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
	if doubt := b.report.Machine.Doubt; doubt != "" {
		b.report.leaveOut("PCIe link under load", doubt)
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
	link, err := b.report.Machine.querySMI("pcie.link.gen.current", "pcie.link.width.current", "pcie.link.gen.max",
		"pcie.link.width.max")
	cancel()
	if err != nil {
		b.report.leaveOut("PCIe link under load", err.Error())
	}
	b.report.Machine.Link = link
	return <-ended
}
