package cuda

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/pin"
)

// retryAfter is how long a registration waits before it tries once more. Processes that pin the same pages at
// once hinder each other while the kernel moves the pages, which takes less than that.
const retryAfter = 50 * time.Millisecond

// Register registers m with the device for every context of this process. m must begin at a page. Other
// registrations in the process must not have pages of m. If the driver fails in a way that is known to
// pass, Register tries once more after 50 ms.
//
// What the driver refuses is an [*Error]. ReadOnly fails with errors.ErrUnsupported where the device has no
// such registrations.
func (d *Driver) Register(m []byte, o pin.RegisterOptions) (pin.Registration, error) {
	base := mem.Addr(m)
	switch page := uintptr(os.Getpagesize()); {
	case len(m) == 0:
		return nil, fmt.Errorf("%w: no memory to register", errInvalid)
	case base%page != 0:
		return nil, fmt.Errorf("%w: memory at %#x does not begin at a page of %d bytes", errInvalid, base, page)
	case o.ReadOnly && !d.readOnly:
		return nil, fmt.Errorf("cuda: %w: the device can't register memory that is mapped to read only (attribute %d is 0): map it writable",
			errors.ErrUnsupported, readOnlyHostRegisterSupported)
	}
	if err := d.begin(&d.registrations); err != nil {
		return nil, err
	}
	flags := uint(flagPortable)
	if o.ReadOnly {
		flags |= flagReadOnly
	}
	c := d.lib.register(m, flags)
	if c == invalidValue || c == outOfMemory {
		time.Sleep(retryAfter)
		c = d.lib.register(m, flags)
	}
	if c != success {
		d.end(&d.registrations)
		return nil, d.failed(opRegister, c)
	}
	r := &registration{driver: d, memory: m, base: base}
	r.pinned.Store(true)
	return r, nil
}

// registration is memory that the driver pins.
type registration struct {
	driver *Driver
	memory []byte
	base   uintptr
	pinned atomic.Bool
	ending sync.Mutex // of the one call of Unregister that asks the driver
}

func (r *registration) Pinned() bool { return r.pinned.Load() }

// Unregister refuses while a Copy from the memory is open, since the device reads it. Driver codes that
// report that nothing is registered any more are no error: the registration has ended, or the driver has.
func (r *registration) Unregister() error {
	r.ending.Lock()
	defer r.ending.Unlock()
	if !r.pinned.Load() {
		return nil
	}
	if n := r.driver.copiesFrom(r.memory); n > 0 {
		return fmt.Errorf("%w: copies from the registered memory that have not ended: %d", errBusy, n)
	}
	switch c := r.driver.lib.unregister(r.base); c {
	case success, deinitialized, notRegistered:
	default:
		return r.driver.failed("cuMemHostUnregister", c)
	}
	r.pinned.Store(false)
	r.driver.end(&r.driver.registrations)
	return nil
}
