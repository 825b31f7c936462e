package system

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/internal/tail"
)

// ProcessOptions configure [Start].
type ProcessOptions struct {
	Limit time.Duration // without a reply, after which a process hangs; 2 minutes if 0
	Env   []string      // of the process, as in exec.Cmd; nil is that of this process
	Dir   string        // in which the process runs, the current one if empty
}

const (
	defaultLimit = 2 * time.Minute
	maxReply     = 128 << 20 // bytes
	stderrTail   = 4 << 10   // bytes that an error shows
)

// Start starts a process that speaks the agent's protocol on stdin and stdout. The process is
// killed when ctx ends. Close ends its input, waits for it, and kills it if it does not end within
// the limit. On unix, children of its own are killed with it.
func Start(ctx context.Context, o ProcessOptions, command ...string) (fuzz.System, error) {
	return start(ctx, o, command)
}

func start(ctx context.Context, o ProcessOptions, command []string) (*process, error) {
	if len(command) == 0 {
		return nil, errors.New("system: no command to start")
	}
	if o.Limit == 0 {
		o.Limit = defaultLimit
	}
	p := &process{
		cmd: exec.CommandContext(ctx, command[0], command[1:]...), limit: o.Limit,
		stderr: tail.New(stderrTail), lines: make(chan []byte, 1024), closing: make(chan struct{}),
		ended: make(chan struct{}),
	}
	p.cmd.Env, p.cmd.Dir, p.cmd.Stderr = o.Env, o.Dir, p.stderr
	p.cmd.Cancel = func() error { return killTree(p.cmd.Process) }
	p.cmd.SysProcAttr = ownTree()
	p.cmd.WaitDelay = 10 * time.Second // for a child of its own that keeps stderr open
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("system: %w", err)
	}
	go p.read()
	return p, nil
}

// process is a process that speaks the agent's protocol.
type process struct {
	cmd    *exec.Cmd
	limit  time.Duration
	in     io.WriteCloser
	out    io.ReadCloser
	stderr *tail.Buffer

	lines   chan []byte   // that it wrote, until its output ends
	closing chan struct{} // closed when no goroutine receives from lines any more
	ended   chan struct{} // closed when the process was waited for
	err     error         // how it ended; valid after ended
	broken  *BrokenError
	closed  bool
}

// read receives lines until the output ends, and waits for the process then.
func (p *process) read() {
	defer close(p.ended)
	s := bufio.NewScanner(p.out)
	s.Buffer(make([]byte, 1<<16), maxReply)
	s.Split(wholeLines)
	for open := true; open && s.Scan(); {
		line := append([]byte(nil), s.Bytes()...)
		select {
		case p.lines <- line:
		case <-p.closing:
			open = false
		}
	}
	_ = p.out.Close() // so that a process that goes on writing ends
	p.err = errors.Join(s.Err(), p.cmd.Wait())
	close(p.lines)
}

// wholeLines is bufio.ScanLines, but an unfinished line at the end is none: its writer died.
func wholeLines(data []byte, atEOF bool) (int, []byte, error) {
	n, line, err := bufio.ScanLines(data, false)
	if n == 0 && err == nil && atEOF {
		return len(data), nil, nil
	}
	return n, line, err
}

// Do writes all operations while it receives the replies, so that neither pipe can be full for ever.
func (p *process) Do(ops []fuzz.Op) ([]fuzz.Reply, error) {
	if p.broken != nil {
		return nil, p.broken
	}
	written := make(chan struct{})
	go func() { defer close(written); p.write(ops) }()
	replies, err := p.receive(len(ops))
	if err != nil {
		p.broken = &BrokenError{Done: len(replies), Err: err}
		p.kill()
		p.broken.Stderr = p.stderr.String()
	}
	<-written
	if err != nil {
		return replies, p.broken
	}
	return replies, nil
}

// write writes operations. Its error is seen in the replies that do not come.
func (p *process) write(ops []fuzz.Op) {
	w := bufio.NewWriterSize(p.in, 1<<16)
	for _, op := range ops {
		_, _ = w.WriteString(op.Line())
		if err := w.WriteByte('\n'); err != nil {
			return
		}
	}
	_ = w.Flush()
}

func (p *process) receive(n int) ([]fuzz.Reply, error) {
	replies := make([]fuzz.Reply, 0, n)
	timer := time.NewTimer(p.limit)
	defer timer.Stop()
	for range n {
		timer.Reset(p.limit)
		select {
		case line, ok := <-p.lines:
			if !ok {
				return replies, fmt.Errorf("the process ended without a reply: %w", p.end())
			}
			r, err := parseReply(line)
			if err != nil {
				return replies, err
			}
			replies = append(replies, r)
		case <-timer.C:
			return replies, fmt.Errorf("%w: no reply within %s", ErrHangs, p.limit)
		}
	}
	return replies, nil
}

// ErrHangs reports that a process did not reply within its limit.
var ErrHangs = errors.New("the process hangs")

// end is how a process ended whose lines ended.
func (p *process) end() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

// kill ends the process at once, and waits for it.
func (p *process) kill() {
	p.stopReading()
	select {
	case <-p.ended: // another process may have its id now
	default:
		_ = killTree(p.cmd.Process)
	}
	// A child of its own may keep these open, in which write and read would wait.
	_, _ = p.in.Close(), p.out.Close()
	<-p.ended
}

func (p *process) stopReading() {
	if !p.closed {
		p.closed = true
		close(p.closing)
	}
}

func (p *process) Close() error {
	_ = p.in.Close()
	p.stopReading()
	timer := time.NewTimer(p.limit)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		p.kill()
		return fmt.Errorf("system: the process did not end within %s after its input did", p.limit)
	}
	if p.broken != nil || p.err == nil {
		return nil // what broke it was reported
	}
	return fmt.Errorf("system: the process ended with: %w\n%s", p.err, p.stderr.String())
}
