package main

import (
	"errors"
	"time"
)

// watcher samples what everything takes.
type watcher struct {
	levels *levels
	report *report
}

// during samples ten times a second while work runs, and once after it.
func (w *watcher) during(work func() error) error {
	done, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		var err error
		for {
			err = errors.Join(err, w.sample())
			select {
			case <-done:
				stopped <- errors.Join(err, w.sample())
				return
			case <-tick.C:
			}
		}
	}()
	err := work()
	close(done)
	return errors.Join(err, <-stopped)
}

func (w *watcher) sample() error {
	r, l := w.report, w.levels
	r.samples++
	r.memory = max(r.memory, l.memory.Usage().Bytes)
	p, err := thisProcess()
	r.private, r.shared = max(r.private, p.private), max(r.shared, p.shared)
	n, e := descriptors()
	r.descriptors = max(r.descriptors, n)
	segment, e2 := taken(l.segment())
	r.segment = max(r.segment, segment)
	err = errors.Join(err, e, e2)
	if l.disk != nil {
		r.disk = max(r.disk, l.disk.Usage().Bytes)
		files, e := takenBelow(l.folder)
		r.files = max(r.files, files)
		err = errors.Join(err, e)
	}
	return err
}
