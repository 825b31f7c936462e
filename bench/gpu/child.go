package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/bench/internal/process"
	"github.com/ringcache/ringcache/pin"
	"github.com/ringcache/ringcache/pin/cuda"
)

// childReady is the first line of a process that registers a file: the file is mapped.
type childReady struct{}

// childAnswer is its second line, once a line came.
type childAnswer struct {
	Wait     float64 `json:"wait_ns"`
	Register float64 `json:"register_ns"`
	Code     int     `json:"code"` // of the driver; -1 for another error
	Error    string  `json:"error,omitempty"`
}

// runChild registers a file when its input has a line, and unregisters it when its input ends.
func runChild(o options) (err error) {
	d, err := cuda.Open(o.Device, cuda.Options{Library: o.Library})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	m, err := mapFile(o.Child, true)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(childReady{}); err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	r, answer, err := registerFile(d, o.Child, m, o.ChildLock)
	if err != nil {
		return err
	}
	if err := out.Encode(answer); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	if r == nil {
		return err
	}
	return errors.Join(err, unmap(m, []pin.Registration{r}))
}

// registerFile registers m, a mapping of the file. That the driver refuses is an answer and no error.
func registerFile(d *cuda.Driver, path string, m []byte, lock bool) (r pin.Registration, a childAnswer, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, a, err
	}
	defer f.Close() // releases the lock
	begin := time.Now()
	if lock {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			return nil, a, err
		}
	}
	a.Wait = float64(time.Since(begin))
	begin = time.Now()
	r, err = d.Register(m, pin.RegisterOptions{})
	a.Register = float64(time.Since(begin))
	if err != nil {
		a.Code, a.Error = -1, err.Error()
		if e, ok := errors.AsType[*cuda.Error](err); ok {
			a.Code = e.Code
		}
		return nil, a, nil
	}
	return r, a, nil
}

// startChild starts a process that runs runChild, and waits until it has mapped the file.
func (b *bench) startChild(ctx context.Context, path string, lock bool) (*process.Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{"--device", strconv.Itoa(b.Device), "--child", path}
	if b.Library != "" {
		args = append(args, "--library", b.Library)
	}
	if lock {
		args = append(args, "--child-lock")
	}
	p, err := process.Start(exec.CommandContext(ctx, program, args...))
	if err != nil {
		return nil, err
	}
	if err := p.Receive(&childReady{}); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}
