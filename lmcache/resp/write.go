package resp

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/tier"
)

// writer writes answers. Errors of the connection come with the next flush.
type writer struct {
	out      *bufio.Writer
	protocol int // 2 or 3
}

func (w *writer) line(kind byte, text string) {
	_ = w.out.WriteByte(kind)
	_, _ = w.out.WriteString(text)
	_, _ = w.out.WriteString("\r\n")
}

func (w *writer) head(kind byte, n int64) {
	_ = w.out.WriteByte(kind)
	_, _ = w.out.Write(strconv.AppendInt(w.out.AvailableBuffer(), n, 10))
	_, _ = w.out.WriteString("\r\n")
}

func (w *writer) ok()         { w.line('+', "OK") }
func (w *writer) int(n int64) { w.head(':', n) }
func (w *writer) array(n int) { w.head('*', int64(n)) }
func (w *writer) bulk(b []byte) {
	w.head('$', int64(len(b)))
	_, _ = w.out.Write(b)
	_, _ = w.out.WriteString("\r\n")
}
func (w *writer) text(s string)   { w.bulk([]byte(s)) }
func (w *writer) status(s string) { w.line('+', s) }

// fields begins an answer of pairs.
func (w *writer) fields(n int) {
	if w.protocol == 3 {
		w.head('%', int64(n))
		return
	}
	w.array(2 * n)
}

func (w *writer) null() {
	if w.protocol == 3 {
		w.line('_', "")
		return
	}
	w.line('$', "-1")
}

// error writes an error, which must begin with a word in capitals. What a client has sent may be in it.
func (w *writer) error(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.line('-', strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text))
}

// headerLen is how many bytes the header of a value of n bytes has.
func headerLen(n int64) int { return len("$") + len(strconv.FormatInt(n, 10)) + len("\r\n") }

// padded writes an error that is exactly n bytes long.
func (w *writer) padded(n int) {
	const text = "NO SUCH OBJECT ANY MORE: IT IS GONE"
	w.line('-', text[:n-len("-\r\n")])
}

// value is the value that a connection sends. The next one takes its memory.
type value struct {
	send   func(o tier.Object, b []byte) error // sendValue, for a Store
	err    error                               // of it
	header []byte
	parts  net.Buffers
	array  [3][]byte // of parts
}

// sendValue writes the bytes of an object from where they are.
func (c *conn) sendValue(b []byte) error {
	if len(b) <= buffer/2 {
		c.bulk(b)
		return nil
	}
	if err := errors.Join(c.wait(), c.out.Flush()); err != nil { // looking may have taken long
		return err
	}
	v := &c.value
	v.header = append(strconv.AppendInt(append(v.header[:0], '$'), int64(len(b)), 10), '\r', '\n')
	v.parts = append(v.array[:0], v.header)
	for {
		n := min(len(b), stride)
		v.parts = append(v.parts, b[:n])
		if b = b[n:]; len(b) == 0 {
			v.parts = append(v.parts, v.header[len(v.header)-len("\r\n"):])
		}
		if _, err := v.parts.WriteTo(c.net); err != nil || len(b) == 0 {
			return err
		}
		if err := c.wait(); err != nil {
			return err
		}
		v.parts = v.array[:0]
	}
}
