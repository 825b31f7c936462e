package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// workers is the Python process that runs and feeds the worker processes. Its
// protocol is one JSON object per line, see python/src/ringcache/worker.py.
type workers struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

type workerConfig struct {
	Segment    string `json:"segment"`
	Size       int    `json:"size"`
	MaxObject  int    `json:"max_object"`
	Readers    int    `json:"readers"`
	Generation string `json:"generation"`
	Peer       string `json:"peer"`
}

// object is one item as it goes to the engine: its message, and for this demo
// what the bytes of its tensors must be.
type object struct {
	Key    string            `json:"key"`
	Frames []string          `json:"frames"`
	SHA256 map[string]string `json:"sha256"`
}

type batch struct {
	Seq     int      `json:"seq"`
	Objects []object `json:"objects"`
}

type answer struct {
	Ready   bool     `json:"ready"`
	Seq     int      `json:"seq"`
	Objects int      `json:"objects"` // over all workers
	Bytes   int64    `json:"bytes"`
	Errors  []string `json:"errors"`
	Error   string   `json:"error"`
}

func startWorkers(ctx context.Context, python string, c workerConfig) (*workers, error) {
	cmd := exec.CommandContext(ctx, python, "-m", "ringcache.worker")
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the workers: %w", err)
	}
	w := &workers{cmd, in, bufio.NewReader(out)}
	if err := w.send(c); err != nil {
		return nil, errors.Join(err, w.close())
	}
	a, err := w.receive()
	if err == nil && !a.Ready {
		err = errors.New("they did not say that they are ready")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the workers did not start: %w", err), w.close())
	}
	return w, nil
}

func (w *workers) send(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.in.Write(append(b, '\n'))
	return err
}

func (w *workers) receive() (answer, error) {
	line, err := w.out.ReadBytes('\n')
	if err != nil {
		return answer{}, fmt.Errorf("the workers ended: %w", err)
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return answer{}, fmt.Errorf("the workers said %q: %w", line, err)
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// close ends the workers by ending their input.
func (w *workers) close() error { return errors.Join(w.in.Close(), w.cmd.Wait()) }
