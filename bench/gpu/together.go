package main

import (
	"context"
	"errors"
	"os"

	"github.com/ringcache/ringcache/bench/internal/process"
	"github.com/ringcache/ringcache/bench/internal/stats"
)

// together is what several processes took that registered the same file at once.
type together struct {
	Processes int           `json:"processes"`
	Lock      bool          `json:"lock"` // each took the file's lock around its call
	Size      int           `json:"size"`
	Wait      stats.Summary `json:"wait"`     // for the lock
	Register  stats.Summary `json:"register"` // of one process
	// Codes counts the registrations by the driver's code: 0 is success, 1 is what
	// processes cause each other.
	Codes map[int]int `json:"codes"`
}

// measureTogether registers one file in several processes, with and without a lock.
func (b *bench) measureTogether(ctx context.Context) error {
	size := b.TogetherMiB * mib
	if err := room(size); err != nil {
		b.report.leaveOut("several processes", err.Error())
		return nil
	}
	type point struct {
		Processes int
		Lock      bool
	}
	var points []point
	for _, n := range b.Processes {
		points = append(points, point{n, false}, point{n, true})
	}
	codes, wait, register := map[point]map[int]int{}, map[point][][]float64{}, map[point][][]float64{}
	err := inTurns(ctx, b, points, func(p point) error {
		answers, err := b.pinTogether(ctx, p.Processes, size, p.Lock)
		if err != nil {
			return err
		}
		if codes[p] == nil {
			codes[p] = map[int]int{}
		}
		var waited, registered []float64
		for _, a := range answers {
			codes[p][a.Code]++
			waited, registered = append(waited, a.Wait), append(registered, a.Register)
		}
		wait[p], register[p] = append(wait[p], waited), append(register[p], registered)
		return nil
	})
	for _, p := range points {
		if register[p] == nil {
			continue
		}
		b.report.Together = append(b.report.Together, together{
			Processes: p.Processes, Lock: p.Lock, Size: size, Codes: codes[p], Wait: stats.Summarise(wait[p]),
			Register: stats.Summarise(register[p]),
		})
	}
	return err
}

func (b *bench) pinTogether(ctx context.Context, n, size int, lock bool) (answers []childAnswer, err error) {
	path, err := makeFile(size, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(path)) }()
	var all []*process.Process
	defer func() {
		for _, p := range all {
			err = errors.Join(err, p.Close())
		}
	}()
	for range n {
		p, err := b.startChild(ctx, path, lock)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	for _, p := range all {
		if err := p.Send("register"); err != nil {
			return nil, err
		}
	}
	answers = make([]childAnswer, n)
	for i, p := range all {
		if err := p.Receive(&answers[i]); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// contextCost is the device memory of a process that registers and does nothing else.
type contextCost struct {
	Before int `json:"used_before_mib"`
	During int `json:"used_during_mib"`
	Cost   int `json:"cost_mib"`
}

// measureContext compares the device's memory in use, as nvidia-smi reports it, without and with such a
// process.
func (b *bench) measureContext(ctx context.Context) (err error) {
	const what = "memory of a context"
	if doubt := b.report.Machine.Doubt; doubt != "" {
		b.report.leaveOut(what, doubt)
		return nil
	}
	cost := &contextCost{}
	if cost.Before, err = b.report.Machine.usedMiB(); err != nil {
		b.report.leaveOut(what, err.Error())
		return nil
	}
	path, err := makeFile(16*mib, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(path)) }()
	p, err := b.startChild(ctx, path, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	var a childAnswer
	if err := errors.Join(p.Send("register"), p.Receive(&a)); err != nil {
		return err
	}
	if a.Code != 0 {
		return errors.New(a.Error)
	}
	if cost.During, err = b.report.Machine.usedMiB(); err != nil {
		return err
	}
	cost.Cost = cost.During - cost.Before
	b.report.Context = cost
	return nil
}
