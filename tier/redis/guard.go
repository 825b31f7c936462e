package redis

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// guard is a connection that checks what the server sends before the client reads it. The client allocates
// what an answer announces: "$9223372036854775807" would end the process, and so would arrays that are nested
// a million times. The guard knows what was asked for, since the commands pass it, and breaks the connection
// when an answer can't be one to it.
//
// One goroutine at a time uses a connection: the client lends it to one call.
type guard struct {
	net.Conn
	commands commands
	replies  replies
	failed   error // why the connection is broken
}

// plainGuard is the guard of a connection without TLS. The client may test whether the server has closed it.
type plainGuard struct {
	guard
	syscall.Conn
}

func (g *guard) Write(p []byte) (int, error) {
	if g.failed == nil {
		g.failed = g.commands.scan(p)
	}
	if g.failed != nil {
		return 0, g.failed
	}
	return g.Conn.Write(p)
}

func (g *guard) Read(p []byte) (int, error) {
	if g.failed != nil {
		return 0, g.failed
	}
	n, err := g.Conn.Read(p)
	if g.failed = g.replies.scan(p[:n], &g.commands); g.failed != nil {
		g.Conn.Close()
		return 0, g.failed
	}
	return n, err
}

// limit is what an answer may have.
type limit struct {
	// command is what was asked, for errors.
	command string
	// values is the most elements of all arrays together.
	values int64
	// string is the most bytes of one string, and bytes of all together.
	string, bytes int64
}

const (
	// maxLine is the most bytes of a line: of an error, say.
	maxLine = 1 << 10
	// maxNested is the most arrays inside each other. CLUSTER SLOTS has four.
	maxNested = 8

	shortValues, shortString, shortBytes = 1 << 10, 4 << 10, 64 << 10
	longValues, longString, longBytes    = 16 << 10, 64 << 10, 4 << 20

	// A cluster has 16384 slots. Where each is a range of its own, after many of them were moved, there are
	// up to 32 values for each: its ends, and address, port, identifier and host name of a master and two
	// replicas.
	slotValues, slotBytes = 16384 * 32, 16 << 20
)

// limits are those of the commands that the level, its client and users of Level.Client send, as the client writes
// them. A page of
// SCAN has a few more keys than the thousand that were asked for, and a key of ours has at most 3 KiB. The
// answers of other commands are short.
var limits = map[string]limit{
	"hello":  {"HELLO", shortValues, shortString, shortBytes},
	"ping":   {"PING", shortValues, shortString, shortBytes},
	"strlen": {"STRLEN", shortValues, shortString, shortBytes},
	"set":    {"SET", shortValues, shortString, shortBytes},
	"exists": {"EXISTS", shortValues, shortString, shortBytes},
	"unlink": {"UNLINK", shortValues, shortString, shortBytes},
	"exec":   {"EXEC", shortValues, shortString, shortBytes},

	"getrange": {"GETRANGE", 0, 0, 0}, // the bytes are in the command

	"scan":    {"SCAN", longValues, longString, longBytes},
	"sscan":   {"SSCAN", longValues, longString, longBytes},
	"xrange":  {"XRANGE", longValues, longString, longBytes},
	"hmget":   {"HMGET", shortValues, longString, shortBytes},
	"cluster": {"CLUSTER SLOTS", slotValues, shortString, slotBytes},
}

// commands reads what the client writes, and knows what may be answered.
type commands struct {
	line  []byte // of a header that is not complete
	args  int    // arguments of the command that are still to come
	skip  int    // bytes of an argument that are still to come, with the end of its line
	count int    // arguments that have begun
	words [4]word
	asked []limit // of commands, the oldest first
	begun int     // of asked have an answer, or a part of it
}

// word is the beginning of an argument.
type word struct {
	text [24]byte
	len  int
}

func (w *word) bytes() []byte { return w.text[:w.len] }

func (c *commands) scan(p []byte) error {
	for len(p) > 0 {
		if c.skip > 0 {
			n := min(c.skip, len(p))
			if text := min(n, c.skip-len("\r\n")); text > 0 && c.count <= len(c.words) {
				w := &c.words[c.count-1]
				w.len += copy(w.text[w.len:], p[:text])
			}
			p = p[n:]
			if c.skip -= n; c.skip == 0 {
				c.ended()
			}
			continue
		}
		line, rest, err := nextLine(&c.line, p)
		if err != nil {
			return fmt.Errorf("tier/redis: a command of the client: %w", err)
		}
		p = rest
		if line == nil {
			break
		}
		n, ok := number(line[1:])
		switch {
		case ok && n > 0 && c.args == 0 && line[0] == '*':
			c.args, c.count = int(n), 0
		case ok && n >= 0 && c.args > 0 && line[0] == '$':
			c.skip = int(n) + len("\r\n")
			if c.count++; c.count <= len(c.words) {
				c.words[c.count-1].len = 0
			}
		default:
			return fmt.Errorf("tier/redis: a command of the client has %.32q", line)
		}
	}
	return nil
}

// ended counts an argument, and notes what may be answered to a command that is complete.
func (c *commands) ended() {
	if c.args--; c.args > 0 {
		return
	}
	l, ok := limits[string(c.words[0].bytes())]
	if !ok {
		l = limit{"a command", shortValues, shortString, shortBytes}
	}
	if l.command == "GETRANGE" && c.count == 4 {
		from, _ := number(c.words[2].bytes())
		to, _ := number(c.words[3].bytes())
		l.string, l.bytes = to-from+1, to-from+1
	}
	c.asked = append(c.asked, l)
}

// next returns what may be in the next answer, and false if there is none.
func (c *commands) next() (limit, bool) {
	if c.begun == len(c.asked) {
		return limit{}, false
	}
	l := c.asked[c.begun]
	if c.begun++; c.begun == len(c.asked) {
		c.asked, c.begun = c.asked[:0], 0
	}
	return l, true
}

// replies reads what the server sends.
type replies struct {
	line  []byte // of a header that is not complete
	skip  int64  // bytes of a string that are still to come, with its end
	begun bool
	left  limit // what the answer that has begun may still have
	open  [maxNested]int64
	depth int // arrays that are open; what is still to come of each is in open
}

func (r *replies) scan(p []byte, c *commands) error {
	for len(p) > 0 {
		if !r.begun {
			if r.left, r.begun = c.next(); !r.begun {
				return r.wrong("there is an answer to no command")
			}
		}
		if r.skip > 0 {
			n := min(r.skip, int64(len(p)))
			if cr, lf := r.skip-2, r.skip-1; cr >= 0 && cr < n && p[cr] != '\r' || lf < n && p[lf] != '\n' {
				return r.wrong("the string in the answer to %s has another length than announced", r.left.command)
			}
			p = p[n:]
			if r.skip -= n; r.skip == 0 {
				r.ended()
			}
			continue
		}
		line, rest, err := nextLine(&r.line, p)
		if err != nil {
			return r.wrong("the answer to %s has %v", r.left.command, err)
		}
		p = rest
		if line == nil {
			break
		}
		if err := r.header(line); err != nil {
			return err
		}
	}
	return nil
}

// header looks at the line with which a value begins. All lengths are checked here.
func (r *replies) header(line []byte) error {
	n, isNumber := number(line[1:])
	switch kind := line[0]; {
	case kind == '+', kind == '-', kind == ':' && isNumber:
		if r.depth > 0 {
			if r.left.bytes -= int64(len(line)); r.left.bytes < 0 {
				return r.wrong("the answer to %s has more bytes than it can have", r.left.command)
			}
		}
		r.ended()
	case (kind == '$' || kind == '*') && isNumber && n == -1: // nil
		r.ended()
	case kind == '$' && isNumber && n >= 0:
		if most := min(r.left.string, r.left.bytes); n > most {
			return r.wrong("the answer to %s announces %d bytes where at most %d can be", r.left.command, n, most)
		}
		r.left.bytes -= n
		r.skip = n + int64(len("\r\n"))
	case kind == '*' && isNumber && n >= 0:
		switch {
		case n > r.left.values:
			return r.wrong("the answer to %s announces %d elements where at most %d can be", r.left.command, n,
				r.left.values)
		case r.depth == maxNested:
			return r.wrong("the answer to %s has more than %d arrays inside each other", r.left.command, maxNested)
		case n == 0:
			r.ended()
		default:
			r.left.values -= n
			r.open[r.depth] = n
			r.depth++
		}
	default: // other kinds are of RESP3, which the client does not ask for
		return r.wrong("the answer to %s begins a value with %.32q", r.left.command, line)
	}
	return nil
}

// ended counts a value that is complete, and the arrays that are complete with it.
func (r *replies) ended() {
	for ; r.depth > 0; r.depth-- {
		if r.open[r.depth-1]--; r.open[r.depth-1] > 0 {
			return
		}
	}
	r.begun = false
}

// wrong is one error without others in it, since the client keeps the innermost one.
func (*replies) wrong(format string, args ...any) error {
	return errors.New(fmt.Sprintf(format, args...) +
		": check that the address is that of a Redis or Valkey server, and what is in front of it")
}

// nextLine returns the line at the beginning of p without its end, and what follows, or no line if it is not
// complete: its beginning is in part then.
func nextLine(part *[]byte, p []byte) (line, rest []byte, err error) {
	n := bytes.IndexByte(p, '\n') + 1
	whole := n > 0
	if !whole {
		n = len(p)
	}
	if len(*part)+n > maxLine {
		return nil, nil, fmt.Errorf("a line of more than %d bytes", maxLine)
	}
	switch {
	case !whole:
		*part = append(*part, p...)
		return nil, nil, nil
	case len(*part) == 0:
		line = p[:n]
	default:
		line = append(*part, p[:n]...)
		*part = line[:0]
	}
	if len(line) < len("+\r\n") || line[len(line)-2] != '\r' {
		return nil, nil, fmt.Errorf("a line that is %.32q", line)
	}
	return line[:len(line)-len("\r\n")], p[n:], nil
}

// number reads a decimal number of at most 64 bits.
func number(text []byte) (int64, bool) {
	if len(text) == 0 || len(text) > len("-9223372036854775808") || text[0] == '+' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	return n, err == nil
}
