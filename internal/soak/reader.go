package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/shmstore"
)

// source is what a reader needs of a store's own readers.
type source interface {
	// get returns a view of an object in place: check compares its bytes, any number of times, and release
	// ends the view.
	get(o object, late bool) (view, error)
	close() error
}

type view struct {
	check   func() error
	release func() error
}

// runReader reads what it is ordered to until it is ended or killed.
func runReader(o storeOptions, orders <-chan message) error {
	s, err := openSource(o)
	if err != nil {
		report(message{Kind: "absent", Text: err.Error()})
		return nil
	}
	report(message{Kind: "ready"})
	for m := range orders {
		switch m.Kind {
		case "read":
			done, err := read(s, m)
			if err != nil {
				return fmt.Errorf("request %s: %w", m.Request, err)
			}
			report(done)
		case "check":
			report(message{Kind: "state", Goroutines: runtime.NumGoroutine()})
		case "end":
			return s.close()
		default:
			return fmt.Errorf("order %q", m.Kind)
		}
	}
	return nil
}

// read gets every object of a request, once for each use, then compares their bytes, and
// then releases them.
func read(s source, m message) (done message, err error) {
	done = message{Kind: "done", Request: m.Request, Late: m.Late}
	var views []view
	for _, o := range m.Objects {
		for range max(o.Uses, 1) {
			l, err := s.get(o, m.Late)
			switch {
			case err == nil:
				views = append(views, l)
				done.Bytes += int64(o.Size)
				done.Reads++
			case m.Late && isRemoved(err):
				done.Gone++
			default:
				return done, fmt.Errorf("%v: %w", o, err)
			}
		}
	}
	rand.Shuffle(len(views), func(i, j int) { views[i], views[j] = views[j], views[i] })
	for _, l := range views {
		if err := l.check(); err != nil {
			return done, err
		}
	}
	for _, l := range views {
		if err := l.release(); err != nil {
			return done, err
		}
	}
	return done, nil
}

// isRemoved reports whether an error means that the object of a handle was removed.
func isRemoved(err error) bool {
	return errors.Is(err, objstore.ErrStale) || errors.Is(err, objstore.ErrCorrupt) ||
		errors.Is(err, objstore.ErrBadSignature) || errors.Is(err, shmstore.ErrStale)
}

func openSource(o storeOptions) (source, error) {
	if o.Kind == "bytes" {
		r, err := shmstore.Open(o.Name, shmstore.ReaderOptions{Dir: o.Dir})
		return payloadSource{r}, err
	}
	ro := objstore.ReaderOptions{
		RingSize: o.Size, Readers: o.Readers, Dir: o.Dir, SidecarLock: true,
		LockTimeout: 10 * time.Minute, // its holder may be stopped
	}
	counts, err := objstore.Open(o.Name, ro)
	if err != nil {
		return nil, err
	}
	ro.SidecarLock = false
	observes, err := objstore.Open(o.Name, ro)
	if err != nil {
		return nil, errors.Join(err, counts.Close())
	}
	return objectSource{counts, observes}, nil
}

// objectSource reads as a worker does, and late handles without counting: an engine doesn't
// read those.
type objectSource struct{ counts, observes *objstore.Reader }

func (s objectSource) get(o object, late bool) (view, error) {
	r := s.counts
	if late {
		r = s.observes
	}
	h := o.handle()
	if err := r.Touch(context.Background(), o.Key, h); err != nil {
		return view{}, err
	}
	v, err := r.Get(o.Key, h)
	if err != nil {
		return view{}, err
	}
	check := func() error {
		wrong := checkValue(v.Value(), o)
		if err := v.Check(); late && err != nil {
			return nil // the reader found out by itself that the object went meanwhile
		} else if err != nil {
			return fmt.Errorf("%v: %w", o, err)
		}
		if wrong != nil {
			return fmt.Errorf("%v: %w", o, wrong)
		}
		return nil
	}
	release := func() error {
		if err := v.Release(); err != nil && !late {
			return fmt.Errorf("%v: %w", o, err)
		}
		return nil
	}
	return view{check, release}, nil
}

func (s objectSource) close() error { return errors.Join(s.counts.Close(), s.observes.Close()) }

// payloadSource reads payloads, which stay while a view is open.
type payloadSource struct{ *shmstore.Reader }

func (s payloadSource) get(o object, _ bool) (view, error) {
	v, err := s.Get(shmstore.Handle{Offset: o.Place, Length: uint64(o.Size), ID: o.ID})
	if err != nil {
		return view{}, err
	}
	check := func() error {
		if err := errors.Join(checkPayload(v.Bytes(), o), v.Check()); err != nil {
			return fmt.Errorf("%v: %w", o, err)
		}
		return nil
	}
	return view{check, func() error { v.Release(); return nil }}, nil
}

func (s payloadSource) close() error { return s.Close() }
