package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/shmfile"
)

// Mapping is the daemon's segment in this process. Its methods may be called from any goroutine.
type Mapping struct {
	segment wire.Segment
	path    string

	mu  sync.RWMutex // held for writing by Close
	mem []byte       // nil once closed
}

// Map maps the daemon's segment, after checking that the file is the one that the daemon means, by its
// inode and generation, is this user's, and is as long as it says. Calls that failed with [ErrSegment] work
// again afterwards. An older Mapping stays as it is.
func (c *Client) Map(ctx context.Context) (*Mapping, error) {
	if err := c.lock(ctx); err != nil {
		return nil, err
	}
	defer c.unlock()
	for try := 0; ; try++ {
		if err := c.ready(ctx); err != nil {
			return nil, err
		}
		s := *c.Hello().Segment
		m, err := mapSegment(c.o.Dir, s)
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.mapped = &s
			return m, nil
		}
		// A daemon that was started anew since Hello is asked again.
		if try > 0 || !errors.Is(err, ErrSegment) && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err := c.hangUp(); err != nil {
			return nil, err
		}
	}
}

// mapSegment maps the segment that the daemon named, after it has made sure that it is that one.
func mapSegment(dir string, s wire.Segment) (_ *Mapping, err error) {
	path, err := shmfile.Path(dir, s.Name)
	if err != nil {
		return nil, fmt.Errorf("daemon: the name of its segment: %w", err)
	}
	f, size, err := shmfile.Open(path, true)
	if err != nil {
		return nil, fmt.Errorf("daemon: its segment: %w; does this process see the daemon's %s (containers must share it)?", err, path)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := isSegment(f, size, s); err != nil {
		return nil, err
	}
	mem, err := shmfile.Map(f, s.Size, true)
	if err != nil {
		return nil, err
	}
	return &Mapping{segment: s, path: path, mem: mem}, nil
}

func isSegment(f *os.File, size int64, s wire.Segment) error {
	_, inode, err := shmfile.Identity(f)
	switch {
	case err != nil:
		return err
	case inode != s.Inode:
		return fmt.Errorf("%w: %s has inode %d, and the daemon's has %d; does this process see another directory than the daemon?", ErrSegment, f.Name(), inode, s.Inode)
	case size < s.Size:
		return fmt.Errorf("daemon: %s has %d bytes, and the daemon's segment %d: it was cut short; restart the daemon",
			f.Name(), size, s.Size)
	}
	// Each mount counts its inodes by itself: another one may have a segment with this name and inode, too.
	var first [8]byte
	if _, err := f.ReadAt(first[:], 0); err != nil {
		return fmt.Errorf("daemon: reading the generation of %s: %w", f.Name(), err)
	}
	if g := max(1, binary.LittleEndian.Uint64(first[:])); g != s.Generation {
		return fmt.Errorf("%w: %s is of generation %d, and the daemon's of %d; does this process see another directory than the daemon?", ErrSegment, f.Name(), g, s.Generation)
	}
	return nil
}

// Segment returns what is mapped.
func (m *Mapping) Segment() wire.Segment { return m.segment }

// Bytes returns the bytes of a hit, or of a reservation to write to, without copying. They are valid until
// the lease has ended or Close, and touching them when the file was cut short behind the daemon's back is a
// fault of the process, unlike in Read and Write. The error is an fs.ErrInvalid if the item is no hit and
// no reservation, or outside of the mapping, and an fs.ErrClosed after Close.
func (m *Mapping) Bytes(v wire.Item) ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.bytes(v)
}

func (m *Mapping) bytes(v wire.Item) ([]byte, error) {
	n := uint64(len(m.mem))
	switch {
	case m.mem == nil:
		return nil, fmt.Errorf("daemon: the mapping: %w", fs.ErrClosed)
	case v.Status != wire.StatusHit && v.Status != wire.StatusReserved:
		return nil, fmt.Errorf("daemon: an item that is %s has no bytes: %w", v.Status, fs.ErrInvalid)
	case len(v.Levels) > 0:
		return nil, fmt.Errorf("daemon: an item of stat has no place; pin the object: %w", fs.ErrInvalid)
	case v.Size < 0 || v.Offset > n || uint64(v.Size) > n-v.Offset:
		return nil, fmt.Errorf("daemon: %d bytes at %d are outside of the segment, which has %d: %w",
			v.Size, v.Offset, n, fs.ErrInvalid)
	}
	end := v.Offset + uint64(v.Size)
	return m.mem[v.Offset:end:end], nil
}

// Read appends the bytes of an item to b. The errors are those of Bytes, and a fault.
func (m *Mapping) Read(b []byte, v wire.Item) ([]byte, error) {
	err := m.guarded(v, func(bytes []byte) error {
		b = append(b, bytes...)
		return nil
	})
	return b, err
}

// Write copies data into a reservation, which must have as many bytes. The lease must last: the room is
// another object's some minutes later. The errors are those of Bytes, and a fault.
func (m *Mapping) Write(v wire.Item, data []byte) error {
	if v.Status != wire.StatusReserved || v.Size != int64(len(data)) {
		return fmt.Errorf("daemon: %d bytes for an item that is %s and has %d: %w",
			len(data), v.Status, v.Size, fs.ErrInvalid)
	}
	return m.guarded(v, func(bytes []byte) error {
		copy(bytes, data)
		return nil
	})
}

func (m *Mapping) guarded(v wire.Item, f func(bytes []byte) error) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	bytes, err := m.bytes(v)
	if err != nil {
		return err
	}
	if err := fault.Guard(func() error { return f(bytes) }); err != nil {
		return fmt.Errorf("daemon: %s: %w", m.path, err)
	}
	return nil
}

// Close ends the mapping. Closing twice is fine.
func (m *Mapping) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	mem := m.mem
	if m.mem = nil; mem == nil {
		return nil
	}
	return shmfile.Unmap(mem)
}
