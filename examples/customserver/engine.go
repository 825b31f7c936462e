package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// engine stands for the inference engine: it takes requests from a queue, one
// after the other, and has nothing of the cache but the wire. A real one is
// another process, behind a socket.
type engine struct {
	answer   func(mmcache.Batch) result
	capacity float64
	queue    chan job
	stopped  chan struct{}
	receiver *lrusync.Receiver[*serde.Item] // mode lru
	reader   *objstore.Reader               // mode shm
}

// job is a request as it arrives; without results it is a restart.
type job struct {
	batch   mmcache.Batch
	results chan<- result
}

// result is the engine's answer: a mean for each item, or what it misses.
type result struct {
	means   []float64
	missing []string
	drift   *lrusync.Drift
	err     error
}

// newEngine starts the engine for a cache with these options.
func newEngine(cache mmcache.Cache, o mmcache.Options) (*engine, error) {
	e := &engine{capacity: o.Capacity, queue: make(chan job, 64), stopped: make(chan struct{}), answer: answerInline}
	var err error
	switch c := cache.(type) {
	case *mmcache.Mirrored:
		e.answer = e.answerMirrored
		err = e.forget()
	case *mmcache.Shared:
		e.answer = e.answerShared
		e.reader, err = objstore.Open(c.Name(), objstore.ReaderOptions{
			RingSize: int(o.Capacity), Readers: o.Shared.Readers, Dir: o.Shared.Dir, Lock: make(lock, 1),
		})
	}
	if err != nil {
		return nil, err
	}
	go e.work()
	return e, nil
}

// forget is what a restart does to the items that an engine keeps.
func (e *engine) forget() (err error) {
	e.receiver, err = lrusync.NewReceiver[*serde.Item](lrusync.Options{Capacity: e.capacity})
	return err
}

// enqueue puts a request into the queue. An error means that it is not in it.
func (e *engine) enqueue(ctx context.Context, b mmcache.Batch, results chan<- result) error {
	select {
	case e.queue <- job{b, results}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// restart loses all items that the engine keeps.
func (e *engine) restart() { e.queue <- job{} }

// close ends the engine; no request may come any more.
func (e *engine) close() error {
	close(e.queue)
	<-e.stopped
	if e.reader != nil {
		return e.reader.Close()
	}
	return nil
}

func (e *engine) work() {
	defer close(e.stopped)
	for j := range e.queue {
		switch {
		case j.results != nil:
			j.results <- e.answer(j.batch)
		case e.receiver != nil:
			_ = e.forget() // the options were good before
		}
	}
}

func answerInline(b mmcache.Batch) (res result) {
	for _, w := range b.Items {
		m, err := mean(w.Item())
		res.means, res.err = append(res.means, m), errors.Join(res.err, err)
	}
	return res
}

// answerMirrored keeps what is sent, as far as there is room, and has what was
// sent before.
func (e *engine) answerMirrored(b mmcache.Batch) (res result) {
	fs := make([]lrusync.Feature[*serde.Item], len(b.Items))
	for i, w := range b.Items {
		fs[i] = lrusync.Feature[*serde.Item]{Key: w.Key, HasData: w.Item() != nil, Value: w.Item()}
		if fs[i].HasData {
			var err error
			if fs[i].Size, err = lrusync.ItemSize(w.Item(), lrusync.Python{}); err != nil {
				return result{err: err}
			}
		}
	}
	got, err := e.receiver.Receive(b.Envelope, fs)
	if err != nil {
		return result{err: err}
	}
	res.missing, res.drift = got.Missing, got.Drift
	if res.missing != nil {
		return res
	}
	for _, it := range got.Values {
		m, err := mean(it)
		res.means, res.err = append(res.means, m), errors.Join(res.err, err)
	}
	return res
}

// answerShared reads in shared memory what was put there. All is read, whatever
// becomes of the request: what is never read keeps its place for ever.
func (e *engine) answerShared(b mmcache.Batch) (res result) {
	for _, w := range b.Items {
		if w.Handle != nil {
			res.err = errors.Join(res.err, e.reader.Touch(context.Background(), w.Key, *w.Handle))
		}
	}
	for _, w := range b.Items {
		var m float64
		var err error
		if w.Handle != nil {
			m, err = e.readShared(w)
		} else {
			m, err = mean(w.Item())
		}
		res.means, res.err = append(res.means, m), errors.Join(res.err, err)
	}
	return res
}

func (e *engine) readShared(w mmcache.Wire) (float64, error) {
	v, err := e.reader.Get(w.Key, *w.Handle)
	if err != nil {
		return 0, err
	}
	m, err := mean(v.Item())
	return m, errors.Join(err, v.Check(), v.Release())
}

// mean is the stand-in's model.
func mean(it *serde.Item) (float64, error) {
	if it == nil {
		return 0, errors.New("no item came along")
	}
	e, ok := it.Lookup("pixel_values")
	if !ok {
		return 0, errors.New("an item without pixel_values")
	}
	t, ok := e.Data.(*serde.Tensor)
	if !ok || len(t.Data) == 0 {
		return 0, fmt.Errorf("pixel_values is %T, or empty", e.Data)
	}
	var sum uint64
	for _, b := range t.Data {
		sum += uint64(b)
	}
	return float64(sum) / float64(len(t.Data)), nil
}

// lock is the lock between the readers of a segment, of which there is one here.
// Between processes it is a pycompat.Semaphore.
type lock chan struct{}

func (l lock) Lock(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lock) Unlock() error { <-l; return nil }
