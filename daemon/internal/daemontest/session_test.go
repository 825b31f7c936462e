package daemontest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
)

// session does random steps, and remembers what it was told is pinned.
type session struct {
	o      LoadOptions
	ctx    context.Context
	rng    *rand.Rand
	c      *client.Client
	m      *client.Mapping
	leases map[string]*lease
	names  int // of leases so far
	steps  int
	doing  string
	left   int // sessions that were left with open leases
	past   []string
}

// note remembers what happened, for the report of what must not have.
func (s *session) note(format string, args ...any) {
	if len(s.past) == 100 {
		s.past = s.past[1:]
	}
	s.past = append(s.past, fmt.Sprintf(format, args...))
}

// about returns what happened to a lease.
func (s *session) about(l *lease) string {
	var lines []string
	for _, line := range s.past {
		if strings.HasPrefix(line, l.name+" ") || !strings.HasPrefix(line, "lease") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// object is an object of a space.
type object struct {
	space string
	n     int
}

// lease is what the daemon has pinned and reserved.
type lease struct {
	name     string
	until    time.Time // pins stay until then at least
	pinned   map[object]wire.Item
	reserved map[object]wire.Item
	written  map[object]int // bytes of a reservation that are written
}

const (
	mostLeases = 6
	mostLeft   = 4
)

func (s *session) run() error {
	if err := s.dial(""); err != nil {
		return err
	}
	for s.ctx.Err() == nil {
		s.steps++
		space, committed, err := s.step()
		if err != nil {
			return err
		}
		s.o.Done(space, committed)
	}
	return s.ctx.Err()
}

func (s *session) at(stage string) {
	if s.o.At != nil {
		s.o.At(stage)
	}
}

func (s *session) count(what string, n int) {
	if s.o.Count != nil && n > 0 {
		s.o.Count(what, n)
	}
}

// step does one thing, and returns what is committed now for certain.
func (s *session) step() (space string, committed []int, err error) {
	space = s.o.Space()
	l := s.anyLease()
	steps := []struct {
		weight int
		name   string
		do     func() error
	}{
		{10, "pin", func() error { return s.pin(l, space) }},
		{7, "reserve", func() error { return s.reserve(l, space) }},
		{14, "write", func() error { s.write(l); return nil }},
		{14, "commit", func() error { space, committed, err = s.commit(l); return err }},
		{2, "abort", func() error { return s.abort(l) }},
		{5, "release", func() error { return s.release(l) }},
		{3, "unpin", func() error { return s.unpin(l) }},
		{4, "verify", func() error { return s.verify(l) }},
		{4, "get", func() error { return s.get(l) }},
		{2, "stat", func() error { return s.stat(space) }},
		{1, "hang up", func() error { return s.dial(s.c.Session()) }},
		{1, "impatient", func() error { return s.impatient(space) }},
		{1, "leave", s.leave},
	}
	sum := 0
	for _, x := range steps {
		sum += x.weight
	}
	at := s.rng.IntN(sum)
	for _, x := range steps {
		if at -= x.weight; at < 0 {
			s.doing = x.name
			if err := x.do(); err != nil {
				return space, committed, fmt.Errorf("%w; before that: %s", err, s.about(l))
			}
			return space, committed, nil
		}
	}
	panic("weights")
}

// anyLease returns an open lease, or a new one.
func (s *session) anyLease() *lease {
	at := s.rng.IntN(mostLeases)
	for _, l := range s.leases { // whose order is random, but the seed promises no more than the first kill does
		if at--; at < 0 {
			return l
		}
	}
	s.names++
	l := &lease{name: fmt.Sprint("lease ", s.names), pinned: map[object]wire.Item{}, reserved: map[object]wire.Item{}, written: map[object]int{}}
	s.leases[l.name] = l
	return l
}

// seconds draws how long a lease is wanted, and returns the time until which what is asked for now will stay.
func (s *session) seconds() (uint32, time.Time) {
	switch s.rng.IntN(4) {
	case 0:
		return 1, time.Now().Add(time.Second)
	case 1:
		return 0, time.Now().Add(time.Minute) // the default is a longer one
	}
	return 3600, time.Now().Add(time.Hour)
}

// numbers draws objects, each once.
func (s *session) numbers(most int) []int {
	n := 1 + s.rng.IntN(most)
	first := s.rng.IntN(s.o.Objects)
	list := make([]int, 0, n)
	step := 1 + s.rng.IntN(3)
	for i := range n {
		if x := first + i*step; x < s.o.Objects {
			list = append(list, x)
		}
	}
	return list
}

func namesOf(list []int) []string {
	names := make([]string, len(list))
	for i, n := range list {
		names[i] = Name(n)
	}
	return names
}

// dial begins a session, or takes one up on a new connection beside the old one, which is closed after that.
func (s *session) dial(name string) error {
	old := s.c
	err := s.until(func(ctx context.Context) (err error) {
		s.c, err = client.Dial(ctx, client.Options{Socket: s.o.Socket, Session: name, Name: "daemontest", Dir: s.o.Dir})
		return err
	})
	if old != nil {
		_ = old.Close()
	}
	if err != nil || s.m != nil {
		return err
	}
	return s.until(func(ctx context.Context) (err error) {
		s.m, err = s.c.Map(ctx)
		return err
	})
}

// leave begins another session: leases of this one stay until the process ends, or their time passes.
func (s *session) leave() error {
	if s.left >= mostLeft {
		return nil
	}
	s.left++
	if err := s.dial(""); err != nil {
		return err
	}
	s.leases = map[string]*lease{}
	s.count("sessions left", 1)
	return nil
}

// until calls until the daemon has answered: one that is not there, or ends meanwhile, is asked again.
func (s *session) until(call func(ctx context.Context) error) error {
	end := time.Now().Add(patience)
	for {
		ctx, stop := context.WithDeadline(s.ctx, end)
		err := call(ctx)
		stop()
		if err != nil && !strings.Contains(err.Error(), "no such file") && !strings.Contains(err.Error(), "refused;") {
			s.note("%v", err)
		}
		switch {
		case err == nil || s.ctx.Err() != nil:
			return err
		case !passes(err):
			return err
		case time.Now().After(end):
			return fmt.Errorf("no answer in %v: %w", patience, err)
		}
		time.Sleep(time.Millisecond) // nobody tells when the socket is there
	}
}

// passes reports whether an error is one of a daemon that ends or has ended.
func passes(err error) bool {
	var refused *wire.Error
	if errors.As(err, &refused) {
		return refused.Kind == wire.KindClosing
	}
	if errors.Is(err, client.ErrSegment) {
		return false
	}
	for _, lie := range []string{"what is no reply", " items for ", "and the last one was", "an answer to hello"} {
		if strings.Contains(err.Error(), lie) {
			return false
		}
	}
	return true
}
