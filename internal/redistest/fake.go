package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Fake is a server in the test's own process that knows the commands of a level, and answers as a test wants.
// It listens on loopback and on a socket. Databases, times to live and patterns are ignored.
type Fake struct {
	folder string
	tcp    net.Listener

	mu     sync.Mutex
	data   map[string]string
	answer Answer
	refuse func(command []string) []byte
	closed bool
	conns  map[net.Conn]bool
	work   sync.WaitGroup
}

// Answer sends the answer to a command: whatever it likes in place of the truth. After an error the
// connection is closed. It is called by several goroutines.
type Answer func(conn io.Writer, command []string, truth []byte) error

// NewFake runs a server until the end of the test.
func NewFake(t testing.TB) *Fake {
	t.Helper()
	folder, err := os.MkdirTemp("", "fake") // short, as paths of sockets have to be
	if err != nil {
		t.Fatal(err)
	}
	f := &Fake{folder: folder, data: map[string]string{}, conns: map[net.Conn]bool{}}
	socket, err := net.Listen("unix", f.socket())
	if err == nil {
		f.tcp, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	f.work.Go(func() { f.accept(socket) })
	f.work.Go(func() { f.accept(f.tcp) })
	t.Cleanup(func() {
		_ = errors.Join(socket.Close(), f.tcp.Close())
		f.mu.Lock()
		f.closed = true
		for c := range f.conns {
			_ = c.Close()
		}
		f.mu.Unlock()
		f.work.Wait()
		_ = os.RemoveAll(folder)
	})
	return f
}

func (f *Fake) socket() string { return filepath.Join(f.folder, "socket") }

// URL is the socket's.
func (f *Fake) URL() string { return "unix://" + f.socket() }

// Addr returns host and port.
func (f *Fake) Addr() string { return f.tcp.Addr().String() }

// Do replaces what answers; nil tells the truth.
func (f *Fake) Do(answer Answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// Refuse answers, in place of executing a command, what refuse returns, if that is not nil. It is called with a lock
// held.
func (f *Fake) Refuse(refuse func(command []string) []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = refuse
}

func (f *Fake) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		if f.closed {
			c.Close()
		} else {
			f.conns[c] = true
			f.work.Go(func() { f.serve(c) })
		}
		f.mu.Unlock()
	}
}

func (f *Fake) serve(c net.Conn) {
	defer func() {
		c.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.conns, c)
	}()
	in := bufio.NewReader(c)
	var queued [][]string // between MULTI and EXEC
	multi := false
	for {
		command, err := readCommand(in)
		if err != nil {
			return
		}
		f.mu.Lock()
		var truth []byte
		switch name := strings.ToUpper(command[0]); {
		case name == "MULTI":
			multi, truth = true, []byte("+OK\r\n")
		case name == "EXEC":
			truth = fmt.Appendf(nil, "*%d\r\n", len(queued))
			for _, q := range queued {
				truth = append(truth, f.run(q)...)
			}
			multi, queued = false, nil
		case multi:
			queued, truth = append(queued, command), []byte("+QUEUED\r\n")
		default:
			truth = f.run(command)
		}
		answer := f.answer
		f.mu.Unlock()
		if answer == nil {
			_, err = c.Write(truth)
		} else {
			err = answer(c, command, truth)
		}
		if err != nil {
			return
		}
	}
}

func readCommand(in *bufio.Reader) ([]string, error) {
	n, err := readLength(in, "*")
	if err != nil {
		return nil, err
	}
	command := make([]string, n)
	for i := range command {
		n, err := readLength(in, "$")
		if err != nil {
			return nil, err
		}
		b := make([]byte, n+len("\r\n"))
		if _, err := io.ReadFull(in, b); err != nil {
			return nil, err
		}
		command[i] = string(b[:n])
	}
	return command, nil
}

func readLength(in *bufio.Reader, kind string) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	text, ok := strings.CutPrefix(strings.TrimSuffix(line, "\r\n"), kind)
	if !ok {
		return 0, fmt.Errorf("a command has %q", line)
	}
	return strconv.Atoi(text)
}

func bulk(text string) []byte { return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(text), text) }

// run executes a command. The lock is held.
func (f *Fake) run(command []string) []byte {
	if f.refuse != nil {
		if answer := f.refuse(command); answer != nil {
			return answer
		}
	}
	name, args := strings.ToUpper(command[0]), command[1:]
	switch {
	case name == "PING":
		return []byte("+PONG\r\n")
	case name == "HELLO":
		return []byte("*6\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:2\r\n$7\r\nmodules\r\n*0\r\n")
	case name == "SET" && len(args) > 2 && strings.EqualFold(args[2], "nx") && f.has(args[0]):
		return []byte("$-1\r\n")
	case name == "SET" && len(args) > 1:
		f.data[args[0]] = args[1]
		return []byte("+OK\r\n")
	case name == "GETRANGE" && len(args) == 3:
		value := f.data[args[0]]
		from, _ := strconv.Atoi(args[1])
		to, _ := strconv.Atoi(args[2])
		from = min(from, len(value))
		return bulk(value[from:max(from, min(to+1, len(value)))])
	case name == "STRLEN" && len(args) == 1:
		return fmt.Appendf(nil, ":%d\r\n", len(f.data[args[0]]))
	case name == "UNLINK" || name == "EXISTS":
		n := 0
		for _, key := range args {
			if f.has(key) {
				n++
			}
			if name == "UNLINK" {
				delete(f.data, key)
			}
		}
		return fmt.Appendf(nil, ":%d\r\n", n)
	case name == "SCAN":
		out := fmt.Appendf(nil, "*2\r\n$1\r\n0\r\n*%d\r\n", len(f.data))
		for key := range f.data {
			out = append(out, bulk(key)...)
		}
		return out
	case name == "CLUSTER":
		host, port, _ := net.SplitHostPort(f.Addr())
		return fmt.Appendf(nil, "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n%s:%s\r\n%s",
			bulk(host), port, bulk(strings.Repeat("0", 40)))
	case name == "WATCH" || name == "UNWATCH" || name == "SELECT" || name == "READONLY" || name == "ASKING":
		return []byte("+OK\r\n")
	}
	return fmt.Appendf(nil, "-ERR unknown command '%s'\r\n", command[0])
}

func (f *Fake) has(key string) bool {
	_, ok := f.data[key]
	return ok
}
