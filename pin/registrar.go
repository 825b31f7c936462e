package pin

import (
	"errors"

	"github.com/ringcache/ringcache/internal/sentinel"
)

var (
	// ErrUnavailable reports that memory can't be pinned here: there is no driver, no GPU, or the
	// program was built without what is needed to load a driver. The error that wraps it
	// contains the cause.
	ErrUnavailable = sentinel.Like("pin: no GPU driver", errors.ErrUnsupported)
	// ErrRegistered reports that some of the memory is registered already, by this program or by
	// a library in the same process.
	ErrRegistered = errors.New("pin: memory is registered already")
)

// Registrar registers memory of this process with the driver of a device, so that the pages are
// the source of DMA and stay where they are. Package pin/cuda has one for CUDA. Its methods may be
// called by any goroutine.
type Registrar interface {
	// Register registers m, which begins at a page and is no memory of the Go heap: usually
	// a mapped segment. The pages should be populated before, and no other process should
	// register the same pages at the same moment: Segment.Pin sees to both. m must stay mapped
	// until Unregister.
	Register(m []byte, o RegisterOptions) (Registration, error)
}

// RegisterOptions describe the memory of one registration.
type RegisterOptions struct {
	// ReadOnly reports that the memory is mapped to read only. The device can't write to it.
	ReadOnly bool
}

// Registration is memory that was registered.
type Registration interface {
	// Pinned reports whether the pages are pinned. It is false for a Registrar that
	// registers nothing, and after Unregister.
	Pinned() bool
	// Unregister ends the registration, before the memory is unmapped and after all copies
	// from it. It does nothing once it has succeeded. After an error the driver may still use
	// the pages, so the memory must stay mapped; Unregister may be tried again.
	Unregister() error
}

// Nop registers nothing, and reports that: Pinned of its registrations is false.
type Nop struct{}

// Register returns a registration that is not pinned.
func (Nop) Register([]byte, RegisterOptions) (Registration, error) { return nopRegistration{}, nil }

type nopRegistration struct{}

func (nopRegistration) Pinned() bool      { return false }
func (nopRegistration) Unregister() error { return nil }
