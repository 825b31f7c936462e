package cuda

import (
	"fmt"
	"sync"

	"github.com/ringcache/ringcache/internal/mem"
)

// Memory is memory of the device.
type Memory struct {
	driver  *Driver
	address uintptr
	size    int
	freeing sync.Mutex // of the one call of Free that asks the driver
	// The driver's lock guards what follows.
	freed bool
	uses  int // copies into it and reads that have not ended
}

// Alloc makes device memory of so many bytes. Its content is undefined.
func (d *Driver) Alloc(bytes int) (*Memory, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("%w: device memory of %d bytes", errInvalid, bytes)
	}
	if err := d.begin(&d.memories); err != nil {
		return nil, err
	}
	address, c := d.lib.alloc(bytes)
	if c != success {
		d.end(&d.memories)
		return nil, d.failed("cuMemAlloc", c)
	}
	return &Memory{driver: d, address: address, size: bytes}, nil
}

// Size returns the bytes of the memory.
func (m *Memory) Size() int { return m.size }

// Address returns where the device has the memory. The process can't touch it there.
func (m *Memory) Address() uintptr { return m.address }

// Free gives the memory back. It fails with an error that matches segment.ErrBusy while a copy into the
// memory, or a Read, has not ended. Freeing twice is fine.
func (m *Memory) Free() error {
	m.freeing.Lock()
	defer m.freeing.Unlock()
	d := m.driver
	if done, err := m.free(); done || err != nil {
		return err
	}
	c := d.lib.free(m.address)
	d.mu.Lock()
	defer d.mu.Unlock()
	if c != success && c != deinitialized {
		m.freed = false
		return d.failed("cuMemFree", c)
	}
	d.memories--
	return nil
}

// free marks the memory as freed, so that nothing begins to use it. done reports that it was before.
func (m *Memory) free() (done bool, err error) {
	m.driver.mu.Lock()
	defer m.driver.mu.Unlock()
	if m.uses > 0 {
		return false, fmt.Errorf("%w: copies and reads of the device memory that have not ended: %d", errBusy, m.uses)
	}
	done, m.freed = m.freed, true
	return done, nil
}

// use checks that n bytes at an offset are in the memory, and keeps it from being freed. The driver's lock is held.
func (d *Driver) use(m *Memory, offset, n int) error {
	switch {
	case d.closed:
		return errClosed
	case m.driver != d:
		return fmt.Errorf("%w: the device memory is another driver's", errInvalid)
	case m.freed:
		return fmt.Errorf("%w: the device memory was freed", errClosed)
	case offset < 0 || offset > m.size || n > m.size-offset:
		return fmt.Errorf("%w: %d bytes at %d are not in device memory of %d", errInvalid, n, offset, m.size)
	}
	m.uses++
	return nil
}

// Copy is a copy to the device that was begun. Whoever began it asks Done, or calls Wait, until one of them
// reports the end: before, the source must not change, and the driver can't be closed.
type Copy struct {
	driver *Driver
	dst    *Memory
	src    []byte
	event  uintptr

	asking sync.Mutex // of the one call that asks the driver; guards ended
	ended  bool
}

// Copy begins to copy src into device memory and does not wait for the end. All copies of a driver run one
// after the other. src must not be memory that Go made: it is usually a chunk of a mapped segment. If src is
// not registered, the call itself takes about as long as the copy.
func (d *Driver) Copy(dst *Memory, offset int, src []byte) (*Copy, error) {
	c := &Copy{driver: d, dst: dst, src: src}
	stream, err := c.begin(offset)
	if err != nil {
		return nil, err
	}
	event, op, running, n := d.lib.copy(stream, dst.address+uintptr(offset), src)
	if n != success {
		if !running { // else nobody will ever know when it ends, so it stays open
			c.end()
		}
		return nil, d.failed(op, n)
	}
	c.event = event
	return c, nil
}

// begin enters the copy among the open ones, and returns the stream for it.
func (c *Copy) begin(offset int) (stream uintptr, err error) {
	d := c.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.use(c.dst, offset, len(c.src)); err != nil {
		return 0, err
	}
	if d.stream == 0 {
		s, code := d.lib.createStream()
		if code != success {
			c.dst.uses--
			return 0, d.failed("cuStreamCreate", code)
		}
		d.stream = s
	}
	d.copies[c] = struct{}{}
	return d.stream, nil
}

// end takes the copy from the open ones.
func (c *Copy) end() {
	c.driver.mu.Lock()
	defer c.driver.mu.Unlock()
	delete(c.driver.copies, c)
	c.dst.uses--
}

// Done reports whether the copy is known to have ended, and does not wait. From then on the source may be
// reused, and a lease or a view of it released. After an error the device may still read the source; ask
// again.
func (c *Copy) Done() (bool, error) {
	if !c.asking.TryLock() {
		return false, nil // another goroutine waits, and will know
	}
	defer c.asking.Unlock()
	return c.ask(false)
}

// Wait waits for the end of the copy, like Done. The thread sleeps meanwhile, so it may notice the end tens
// of microseconds late.
func (c *Copy) Wait() error {
	c.asking.Lock()
	defer c.asking.Unlock()
	_, err := c.ask(true)
	return err
}

// ask asks the driver once, and ends the copy if it is done. Its event is gone then.
func (c *Copy) ask(wait bool) (bool, error) {
	if c.ended {
		return true, nil
	}
	switch op, n := c.driver.lib.finish(c.event, wait); n {
	case success:
		c.ended = true
		c.end()
		return true, nil
	case notReady:
		return false, nil
	default:
		return false, c.driver.failed(op, n)
	}
}

// copiesFrom returns how many open copies have their source in m.
func (d *Driver) copiesFrom(m []byte) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for c := range d.copies {
		if _, in := mem.Offset(m, mem.Addr(c.src)); in {
			n++
		}
	}
	return n
}

// Read copies device memory to dst, which may be any memory, and waits for the end. It comes after the copies that
// were begun before it.
func (d *Driver) Read(dst []byte, src *Memory, offset int) error {
	d.mu.Lock()
	err := d.use(src, offset, len(dst))
	stream := d.stream
	d.mu.Unlock()
	if err != nil {
		return err
	}
	defer d.end(&src.uses)
	if len(dst) == 0 {
		return nil
	}
	if op, c := d.lib.read(stream, dst, src.address+uintptr(offset)); c != success {
		return d.failed(op, c)
	}
	return nil
}
