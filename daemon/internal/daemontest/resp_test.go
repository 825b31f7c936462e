//go:build linux

package daemontest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/sessionless"
	"github.com/ringcache/ringcache/lmcache/resp"
	"github.com/ringcache/ringcache/tier"
)

var (
	respKillCount = flag.Int("resp.kills", 12, "TestRESPKills kills so many daemons")
	respKillSeed  = flag.Uint64("resp.kills.seed", 0, "seed of TestRESPKills; 0 makes one up")

	respLieCount = flag.Int("resp.lies", 4000, "TestRESPLies sends so many lying commands")
	respLieSeed  = flag.Uint64("resp.lies.seed", 0, "seed of TestRESPLies; 0 makes one up")
)

func TestRESPKills(t *testing.T) {
	killServersOfValues(t, protocolRESP, *respKillCount, seedOf(t, "resp.kills.seed", *respKillSeed))
}

func TestRESPLies(t *testing.T) {
	lieToServerOfValues(t, protocolRESP, *respLieCount, seedOf(t, "resp.lies.seed", *respLieSeed))
}

// respProtocol is Redis's. A value begins with which one it is.
var respProtocol = valueProtocol{
	space: resp.Space,
	grace: 100 * time.Millisecond, // what EXISTS has pinned outlives a daemon by it: no process owns those pins
	serve: func(p *sessionless.Protocol, store *tier.Store, log *slog.Logger) (server, int, error) {
		pins, err := p.Pins()
		if err != nil {
			return nil, 0, err
		}
		s, err := resp.NewServer(resp.Options{
			Store: store, Space: resp.Space, Pins: pins, PinTime: 200 * time.Millisecond, Flush: true,
			Open:           func(raw net.Conn, end func()) (resp.Store, error) { return p.Enter(raw, end) },
			MaxConnections: math.MaxInt, Logger: log,
		})
		if err != nil {
			pins.Close()
		}
		return s, 1, err // one session has what EXISTS has pinned
	},
	dial: func(socket string, i int) valueConn { return &respConn{socket: socket, native: i%2 == 0} },
	lies: func(rng *rand.Rand) lyingConn { return &respLies{rng} },
}

type respConn struct {
	socket string
	native bool     // sends nothing else than LMCache's native client
	conn   net.Conn // nil if there is none
	in     *bufio.Reader
}

func (c *respConn) close() {
	if c.conn != nil {
		_ = c.conn.Close() // what was sent was answered
		c.conn = nil
	}
}

func (c *respConn) put(_ context.Context, key string, v versioned) (refused bool, err error) {
	b := binary.BigEndian.AppendUint32(nil, uint32(v.n))
	b = append(binary.BigEndian.AppendUint32(b, uint32(v.version)), v.bytes()...)
	line, _, err := c.do("SET", key, string(b))
	switch {
	case err != nil:
		return false, err
	case line == "+OK":
		return false, nil
	case line[0] != '-' || c.native && len(line) != len("+OK"): // the native client reads no more of an answer
		return false, wrongf("SET is answered %.100q", line)
	}
	return true, nil
}

func (c *respConn) exists(_ context.Context, key string) (bool, error) {
	line, _, err := c.do("EXISTS", key)
	if err == nil && line != ":0" && line != ":1" {
		err = wrongf("EXISTS is answered %.100q", line)
	}
	return line == ":1", err
}

func (c *respConn) get(_ context.Context, key string) (v versioned, b []byte, found bool, err error) {
	line, b, err := c.do("GET", key)
	switch {
	case err != nil, line == "$-1", line[0] == '-' && c.native:
		return v, nil, false, err
	case line[0] != '$' || len(b) < 8:
		return v, nil, false, wrongf("GET is answered %.100q", line)
	}
	v = versioned{int32(binary.BigEndian.Uint32(b)), int32(binary.BigEndian.Uint32(b[4:]))}
	return v, b[8:], true, nil
}

// do sends a command, and returns the first line of the answer, and the value behind it.
func (c *respConn) do(args ...string) (line string, value []byte, err error) {
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if c.conn == nil {
		conn, err := net.Dial("unix", c.socket)
		if err != nil {
			return "", nil, err
		}
		c.conn, c.in = conn, bufio.NewReader(conn)
		if !c.native {
			if line, _, err := c.do("PING"); err != nil || line != "+PONG" {
				return "", nil, errors.Join(err, io.ErrUnexpectedEOF)
			}
		}
	}
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", nil, err
	}
	if _, err := c.conn.Write(respCommand(args...)); err != nil {
		return "", nil, err
	}
	return readRESP(c.in)
}

// respCommand is a command as clients write it.
func respCommand(args ...string) []byte {
	out := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		out = fmt.Appendf(out, "$%d\r\n%s\r\n", len(a), a)
	}
	return out
}

// readRESP reads an answer that is not an array.
func readRESP(in *bufio.Reader) (line string, value []byte, err error) {
	text, err := in.ReadString('\n')
	if err != nil {
		return "", nil, err
	}
	line, ok := strings.CutSuffix(text, "\r\n")
	if !ok || line == "" {
		return "", nil, wrongf("a line of an answer is %.100q", text)
	}
	if line[0] != '$' || line == "$-1" {
		return line, nil, nil
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil || n < 0 || n > 1<<20 {
		return "", nil, wrongf("a value is announced as %.100q", line)
	}
	value = make([]byte, n+2)
	if _, err := io.ReadFull(in, value); err != nil {
		return "", nil, err
	}
	if string(value[n:]) != "\r\n" {
		return "", nil, wrongf("a value of %d bytes does not end there", n)
	}
	return line, value[:n], nil
}

type respLies struct{ rng *rand.Rand }

// judge looks whether all are answers. The last one may be cut off, as the command was to which it belongs.
func (l *respLies) judge(got []byte, _ bool) error {
	in := bufio.NewReader(bytes.NewReader(got))
	for {
		err := skipRESP(in)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// skipRESP reads an answer of any kind.
func skipRESP(in *bufio.Reader) error {
	next, err := in.Peek(1)
	if err != nil {
		return err
	}
	if !strings.ContainsRune("*%_:", rune(next[0])) {
		line, _, err := readRESP(in)
		if err == nil && line[0] != '+' && line[0] != '-' && line[0] != '$' {
			err = wrongf("an answer is %.100q", line)
		}
		return err
	}
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(strings.TrimSuffix(line[1:], "\r\n"))
	switch {
	case line == "_\r\n":
		return nil
	case err != nil || n < 0 || n > 1<<20:
		return wrongf("an answer is %.100q", line)
	case line[0] == ':':
		return nil
	case line[0] == '%':
		n *= 2
	}
	for range n {
		if err := skipRESP(in); err != nil {
			return err
		}
	}
	return nil
}

func (l *respLies) request() []byte {
	key := func() string { return fmt.Sprintf("lies%d@1@0@%x@half", l.rng.IntN(2), l.rng.IntN(20)) }
	var b []byte
	switch l.rng.IntN(12) {
	case 0, 1, 2:
		value := strings.Repeat(string(rune('a'+l.rng.IntN(3))), l.rng.IntN(1<<l.rng.IntN(17)))
		b = respCommand("SET", key()+[]string{"", "kv_bytes", "metadata", "\x00"}[l.rng.IntN(4)], value)
	case 3, 4:
		b = respCommand("GET", key())
	case 5:
		b = respCommand("EXISTS", key(), key()+"metadata")
	case 6:
		b = respCommand("MGET", key(), key(), "")
	case 7:
		b = respCommand("DEL", key(), key())
	case 8:
		list := [][]string{
			{"HELLO", "3"}, {"HELLO", "9"}, {"AUTH", "x"}, {"RESET"}, {"FLUSHALL"}, {"INFO"}, {"COMMAND", "DOCS"},
			{"TIME"}, {"CLIENT", "ID"},
			{"SET", key(), "v", "EX", "1"}, {strings.Repeat("n", 1<<l.rng.IntN(18))}, {"QUIT"}, {},
		}
		b = respCommand(list[l.rng.IntN(len(list))]...)
	case 9: // more than is sent
		b = respCommand("SET", key(), "v")
		n := []int64{-1, 1 << 20, 512 << 20, 1<<63 - 1, l.rng.Int64()}[l.rng.IntN(5)]
		b = []byte(strings.Replace(string(b), "$1\r\nv", fmt.Sprintf("$%d\r\nv", n), 1))
	case 10:
		b = fmt.Appendf(nil, "*%d\r\n", []int64{0, -1, 1 << 20, 1<<63 - 1, l.rng.Int64()}[l.rng.IntN(5)])
	default:
		b = respCommand("STRLEN", key())
	}
	if l.rng.IntN(8) == 0 {
		for range 1 + l.rng.IntN(4) {
			b[l.rng.IntN(len(b))] ^= 1 << l.rng.IntN(8)
		}
	}
	return b
}
