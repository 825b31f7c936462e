package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/cloudwego/shmipc-go"

	"github.com/ringcache/ringcache/serde"
)

// shmipcJob sends the bare bytes of an item to another Go process through shmipc-go: a copy into shared
// memory, and a read in place, or a copy where they lie in several pieces.
type shmipcJob struct {
	item    *serde.Item
	folder  string
	child   *exec.Cmd
	ready   io.Reader
	session *shmipc.SessionManager
	stream  *shmipc.Stream
}

// shmipcQuiet is its level of logging at which it is silent.
const shmipcQuiet = 5

func overShmipc() Job { return &shmipcJob{} }

func (*shmipcJob) Peer() string { return "shmipc-go" }

func (j *shmipcJob) Prepare(c Case) (err error) {
	shmipc.SetLogLevel(shmipcQuiet)
	j.item = qwenItem(c.Size)
	if j.folder, err = os.MkdirTemp("", "ringcache-compare-"); err != nil {
		return err
	}
	path := filepath.Join(j.folder, "socket")
	program, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.Command(program, "--child", path)
	child.Stderr = os.Stderr
	if j.ready, err = child.StdoutPipe(); err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	j.child = child
	if _, err := io.ReadFull(j.ready, make([]byte, 1)); err != nil { // it listens
		return fmt.Errorf("the receiver ended: %w", err)
	}
	o := shmipc.DefaultSessionManagerConfig()
	o.Network, o.Address, o.SessionNum = "unix", path, 1
	o.MemMapType, o.LogOutput = shmipc.MemMapTypeMemFd, io.Discard
	o.ShareMemoryPathPrefix = "/dev/shm/" + segmentName()
	o.QueuePath = "/dev/shm/" + segmentName() + "-queue"
	o.ShareMemoryBufferCap = uint32(max(8*(c.Size+slack), 32*mib))
	if j.session, err = shmipc.NewSessionManager(o); err != nil {
		return err
	}
	j.stream, err = j.session.GetStream()
	return err
}

func (j *shmipcJob) Run(n int) ([]float64, error) { return exchange(j, n) }

func (j *shmipcJob) open(Case, string) (map[string]any, error) { return nil, nil }
func (j *shmipcJob) accept() error                             { return nil }

func (j *shmipcJob) send() (int64, error) {
	pixels, grid := tensorOf(j.item, 0).Data, tensorOf(j.item, 1).Data
	began := now()
	w := j.stream.BufferWriter()
	for _, b := range [][]byte{binary.LittleEndian.AppendUint64(nil, uint64(len(pixels)+len(grid))), pixels, grid} {
		if _, err := w.WriteBytes(b); err != nil {
			return 0, err
		}
	}
	return began, j.stream.Flush(false)
}

func (j *shmipcJob) answer() (int64, error) {
	b, err := j.stream.BufferReader().ReadBytes(8)
	if err != nil {
		return 0, err
	}
	at := int64(binary.LittleEndian.Uint64(b))
	j.stream.BufferReader().ReleasePreviousRead()
	return at, nil
}

func (j *shmipcJob) Close() (err error) {
	if j.stream != nil {
		err = j.stream.Close()
	}
	if j.session != nil {
		err = errors.Join(err, j.session.Close())
	}
	if j.child != nil {
		_ = j.child.Process.Kill() // it may wait for a connection that never came
		_ = j.child.Wait()
	}
	return errors.Join(err, os.RemoveAll(j.folder))
}

// receiveShmipc is the receiver, in a process of its own.
func receiveShmipc(path string) error {
	shmipc.SetLogLevel(shmipcQuiet)
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Print(".") // the sender waits for it
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	o := shmipc.DefaultConfig()
	o.LogOutput = io.Discard
	s, err := shmipc.Server(conn, o)
	if err != nil {
		return err
	}
	defer s.Close()
	stream, err := s.AcceptStream()
	if err != nil {
		return err
	}
	var sum byte
	for {
		in := stream.BufferReader()
		head, err := in.ReadBytes(8)
		if err != nil {
			return nil // the sender has ended
		}
		n := int(binary.LittleEndian.Uint64(head))
		data, err := in.ReadBytes(n)
		if err != nil {
			return err
		}
		sum += data[0]
		at := now()
		in.ReleasePreviousRead()
		if _, err := stream.BufferWriter().WriteBytes(binary.LittleEndian.AppendUint64(nil, uint64(at))); err != nil {
			return err
		}
		if err := stream.Flush(false); err != nil {
			return err
		}
	}
}
