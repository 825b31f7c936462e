package resp

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// conn is a connection. Its goroutine alone uses what is not guarded.
type conn struct {
	reader
	writer
	server *Server
	id     uint64
	store  Store
	words  words
	authed bool
	name   string // that the client has given itself
	ended  bool   // after the answer
	value  value

	// What it looks like: see doc.go. plain is that only commands of LMCache's native client came so far; asked, that
	// EXISTS was among them.
	plain, asked bool

	mu   sync.Mutex
	idle bool // between commands
}

func newConn(s *Server, nc net.Conn, id uint64) *conn {
	c := &conn{
		writer: writer{out: bufio.NewWriterSize(nc, buffer), protocol: 2},
		server: s, id: id, plain: true, authed: s.o.Password == "",
	}
	c.value.send = func(_ tier.Object, b []byte) error {
		s.counts.hits.Add(1)
		c.value.err = c.sendValue(b)
		return nil
	}
	c.reader = reader{net: nc, in: bufio.NewReaderSize(input{c}, buffer), patience: s.o.Patience}
	return c
}

// input is what a client sends. Whoever has sent a part of a command may wait for the answers to those before, so they
// are sent first.
type input struct{ c *conn }

// Read implements io.Reader.
func (i input) Read(p []byte) (int, error) {
	if i.c.out.Buffered() > 0 {
		if err := i.c.out.Flush(); err != nil {
			return 0, err
		}
	}
	return i.c.net.Read(p)
}

// serve answers commands until the connection ends.
func (c *conn) serve() {
	s := c.server
	defer s.forget(c)
	defer c.net.Close()
	store, err := s.o.Open(c.net, func() { _ = c.net.Close() }) // its goroutine notices
	if err != nil {
		s.refuse(c.net, err)
		return
	}
	defer store.Close()
	s.counts.connections.Add(1)
	c.store = store
	for err == nil && !c.ended && c.begin() {
		if err = c.command(); err == nil && c.in.Buffered() == 0 {
			err = c.flushOut()
		}
	}
	var wrong *protocolError
	if errors.As(err, &wrong) {
		s.counts.malformed.Add(1)
		s.malformed.Warn(s.o.Logger, "resp: a client does not speak Redis's protocol",
			"from", c.net.RemoteAddr(), "error", wrong)
		c.error("ERR %v", wrong)
	}
	_ = c.flushOut() // of what is left, if anybody reads it
}

// flushOut sends answers.
func (c *conn) flushOut() error {
	if c.out.Buffered() == 0 {
		return nil
	}
	return errors.Join(c.wait(), c.out.Flush())
}

// begin waits for a command. It reports false at the end of the connection or of the server.
func (c *conn) begin() bool {
	if c.in.Buffered() == 0 {
		if !c.setIdle(true) {
			return false
		}
		if _, err := c.in.Peek(1); err != nil {
			return false
		}
	}
	return c.setIdle(false)
}

// setIdle notes that a command may be waited for, for ever, or that one has begun, which does not wait so.
func (c *conn) setIdle(idle bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server.isEnding() {
		return false
	}
	c.idle, c.waited = idle, time.Time{}
	if idle {
		return c.net.SetDeadline(time.Time{}) == nil
	}
	c.last = time.Now().Add(longest)
	return c.wait() == nil
}

// finish ends the connection after the command that is under way.
func (c *conn) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle {
		_ = c.net.SetReadDeadline(time.Now()) // its goroutine notices
	}
}

// command reads and answers a command. An error ends the connection.
func (c *conn) command() error {
	n, err := c.header('*')
	most := int64(maxArgs)
	if !c.authed {
		most = maxArgsBefore
	}
	switch {
	case err != nil:
		return err
	case n > most:
		return malformed("a command of %d arguments, %d are the most", n, most)
	case n <= 0: // as Redis does
		return nil
	}
	c.words.reset()
	kept, err := c.words.read(&c.reader, c.mostOf())
	if err != nil {
		return err
	}
	if !kept {
		c.plain = false
		c.error("ERR unknown command")
		return c.skipArgs(n-1, c.mostOf())
	}
	return c.run(upper(c.words.at(0)), n-1)
}

// upper makes the letters of the name of a command capital.
func upper(name []byte) []byte {
	for i, b := range name {
		if 'a' <= b && b <= 'z' {
			name[i] = b - 'a' + 'A'
		}
	}
	return name
}

// mostOf is the most bytes of an argument.
func (c *conn) mostOf() int64 {
	if !c.authed {
		return maxValueBefore
	}
	return maxValue
}

// run runs a command with n more arguments, which it reads.
func (c *conn) run(name []byte, n int64) error {
	switch string(name) {
	case "EXISTS", "GET", "SET", "DEL", "AUTH":
	default:
		c.plain = false
	}
	cmd, known := commands[string(name)]
	switch {
	case !known:
		c.error("ERR unknown command '%.32q'", name)
		return c.skipArgs(n, c.mostOf())
	case n < int64(cmd.least) || cmd.most >= 0 && n > int64(cmd.most):
		c.error("ERR wrong number of arguments for '%s' command", bytes.ToLower(name))
		return c.skipArgs(n, c.mostOf())
	case !c.authed && !cmd.before:
		c.error("NOAUTH Authentication required.")
		return c.skipArgs(n, c.mostOf())
	case cmd.stream != nil:
		return cmd.stream(c, n)
	}
	kept := true
	for range n {
		k, err := c.words.read(&c.reader, c.mostOf())
		if err != nil {
			return err
		}
		kept = kept && k
	}
	if !kept {
		c.error("ERR a command of '%s' has more than %d arguments or %d bytes of them",
			bytes.ToLower(name), maxWords, maxText)
		return nil
	}
	return cmd.run(c)
}

// key returns the key of a name, and whether an object can have it.
func (c *conn) key(name []byte) (tier.Key, bool) {
	k := tier.Key{Space: c.server.o.Space, Name: string(name)}
	return k, k.Validate() == nil
}

// password compares what a client says. The time it takes says nothing.
func (c *conn) password(user, password []byte) bool {
	equal := func(a string, b []byte) int {
		x, y := sha256.Sum256([]byte(a)), sha256.Sum256(b)
		return subtle.ConstantTimeCompare(x[:], y[:])
	}
	return equal(c.server.o.User, user)&equal(c.server.o.Password, password) == 1
}

// patient is a context for what a command waits for beside its client.
func (c *conn) patient() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.server.ctx, c.patience)
}
