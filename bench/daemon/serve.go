package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/ringcache/ringcache/bench/internal/measure"
	"github.com/ringcache/ringcache/daemon"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/memory"
)

// What this program is when it has one of these as its only argument: a daemon, or an echo.
const (
	serveRole = "(serve)"
	echoRole  = "(echo)"
)

// order is the first line that a child reads.
type order struct {
	Socket, Dir string
	Size        int64
	Objects     int
}

// taken is a line that the daemon answers other lines with.
type taken struct {
	Heap    uint64 // bytes of live objects
	Private int64  // bytes of the process's own memory, after a collection
}

// begin reads the order, and makes room for the socket.
func begin() (o order, in *bufio.Reader, err error) {
	in = bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &o)
	}
	if err != nil {
		return o, in, err
	}
	if err := os.Remove(o.Socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return o, in, err
	}
	return o, in, nil
}

// serve is a daemon over a segment, until the end of its input.
func serve() error {
	o, in, err := begin()
	if err != nil {
		return err
	}
	records := max(o.Objects*5/4, 8<<10) // one process pins a part of them
	level, err := memory.Open(memory.Options{Name: segment, Dir: o.Dir, Size: o.Size, MaxObjects: records,
		MaxLeases: 16 << 10, MaxPins: 128 << 10})
	if err != nil {
		return err
	}
	store, err := tier.Open(context.Background(), tier.Options{Memory: level})
	if err != nil {
		return err
	}
	s, err := daemon.NewServer(daemon.ServerOptions{
		Store: store, Memory: level, ShmDir: o.Dir,
		Limits: daemon.Limits{MaxSessions: 8 << 10, MaxConnections: 8 << 10, MaxLeases: 4 << 10,
			MaxHeld: 64 * o.Size},
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", o.Socket)
	if err != nil {
		return err
	}
	go func() { _ = s.Serve(l) }()
	out := json.NewEncoder(os.Stdout)
	for {
		var m runtime.MemStats
		debug.FreeOSMemory()
		runtime.ReadMemStats(&m)
		private, err := measure.PrivateMemory("self")
		if err != nil {
			return err
		}
		if err := out.Encode(taken{m.HeapAlloc + m.StackInuse, private}); err != nil {
			return err
		}
		if _, err := in.ReadBytes('\n'); err != nil {
			break
		}
	}
	return errors.Join(s.Shutdown(context.Background()), store.Close(), level.Close())
}

// echo answers frames with frames whose length is the first word of the body.
func echo() error {
	o, in, err := begin()
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", o.Socket)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				frame := make([]byte, 1<<20)
				for r := wire.NewReader(c, wire.MaxRequest); ; {
					body, err := r.Next()
					if err != nil {
						return
					}
					n := binary.LittleEndian.Uint32(body)
					binary.LittleEndian.PutUint32(frame, n)
					if _, err := c.Write(frame[:n+4]); err != nil {
						return
					}
				}
			}()
		}
	}()
	if err := json.NewEncoder(os.Stdout).Encode(taken{}); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, in)
	return nil
}
