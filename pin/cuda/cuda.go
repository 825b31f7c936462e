package cuda

import (
	"fmt"
	"sync"

	"github.com/ringcache/ringcache/pin"
)

// Options are what [Open] needs besides the device.
type Options struct {
	// Library is the path of the driver's library, for tests and odd installations. Empty is libcuda.so.1,
	// where the system's loader finds it and in the usual folders.
	Library string
}

// Driver is NVIDIA's driver with the primary context of one device. It is a [pin.Registrar].
type Driver struct {
	lib      library
	device   device
	readOnly bool // the device can register memory that is mapped to read only

	mu            sync.Mutex // guards what follows, and is not held while the driver does what may take long
	closed        bool
	registrations int // also those that are being made; so are the memories
	memories      int
	copies        map[*Copy]struct{} // begun, and not known to have ended
	stream        uintptr            // of all copies; 0 before the first
}

var _ pin.Registrar = (*Driver)(nil)

// Open loads the driver and retains the primary context of a device, a number from 0 among those that
// CUDA_VISIBLE_DEVICES leaves. There is no default: a context on the wrong device takes memory there.
//
// Open fails with [pin.ErrUnavailable] if there is no driver that can register memory, and with fs.ErrInvalid if there
// is one and it has no such device.
func Open(device int, o Options) (*Driver, error) {
	if device < 0 {
		return nil, fmt.Errorf("%w: device %d: devices are numbered from 0", errInvalid, device)
	}
	paths := libraries
	if o.Library != "" {
		paths = []string{o.Library}
	}
	lib, err := load(paths)
	if err != nil {
		return nil, unavailable(err)
	}
	d := &Driver{lib: lib, copies: map[*Copy]struct{}{}}
	if err := d.open(device); err != nil {
		return nil, err
	}
	return d, nil
}

// open chooses the device and retains its context, last of all.
func (d *Driver) open(ordinal int) error {
	if c := d.lib.initialize(); c != success {
		return unavailable(d.failed("cuInit", c))
	}
	n, c := d.lib.devices()
	if c != success {
		return unavailable(d.failed("cuDeviceGetCount", c))
	}
	if n == 0 {
		return unavailable(d.failed("cuDeviceGetCount", noDevice))
	}
	if ordinal >= n {
		return fmt.Errorf("%w: device %d: the driver has %d, numbered from 0", errInvalid, ordinal, n)
	}
	if d.device, c = d.lib.device(ordinal); c != success {
		return unavailable(d.failed("cuDeviceGet", c))
	}
	supported, c := d.lib.attribute(d.device, hostRegisterSupported)
	if c != success {
		return unavailable(d.failed("cuDeviceGetAttribute", c))
	}
	if supported == 0 {
		return unavailable(fmt.Errorf("cuda: device %d can't register memory of the host (attribute %d is 0)",
			ordinal, hostRegisterSupported))
	}
	readOnly, c := d.lib.attribute(d.device, readOnlyHostRegisterSupported)
	d.readOnly = c == success && readOnly != 0 // drivers before CUDA 11.1 have no such attribute
	if c := d.lib.retain(d.device); c != success {
		return unavailable(d.failed("cuDevicePrimaryCtxRetain", c))
	}
	return nil
}

// Close releases the device's context. While registrations, device memory or copies are open, Close does nothing, and
// fails with an error that matches segment.ErrBusy. Closing twice is fine.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	if d.registrations+d.memories+len(d.copies) > 0 {
		return fmt.Errorf("%w: open: registrations %d, device memories %d, copies %d",
			errBusy, d.registrations, d.memories, len(d.copies))
	}
	if d.stream != 0 {
		if c := d.lib.destroyStream(d.stream); c != success && c != deinitialized {
			return d.failed("cuStreamDestroy", c)
		}
		d.stream = 0
	}
	if c := d.lib.release(d.device); c != success && c != deinitialized {
		return d.failed("cuDevicePrimaryCtxRelease", c)
	}
	d.closed = true
	return nil
}

// begin counts something that is about to be opened, so that Close refuses from now on.
func (d *Driver) begin(count *int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	*count++
	return nil
}

// end takes back what begin counted.
func (d *Driver) end(count *int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*count--
}

// failed returns the error of a code.
func (d *Driver) failed(op string, c code) error {
	name, text := d.lib.describe(c)
	return &Error{Op: op, Code: int(c), Name: name, Text: text}
}
