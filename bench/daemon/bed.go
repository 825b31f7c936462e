package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
)

const (
	segment = "bench"
	space   = "bench"
	perCall = 64 // objects of a call, when there are many
)

// bed has the processes: a daemon and an echo.
type bed struct {
	o      options
	dir    string
	daemon *child
	echo   *child
}

// child is a process of this program.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

func newBed(o options) (*bed, error) {
	dir, err := os.MkdirTemp(o.ShmDir, "rb")
	if err != nil {
		return nil, err
	}
	b := &bed{o: o, dir: dir}
	if b.echo, err = b.start(echoRole); err == nil {
		_, err = b.echo.taken()
	}
	if err == nil {
		b.daemon, err = b.start(serveRole)
	}
	if err != nil {
		return nil, errors.Join(err, b.remove())
	}
	return b, nil
}

func (b *bed) remove() error {
	for _, c := range []*child{b.daemon, b.echo} {
		if c != nil {
			c.kill()
		}
	}
	return os.RemoveAll(b.dir)
}

func (b *bed) socket(role string) string { return filepath.Join(b.dir, role) }

// start starts a child, and does not wait until it serves.
func (b *bed) start(role string) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(exe, role)}
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = json.NewDecoder(out)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(c.in).Encode(order{b.socket(role), b.dir, int64(b.o.GiB * gib),
		b.o.Objects}); err != nil {
		return nil, errors.Join(err, c.cmd.Process.Kill(), c.cmd.Wait())
	}
	return c, nil
}

// taken waits for the next line of a child.
func (c *child) taken() (t taken, err error) {
	if err := c.out.Decode(&t); err != nil {
		return t, fmt.Errorf("a child has ended: %w", err)
	}
	return t, nil
}

// ask asks the daemon what it takes.
func (c *child) ask() (taken, error) {
	if _, err := io.WriteString(c.in, "\n"); err != nil {
		return taken{}, err
	}
	return c.taken()
}

// kill ends a child. Its exit status is that of the signal.
func (c *child) kill() {
	_ = c.cmd.Process.Signal(syscall.SIGKILL)
	_ = c.cmd.Wait()
}

func (b *bed) dial(ctx context.Context, session string) (*client.Client, error) {
	return client.Dial(ctx, client.Options{Socket: b.socket(serveRole), Session: session, Name: "bench", Dir: b.dir})
}

func name(n int) string { return fmt.Sprintf("%064x", n) }

func names(first, n, objects int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = name((first + i) % objects)
	}
	return list
}

// all reports an item that is not as it has to be.
func all(items []wire.Item, err error, want wire.Status) error {
	for i, v := range items {
		if err == nil && v.Status != want {
			err = fmt.Errorf("item %d is %q, want %q", i, v.Status, want)
		}
	}
	return err
}
