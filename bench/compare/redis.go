package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ringcache/ringcache/serde"
)

// redisLink keeps the bare bytes of an item under a key of a Redis server, without persistence, over its Unix
// socket, and names the key in a list for which the receiver waits. Eight keys are used in turn, as a ring
// has room for eight.
type redisLink struct {
	folder string // of the distribution's package
	item   *serde.Item
	server *exec.Cmd
	conn   net.Conn
	in     *bufio.Reader
	made   int
}

func overRedis() maker {
	return over("Redis", "receive", func(e *environment) link { return &redisLink{folder: e.options.Redis} })
}

func (l *redisLink) open(c Case, folder string) (map[string]any, error) {
	if l.folder == "" {
		return nil, fmt.Errorf("the package redis-server is %w", errUnavailable)
	}
	l.item = qwenItem(c.Size)
	path := filepath.Join(folder, "socket")
	l.server = exec.Command(filepath.Join(l.folder, "usr/bin/redis-server"), "--port", "0", "--unixsocket", path,
		"--save", "",
		"--appendonly", "no", "--dir", folder, "--loglevel", "warning")
	libraries, err := filepath.Glob(filepath.Join(l.folder, "usr/lib/*"))
	if err != nil {
		return nil, err
	}
	l.server.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	l.server.Stderr = os.Stderr
	if err := l.server.Start(); err != nil {
		l.server = nil
		return nil, err
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		if l.conn, err = net.Dial("unix", path); err == nil {
			break
		}
		if time.Now().After(deadline) {
			return nil, err
		}
	}
	l.in = bufio.NewReader(l.conn)
	return map[string]any{"way": "redis", "endpoint": path}, nil
}

func (*redisLink) accept() error { return nil }

func (l *redisLink) send() (int64, error) {
	l.made++
	key := keyOf(l.made % 8)
	pixels, grid := tensorOf(l.item, 0).Data, tensorOf(l.item, 1).Data
	began := now()
	all := net.Buffers{
		fmt.Appendf(nil, "*3\r\n$3\r\nSET\r\n$64\r\n%s\r\n$%d\r\n", key, len(pixels)+len(grid)), pixels, grid,
		fmt.Appendf(nil, "\r\n*3\r\n$5\r\nRPUSH\r\n$4\r\nkeys\r\n$64\r\n%s\r\n", key),
	}
	if _, err := all.WriteTo(l.conn); err != nil {
		return 0, err
	}
	return began, errors.Join(l.expect("+OK"), l.expect(":1"))
}

// answer waits for what the receiver pushes to another list.
func (l *redisLink) answer() (int64, error) {
	if _, err := io.WriteString(l.conn, "*3\r\n$5\r\nBLPOP\r\n$7\r\nanswers\r\n$1\r\n0\r\n"); err != nil {
		return 0, err
	}
	if err := errors.Join(l.expect("*2"), l.expect("$7"), l.expect("answers"), l.expect("$")); err != nil {
		return 0, err
	}
	line, err := l.in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(line), 10, 64)
}

// expect reads a line that begins with prefix.
func (l *redisLink) expect(prefix string) error {
	line, err := l.in.ReadString('\n')
	if err == nil && !strings.HasPrefix(line, prefix) {
		return fmt.Errorf("redis answered %q instead of %s", line, prefix)
	}
	return err
}

func (l *redisLink) Close() (err error) {
	if l.conn != nil {
		_, err = io.WriteString(l.conn, "*3\r\n$5\r\nRPUSH\r\n$4\r\nkeys\r\n$3\r\nend\r\n")
		err = errors.Join(err, l.expect(":"), l.conn.Close())
	}
	if l.server != nil {
		err = errors.Join(err, l.server.Process.Signal(os.Interrupt))
		_ = l.server.Wait() // how it ends does not matter
	}
	return err
}
