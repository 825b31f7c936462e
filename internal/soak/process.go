package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"github.com/ringcache/ringcache/internal/tail"
)

const logKept = 64 << 10 // bytes of the output of a child that the report of its failure shows

// process is a child. Only the loop of its part uses its fields, except for the streams.
type process struct {
	name   string // "pool writer 3"
	role   string
	python bool
	cmd    *exec.Cmd
	log    *tail.Buffer
	out    *outbox

	ready        bool
	stopped      bool
	killed       bool // by the supervisor
	ending       bool // it was ordered to end
	keepsSegment bool // and to leave the segment to the next writer
	asked        bool // it was asked for its state, and has not answered
}

// event is a line of a child or, if m is nil, its end.
type event struct {
	from *process
	m    *message
	err  error // how it ended, or what was wrong with its line
}

// startProcess starts a child, and sends its events to a channel until it has ended. The child inherits alive
// and must not write to it: the cleaner reads the other end, see clean.go.
func startProcess(name, role string, cmd *exec.Cmd, alive *os.File, events chan<- event) (*process, error) {
	p := &process{name: name, role: role, cmd: cmd, log: tail.New(logKept), out: newOutbox()}
	cmd.Stderr = p.log
	cmd.ExtraFiles = []*os.File{alive}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := startCommand(cmd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go p.out.drain(in)
	go p.readLines(out, events)
	return p, nil
}

func (p *process) readLines(out io.Reader, events chan<- event) {
	lines := bufio.NewReaderSize(out, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break // a line without its end is that of a writer that was killed
		}
		m := &message{}
		if err := json.Unmarshal(line, m); err != nil {
			err = fmt.Errorf("line %.300q: %w", line, err)
			events <- event{p, m, err}
			continue
		}
		events <- event{p, m, nil}
	}
	p.out.close()
	events <- event{p, nil, p.cmd.Wait()}
}

func (p *process) kill() {
	p.killed = true
	_ = p.cmd.Process.Kill() // an error means that it has ended
}

func (p *process) stop()          { p.stopped = true; signalProcess(p.cmd.Process, signalStop) }
func (p *process) resume()        { p.stopped = false; signalProcess(p.cmd.Process, signalContinue) }
func (p *process) send(m message) { p.out.put(m) }

// outbox keeps orders until a child reads them. The child may be stopped, and the loop of its part must not
// wait for it.
type outbox struct {
	mu     sync.Mutex
	filled *sync.Cond
	lines  bytes.Buffer
	closed bool
}

func newOutbox() *outbox {
	b := &outbox{}
	b.filled = sync.NewCond(&b.mu)
	return b
}

func (b *outbox) put(m message) {
	line, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines.Write(append(line, '\n'))
	b.filled.Signal()
}

func (b *outbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.filled.Signal()
}

func (b *outbox) drain(to io.WriteCloser) {
	defer to.Close()
	for {
		b.mu.Lock()
		for b.lines.Len() == 0 && !b.closed {
			b.filled.Wait()
		}
		lines := bytes.Clone(b.lines.Bytes())
		b.lines.Reset()
		closed := b.closed
		b.mu.Unlock()
		if closed {
			return
		}
		if _, err := to.Write(lines); err != nil {
			return // it ended
		}
	}
}
