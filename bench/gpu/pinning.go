package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/bench/internal/stats"
	"github.com/ringcache/ringcache/pin"
)

// pinning is the time of registering memory of one size in one state.
type pinning struct {
	Size       int           `json:"size"`
	State      string        `json:"state"`
	Call       int           `json:"bytes_per_call"`
	Register   stats.Summary `json:"register"`
	Unregister stats.Summary `json:"unregister"`
	PerGiB     float64       `json:"register_s_per_gib"`
}

// pageStates are how far the pages of a file in shared memory exist before they are registered.
var pageStates = []struct {
	name string
	// file and mapping are what is populated.
	file, mapping bool
}{
	{"file empty", false, false},
	{"file full, mapping untouched", true, false}, // a worker that has just attached
	{"mapping populated", true, true},             // what Segment.Pin sees to
}

// measurePinning times the registration itself, without what Segment.Pin does before.
func (b *bench) measurePinning(ctx context.Context) error {
	type point struct{ Size, State, Call int }
	var points []point
	for _, m := range b.PinMiB {
		size := m * mib
		if err := room(size); err != nil {
			b.report.leaveOut("pin time of "+bytesText(size), err.Error())
			continue
		}
		for state := range pageStates {
			points = append(points, point{size, state, size})
			if part := b.PinCallMiB * mib; part < size {
				points = append(points, point{size, state, part})
			}
		}
	}
	register, unregister := map[point][][]float64{}, map[point][][]float64{}
	err := inTurns(ctx, b, points, func(p point) error {
		r, u, err := b.pinOnce(p.Size, p.State, p.Call)
		if err != nil {
			return err
		}
		register[p], unregister[p] = append(register[p], []float64{r}), append(unregister[p], []float64{u})
		return nil
	})
	for _, p := range points {
		if register[p] == nil {
			continue
		}
		row := pinning{Size: p.Size, State: pageStates[p.State].name, Call: p.Call,
			Register: stats.Summarise(register[p]), Unregister: stats.Summarise(unregister[p])}
		row.PerGiB = row.Register.Median / 1e9 * gib / float64(p.Size)
		b.report.Pinning = append(b.report.Pinning, row)
	}
	return err
}

// pinOnce returns the nanoseconds of registering and of unregistering.
func (b *bench) pinOnce(size, state, call int) (register, unregister float64, err error) {
	path, err := makeFile(size, pageStates[state].file)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, os.Remove(path)) }()
	m, err := mapFile(path, pageStates[state].mapping)
	if err != nil {
		return 0, 0, err
	}
	var all []pin.Registration
	begin := time.Now()
	for part := range slices.Chunk(m, call) {
		r, err := b.driver.Register(part, pin.RegisterOptions{})
		if err != nil {
			return 0, 0, errors.Join(err, unmap(m, all))
		}
		all = append(all, r)
	}
	register = float64(time.Since(begin))
	begin = time.Now()
	for _, r := range all {
		err = errors.Join(err, r.Unregister())
	}
	unregister = float64(time.Since(begin))
	return register, unregister, errors.Join(err, unmap(m, all))
}

// unmap unmaps memory whose registrations ended; if one can't be ended, the memory stays mapped.
func unmap(m []byte, all []pin.Registration) error {
	for _, r := range all {
		if err := r.Unregister(); err != nil {
			return err
		}
	}
	return unix.Munmap(m)
}

// makeFile makes a file in shared memory that has its size, and no pages unless it is to be full.
func makeFile(size int, full bool) (path string, err error) {
	f, err := os.CreateTemp(sharedMemoryDir, fmt.Sprintf("%s%d-", filePrefix, os.Getpid()))
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err = f.Truncate(int64(size)); err == nil && full {
		var m []byte
		if m, err = mapFile(f.Name(), true); err == nil {
			err = unix.Munmap(m)
		}
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

func mapFile(path string, populate bool) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	m, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil || !populate {
		return m, err
	}
	if err := unix.Madvise(m, unix.MADV_POPULATE_WRITE); err != nil {
		return nil, errors.Join(fmt.Errorf("populating %s: %w", path, err), unix.Munmap(m))
	}
	return m, nil
}
