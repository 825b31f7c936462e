package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// server is a process with a server.
type server struct {
	name, address string
	cmd           *exec.Cmd
	fresh         int // number of the next key of SET
}

func startOurs(dir, _ string) (*server, error) {
	program := filepath.Join(dir, "program")
	build := exec.Command("go", "build", "-o", program, "./cmd/ringcache")
	build.Dir, build.Stderr = "..", os.Stderr // the module of the command, seen from bench
	if err := build.Run(); err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	return start("ours", address, exec.Command(program, "serve", "--socket", filepath.Join(dir, "s"), "--shm-dir", dir,
		"--size", strconv.Itoa(memory), "--prefault", "--http", "127.0.0.1:0", "--resp", address))
}

// startRedis starts the redis-server of a folder with the files of its package, or of PATH.
func startRedis(dir, folder string) (*server, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	program := "redis-server"
	var libraries []string
	if folder != "" {
		program = filepath.Join(folder, "usr/bin/redis-server")
		if libraries, err = filepath.Glob(filepath.Join(folder, "usr/lib/*")); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--dir", dir, "--maxmemory", strconv.Itoa(memory), "--maxmemory-policy", "allkeys-lru", "--loglevel", "warning")
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	return start("redis", address, cmd)
}

// freeAddress returns an address at which nobody listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// start starts a server, which dies with this process, and waits for it.
func start(name, address string, cmd *exec.Cmd) (*server, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{name: name, address: address, cmd: cmd}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", address)
		if err == nil {
			return s, c.Close()
		}
		if time.Now().After(end) {
			s.kill()
			return nil, fmt.Errorf("%s does not serve: %s", name, &log)
		}
	}
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill() // it has nothing to save
	_ = s.cmd.Wait()
}

// processors returns how many seconds of the processors the server has used.
func (s *server) processors() float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	var ticks float64
	for i, f := range strings.Fields(rest) {
		if i == 11 || i == 12 { // user and system
			n, _ := strconv.ParseFloat(f, 64)
			ticks += n
		}
	}
	return ticks / 100
}

// keys are how many values are read.
const keys = 64

// load sends commands by connections for a while, and returns how long each took.
func (s *server) load(
	op string, size, conns int, turn time.Duration,
) (all []time.Duration, took time.Duration, err error) {
	peers := make([]*peer, conns)
	for i := range peers {
		if peers[i], err = dial(s.address, size); err != nil {
			return nil, 0, err
		}
		defer peers[i].conn.Close()
	}
	if op == "GET" {
		for k := range keys {
			if err := peers[0].set(readKey(size, k)); err != nil {
				return nil, 0, err
			}
		}
	}
	first := s.fresh
	s.fresh += 1 << 24
	var mu sync.Mutex
	var wg sync.WaitGroup
	begin := time.Now()
	for i, p := range peers {
		wg.Go(func() {
			var calls []time.Duration
			var failed error
			for n := i; failed == nil && time.Since(begin) < turn; n += conns {
				before := time.Now()
				if op == "GET" {
					failed = p.get(readKey(size, n%keys))
				} else {
					failed = p.set("fresh" + strconv.Itoa(first+n))
				}
				calls = append(calls, time.Since(before))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, calls...)
			if failed != nil {
				err = failed
			}
		})
	}
	wg.Wait()
	return all, time.Since(begin), err
}

func readKey(size, n int) string { return fmt.Sprintf("org/model@1@0@%x%04x@bfloat16", size, n) }

// peer is a connection, which asks for one thing at a time.
type peer struct {
	conn  net.Conn
	in    *bufio.Reader
	out   []byte
	value []byte // that is sent, or was read
}

func dial(address string, size int) (*peer, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	p := &peer{conn: conn, in: bufio.NewReaderSize(conn, 4096), value: make([]byte, size+2)}
	for i := range p.value[:size] {
		p.value[i] = byte(i * 7)
	}
	copy(p.value[size:], "\r\n")
	return p, nil
}

func (p *peer) expect(want string) error {
	line, err := p.in.ReadSlice('\n')
	if err == nil && string(line) != want {
		err = fmt.Errorf("an answer is %.100q instead of %q", line, want)
	}
	return err
}

func (p *peer) set(key string) error {
	p.out = fmt.Appendf(p.out[:0], "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n", len(key), key, len(p.value)-2)
	parts := net.Buffers{p.out, p.value}
	if _, err := parts.WriteTo(p.conn); err != nil {
		return err
	}
	return p.expect("+OK\r\n")
}

func (p *peer) get(key string) error {
	p.out = fmt.Appendf(p.out[:0], "*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", len(key), key)
	if _, err := p.conn.Write(p.out); err != nil {
		return err
	}
	if err := p.expect("$" + strconv.Itoa(len(p.value)-2) + "\r\n"); err != nil {
		return err
	}
	_, err := io.ReadFull(p.in, p.value)
	return err
}
