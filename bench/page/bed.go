package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ringcache/ringcache/daemon"
	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
)

const (
	serveRole = "(serve)"
	space     = "bench"
	batch     = 1000
)

// roles are what this program is as a child of itself.
var roles = map[string]func() error{serveRole: serve}

// serve is the daemon. Its settings are on stdin.
func serve() error {
	var flags map[string]string
	if err := json.NewDecoder(os.Stdin).Decode(&flags); err != nil {
		return err
	}
	c, err := daemon.Sources{Flags: flags}.Load()
	if err != nil {
		return err
	}
	return daemon.Run(context.Background(), daemon.RunOptions{Config: c, Version: "bench"})
}

// bed has a daemon, as a process of its own, with objects.
type bed struct {
	o    options
	dir  string
	http string
	cmd  *exec.Cmd
}

func newBed(ctx context.Context, o options) (_ *bed, err error) {
	b := &bed{o: o}
	if b.dir, err = os.MkdirTemp(o.ShmDir, "rb"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.remove())
		}
	}()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b.http = l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	flags, err := json.Marshal(map[string]string{
		"name": "bench", "size": fmt.Sprint(int64(o.GiB * (1 << 30))), "shm-dir": b.dir, "socket": b.socket(), "http": b.http,
		"max-objects": fmt.Sprint(o.Objects*5/4 + 8<<10), "log-level": "error",
	})
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b.cmd = exec.Command(exe, serveRole)
	b.cmd.Stdin, b.cmd.Stderr = strings.NewReader(string(flags)), os.Stderr
	if err := b.cmd.Start(); err != nil {
		b.cmd = nil
		return nil, err
	}
	return b, b.fill(ctx)
}

func (b *bed) socket() string { return filepath.Join(b.dir, "s") }

// remove ends the daemon, and removes everything.
func (b *bed) remove() error {
	var err error
	if b.cmd != nil {
		err = errors.Join(b.cmd.Process.Signal(syscall.SIGTERM), b.cmd.Wait())
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

func (b *bed) dial(ctx context.Context) (*client.Client, error) {
	return client.Dial(ctx, client.Options{Socket: b.socket(), Name: "bench"})
}

// fill waits for the daemon, and stores the objects.
func (b *bed) fill(ctx context.Context) error {
	var c *client.Client
	for begin := time.Now(); ; {
		var err error
		if c, err = b.dial(ctx); err == nil {
			break
		}
		if ctx.Err() != nil || time.Since(begin) > 3*time.Minute {
			return fmt.Errorf("the daemon does not answer: %w", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	defer func() { _ = c.Close() }()
	for i := 0; i < b.o.Objects; i += batch {
		q := wire.Request{Lease: "fill", Space: space}
		var names []string
		for n := i; n < min(i+batch, b.o.Objects); n++ {
			names = append(names, name(n))
			q.Objects = append(q.Objects, wire.Object{Name: name(n), Size: 1000})
		}
		items, err := c.Reserve(ctx, q)
		if err == nil {
			items, err = c.Commit(ctx, wire.Request{Lease: "fill", Space: space, Names: names})
		}
		if err != nil {
			return err
		}
		if last := items[len(items)-1]; last.Status != wire.StatusOK {
			return fmt.Errorf("an object could not be stored: %s; make the segment larger", last.Status)
		}
	}
	return nil
}

func name(n int) string { return fmt.Sprintf("%064x", n) }

// load are clients that call at a steady rate, and how long their calls took.
type load struct {
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu  sync.Mutex
	us  []float64 // since the last take
	err error
}

// begin begins the load.
func (b *bed) begin(ctx context.Context) (*load, error) {
	l := &load{}
	ctx, l.cancel = context.WithCancel(ctx)
	for i := range b.o.Sessions {
		c, err := b.dial(ctx)
		if err != nil {
			l.end()
			return nil, err
		}
		l.work.Go(func() {
			defer func() { _ = c.Close() }()
			if err := b.calls(ctx, l, c, i); err != nil && ctx.Err() == nil {
				l.mu.Lock()
				l.err = err
				l.mu.Unlock()
			}
		})
	}
	return l, nil
}

// calls makes the calls of a session, each at its time, until ctx ends: seven pins of an object, and a release.
func (b *bed) calls(ctx context.Context, l *load, c *client.Client, session int) error {
	random := rand.New(rand.NewPCG(7, uint64(session)))
	every := time.Duration(float64(time.Second) * float64(b.o.Sessions) / float64(b.o.Rate))
	next := time.Now().Add(every * time.Duration(session) / time.Duration(b.o.Sessions))
	wait := time.NewTimer(0)
	defer wait.Stop()
	for i := 0; ; i++ {
		wait.Reset(time.Until(next))
		select {
		case <-ctx.Done():
			return nil
		case <-wait.C:
		}
		if next = next.Add(every); time.Since(next) > time.Second {
			next = time.Now() // the machine stood still: there is no burst
		}
		begin := time.Now()
		var err error
		if i%8 == 7 {
			err = c.Release(ctx, wire.Request{Leases: []string{"pin"}})
		} else {
			var items []wire.Item
			items, err = c.Pin(
				ctx,
				wire.Request{Lease: "pin", Space: space, Names: []string{name(random.IntN(b.o.Objects))}, Seconds: 60},
			)
			if err == nil && items[0].Status != wire.StatusHit {
				err = fmt.Errorf("an object is %s", items[0].Status)
			}
		}
		if err != nil {
			return err
		}
		us := float64(time.Since(begin).Nanoseconds()) / 1000
		l.mu.Lock()
		l.us = append(l.us, us)
		l.mu.Unlock()
	}
}

// take returns the times of the calls since the last take.
func (l *load) take() ([]float64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	us := l.us
	l.us = nil
	return us, l.err
}

func (l *load) end() {
	l.cancel()
	l.work.Wait()
}

// turn measures for the time of a turn, with open pages or without. What opening them takes is left out.
func (b *bed) turn(ctx context.Context, l *load, open bool) (t turn, err error) {
	if open {
		closeAll, err := b.open(ctx)
		if err != nil {
			return t, err
		}
		defer func() { t.read = closeAll() }()
	}
	select {
	case <-time.After(b.o.Turn / 10):
	case <-ctx.Done():
		return t, ctx.Err()
	}
	if _, err := l.take(); err != nil {
		return t, err
	}
	before, err := taken(b.cmd.Process.Pid)
	if err != nil {
		return t, err
	}
	begin := time.Now()
	select {
	case <-time.After(b.o.Turn):
	case <-ctx.Done():
		return t, ctx.Err()
	}
	t.seconds = time.Since(begin).Seconds()
	after, err := taken(b.cmd.Process.Pid)
	if err != nil {
		return t, err
	}
	t.cpu, t.memory = after.cpu-before.cpu, after.memory
	t.us, err = l.take()
	return t, err
}

// open opens pages as a browser does: it loads them, and then reads their streams. closeAll returns the bytes of these.
func (b *bed) open(ctx context.Context) (closeAll func() int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	var read int64
	var mu sync.Mutex
	closeAll = func() int64 {
		cancel()
		work.Wait()
		return read
	}
	for range b.o.Pages {
		for _, path := range []string{"", "page.css", "page.js", "events"} {
			q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.http+"/page/"+path, http.NoBody)
			if err != nil {
				return nil, err
			}
			resp, err := http.DefaultClient.Do(q)
			if err == nil && resp.StatusCode != http.StatusOK {
				err = errors.Join(fmt.Errorf("%s is answered %s", q.URL, resp.Status), resp.Body.Close())
			}
			if err != nil {
				closeAll()
				return nil, err
			}
			take := func() {
				defer func() { _ = resp.Body.Close() }()
				n, _ := io.Copy(io.Discard, resp.Body) // until it is closed
				mu.Lock()
				defer mu.Unlock()
				read += n
			}
			if path == "events" {
				work.Go(take)
			} else {
				take()
			}
		}
	}
	return closeAll, nil
}
