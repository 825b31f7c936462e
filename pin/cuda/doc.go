// Package cuda registers mapped memory with NVIDIA's driver, so that its pages are pinned and the
// device's copy engines read them where they are. [Driver] is a [pin.Registrar].
//
//	driver, err := cuda.Open(0, cuda.Options{}) // the device is always chosen by the caller
//	if errors.Is(err, pin.ErrUnavailable) {
//		// no GPU here: go on without
//	}
//	defer driver.Close()
//	p, err := s.Pin(ctx, driver, segment.PinOptions{}) // registers the mapping of a *segment.Segment
//	defer s.Close()                                    // ends the registration too
//
// The package loads libcuda.so.1 at run time, which comes with the driver. Neither CUDA's toolkit nor
// its headers are needed to build, and a program that imports the package runs on machines without
// a driver: [Open] then fails with [pin.ErrUnavailable], whose text contains the cause and what to
// do. The same happens in programs that were built without cgo, or with the tag nocuda.
//
// # Lifetimes
//
// A registration is for one mapping of one process. Another process, or another mapping of
// the same file, needs its own. The memory must stay mapped until [pin.Registration].Unregister has
// succeeded: the device goes on using the pages, and would read them, after they were unmapped.
// Neither may the file be cut short, nor holes be made in it: the device keeps the old pages.
//
// [Driver.Close] refuses while registrations, device memory or copies are open, with an error that
// matches segment.ErrBusy. The library stays loaded.
//
// # Copies
//
// Programs usually copy by a CUDA binding of their own. For those that have none, [Driver.Alloc]
// makes device memory, [Driver.Copy] fills it asynchronously, and [Driver.Read] reads it back.
// Whoever reuses the source of a [Copy] before Done or Wait reports its end corrupts the data,
// whether the source is registered or not. So a lease on a chunk, or a view of a store, is released only
// after the end of the copies from it.
//
// # Concurrency
//
// Any number of goroutines may use a Driver and what comes from it. A call that needs the device's
// context makes it current for the duration of that call only, so goroutines need no thread of
// their own, and other libraries' contexts stay as they are.
//
// # Errors
//
// What the driver refuses is an [*Error] with the driver's code. It matches [pin.ErrRegistered] (712),
// syscall.ENOMEM (2), fs.ErrPermission (800), errors.ErrUnsupported (801) and fs.ErrClosed
// (4). Wrong arguments match fs.ErrInvalid, and calls after Close fs.ErrClosed.
//
// # Cost and caveats
//
// Open retains the primary context of the device, which the CUDA runtime and PyTorch share. If nothing else
// in the process uses the device, the context is new and takes hundreds of MiB of the device's memory
// (616 MiB were reported). So a process that does not copy to the device itself should not register.
//
// While the driver registers memory it holds locks that are global: other processes of the machine wait in
// their CUDA and NVML calls. Populate the memory before, and register a segment by one call, once, at the
// start: that is what Segment.Pin does.
//
// Neither a context nor a registration survives a fork. Register after it, in the child.
//
// Where the device uses the page tables of the host, as on NVIDIA's Grace, registering populates pages and
// does not pin them.
//
// In a virtual machine with confidential computing the driver refuses every registration (801). On WSL2 it accepts
// a part of the system's memory, then reports that it has none (2). In both cases copies from memory that is not
// registered work.
//
// # Other vendors
//
// AMD's HIP has the same calls (hipHostRegister, hipHostUnregister) with a device for each thread instead of a
// context, so a package pin/hip can have the same shape: Open with a device, Register, Unregister. Its device
// addresses differ from those of the host.
//
// See docs/decisions.md, "The driver is loaded at run time, by cgo, driver API alone".
package cuda
