package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// supervisor is one soak.
type supervisor struct {
	o        runCommand
	prefix   string // of the names of all segments
	dir      string // of sockets
	alive    *os.File
	interval time.Duration // between samples
	growth   *growth
	n        counts

	answered sync.WaitGroup // parts of which no request was answered yet; the time begins after that

	mu     sync.Mutex
	failed []error
	stop   context.CancelFunc // of everything, at once
}

// Run is called by kong.
func (o runCommand) Run() error {
	for o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	s := &supervisor{o: o, interval: min(max(o.duration()/100, 200*time.Millisecond), 30*time.Second)}
	s.prefix = fmt.Sprintf("ringcache-soak-%d-%08x-", os.Getpid(), rand.Uint32())
	s.growth = newGrowth(s.path(s.prefix))
	var err error
	if s.dir, err = os.MkdirTemp("", "soak"); err != nil {
		return err
	}
	if s.alive, err = startCleaner(s.path(s.prefix), s.dir); err != nil {
		return errors.Join(err, os.RemoveAll(s.dir))
	}
	return s.run()
}

func (s *supervisor) path(name string) string { return filepath.Join(s.o.Dir, name) }

// run loads until the time is over or a signal comes, orders everything to end, and prints the
// summary. A failure, or a second signal, ends everything at once.
func (s *supervisor) run() error {
	begin := time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.stop = cancel
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-signals
		s.fail(errors.New("interrupted"))
		stop()
		<-signals
		cancel()
	}()
	done := s.start(ctx, stopping)
	loaded := make(chan struct{})
	go func() {
		s.answered.Wait()
		close(loaded)
	}()
	progress, sample := time.NewTicker(30*time.Second), time.NewTicker(s.interval)
	defer progress.Stop()
	defer sample.Stop()
	var end <-chan time.Time
	for running := true; running; {
		select {
		case <-progress.C:
			fmt.Fprintln(os.Stderr, s.n.line(time.Since(begin)))
		case <-sample.C:
			if end != nil && stopping.Err() == nil {
				s.growth.sample()
			}
		case <-loaded:
			loaded, end = nil, time.After(s.o.duration())
		case <-end:
			stop()
		case <-done:
			running = false
		}
	}
	return s.finish(time.Since(begin))
}

// start starts the parts. The channel is closed when all of them have ended.
func (s *supervisor) start(ctx, stopping context.Context) <-chan struct{} {
	var parts sync.WaitGroup
	begin := func(name string, run func() error) {
		if !slices.Contains(s.o.Parts, name) {
			return
		}
		s.answered.Add(1)
		parts.Go(func() {
			if err := run(); err != nil {
				s.fail(fmt.Errorf("part %s: %w", name, err))
				s.stop()
			}
		})
	}
	for i, name := range []string{"steady", "pool", "fifo", "bytes", "cache"} {
		p := &part{
			s: s, name: name, killing: name != "steady", rng: rand.New(rand.NewPCG(s.o.Seed, uint64(i))),
			firstAnswer: sync.OnceFunc(s.answered.Done),
			store: storeOptions{Kind: name, Dir: s.o.Dir, Size: s.o.Size << 20,
				Readers: max(1, (s.o.Processes-7+i)/5)},
		}
		if name == "steady" {
			p.store.Kind, p.plant = "pool", s.o.Plant
		}
		begin(name, func() error { return p.run(ctx, stopping) })
	}
	mirror := &pair{s: s, firstAnswer: sync.OnceFunc(s.answered.Done), rng: rand.New(rand.NewPCG(s.o.Seed, 100))}
	begin("mirror", func() error { return mirror.run(ctx, stopping) })
	done := make(chan struct{})
	go func() { parts.Wait(); close(done) }()
	return done
}

// startChild starts this program as a child.
func (s *supervisor) startChild(part, role string, life int, o storeOptions, args []string,
	events chan<- event) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, append([]string{
		"child", role, "--kind", cmp.Or(o.Kind, "pool"), "--name", o.Name, "--dir", o.Dir,
		"--size", strconv.Itoa(o.Size), "--readers", strconv.Itoa(o.Readers),
	}, args...)...)
	name := part + " " + role
	if life > 0 {
		name += " " + strconv.Itoa(life)
	}
	return startProcess(name, role, cmd, s.alive, events)
}

func (s *supervisor) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, err)
}

// logs prints what a child has written, after a failure.
func (s *supervisor) logs(c *process) {
	if text := c.log.String(); text != "" {
		fmt.Fprintf(os.Stderr, "--- %s wrote:\n%s\n", c.name, text)
	}
}

// finish prints the summary, and returns what was wrong.
func (s *supervisor) finish(took time.Duration) error {
	left := leftFiles(s.path(s.prefix))
	s.mu.Lock()
	failed := s.failed
	s.mu.Unlock()
	if len(failed) == 0 {
		if s.o.Python != "" && !s.n.python.Load() {
			failed = append(failed, errors.New("no Python reader has read anything"))
		}
		if len(left) > 0 {
			failed = append(failed, fmt.Errorf("%d files are left: %q", len(left), left))
		}
		failed = append(failed, s.growth.check()...)
	}
	fmt.Println(s.n.line(took) + ", " + s.growth.line() + fmt.Sprintf(", %d files left", len(left)))
	err := errors.Join(failed...)
	if err != nil {
		err = fmt.Errorf("%w\nagain: go run ./internal/soak --seed %d --minutes %v --processes %d --size %d --dir %s --python %q --parts %s",
			err, s.o.Seed, s.o.Minutes, s.o.Processes, s.o.Size, s.o.Dir, s.o.Python, strings.Join(s.o.Parts, ","))
	}
	return errors.Join(err, removeAll(s.path(s.prefix)), os.RemoveAll(s.dir), s.alive.Close())
}
