package resp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// What a client may send. A command has its words in memory, but for keys of EXISTS and DEL, which are looked at one by
// one, and the value of SET, which is read into its place.
const (
	maxArgs  = 1 << 20   // arguments of a command, as Redis has it
	maxValue = 512 << 20 // bytes of an argument, as Redis has it
	maxWords = 1 << 10   // arguments that are kept
	maxText  = 128 << 10 // bytes of those together

	// Before a client has said the password.
	maxArgsBefore  = 10
	maxValueBefore = 16 << 10

	buffer = 16 << 10 // bytes of input, and of output
	stride = 1 << 20  // bytes of a value within which the client has to go on

	// longest is how long a command may take: less than its leases last.
	longest = 4 * time.Minute
)

// protocolError is about input that can't be understood: what follows can't be, either, so the connection ends.
type protocolError struct{ text string }

func (e *protocolError) Error() string { return "Protocol error: " + e.text }

func malformed(format string, args ...any) error { return &protocolError{fmt.Sprintf(format, args...)} }

// reader reads commands.
type reader struct {
	net      net.Conn
	in       *bufio.Reader
	patience time.Duration
	last     time.Time // of the command
	waited   time.Time // when wait last set the time, if it has in this command
}

// wait gives the client time for what it has to send, or to take. It is asked for often, so it may be a little less.
func (r *reader) wait() error {
	now := time.Now()
	if now.Sub(r.waited) < r.patience/32 {
		return nil
	}
	r.waited = now
	until := now.Add(r.patience)
	if until.After(r.last) {
		until = r.last
	}
	return r.net.SetDeadline(until)
}

// header reads a line that is a kind and a number.
func (r *reader) header(kind byte) (int64, error) {
	line, err := r.in.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, bufio.ErrBufferFull) {
			return 0, malformed("a line has more than %d bytes", buffer)
		}
		return 0, err
	}
	text, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok || len(text) == 0 || text[0] != kind {
		return 0, malformed("expected '%c', got %.32q", kind, line)
	}
	n, ok := number(text[1:])
	if !ok {
		return 0, malformed("expected a number, got %.32q", text)
	}
	return n, nil
}

// number reads a decimal number as Redis writes it.
func number(text []byte) (int64, bool) {
	if len(text) == 0 || len(text) > len("-9223372036854775808") || text[0] == '+' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	return n, err == nil
}

// length reads the length of an argument.
func (r *reader) length(most int64) (int64, error) {
	switch n, err := r.header('$'); {
	case err != nil:
		return 0, err
	case n < 0 || n > most:
		return 0, malformed("an argument of %d bytes, %d are the most", n, most)
	default:
		return n, nil
	}
}

// fill reads a part of an argument into b.
func (r *reader) fill(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), stride)
		if n == stride {
			if err := r.wait(); err != nil {
				return err
			}
		}
		if _, err := io.ReadFull(r.in, b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// skip reads past a part of an argument.
func (r *reader) skip(n int64) error {
	for n > 0 {
		if n >= stride {
			if err := r.wait(); err != nil {
				return err
			}
		}
		m, err := r.in.Discard(int(min(n, stride)))
		if n -= int64(m); err != nil {
			return err
		}
	}
	return nil
}

// end reads the end of an argument.
func (r *reader) end() error {
	b, err := r.in.Peek(len("\r\n"))
	if err != nil {
		return err
	}
	if string(b) != "\r\n" {
		return malformed("an argument is longer than announced")
	}
	_, err = r.in.Discard(len(b))
	return err
}

// skipArgs reads past whole arguments.
func (r *reader) skipArgs(n, most int64) error {
	for range n {
		size, err := r.length(most)
		if err == nil {
			err = r.skip(size)
		}
		if err == nil {
			err = r.end()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// words are arguments of a command. Those of one command are in one piece of memory, which the next command takes.
type words struct {
	text []byte
	ends []int
}

func (w *words) reset() {
	if cap(w.text) > 4<<10 {
		w.text = nil
	}
	w.text, w.ends = w.text[:0], w.ends[:0]
}

// cut forgets all but the first n words.
func (w *words) cut(n int) { w.text, w.ends = w.text[:w.ends[n-1]], w.ends[:n] }

func (w *words) len() int { return len(w.ends) }

// at returns a word, until the next call of read.
func (w *words) at(i int) []byte {
	from := 0
	if i > 0 {
		from = w.ends[i-1]
	}
	return w.text[from:w.ends[i]]
}

// read reads one more argument. It is empty and kept is false if there is no room for it.
func (w *words) read(r *reader, most int64) (kept bool, err error) {
	n, err := r.length(most)
	if err != nil {
		return false, err
	}
	if kept = len(w.ends) < maxWords && int64(len(w.text))+n <= maxText; !kept {
		err = r.skip(n)
	} else {
		at := len(w.text)
		w.text = append(w.text, make([]byte, n)...)
		w.ends = append(w.ends, len(w.text))
		err = r.fill(w.text[at:])
	}
	if err == nil {
		err = r.end()
	}
	return kept, err
}
