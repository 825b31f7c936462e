//go:build linux && cgo && (amd64 || arm64) && !nocuda

package cuda

// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "driver.h"
import "C"

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unsafe"
)

// loaded is a library with the functions of driver.h. The struct is memory of Go with addresses in C memory; C keeps
// no pointer to it.
type loaded struct{ c C.driver }

// load loads the first library that can be loaded and has all functions. The error contains what was tried.
func load(paths []string) (library, error) {
	var failed, absent []string
	for _, path := range paths {
		if _, err := os.Stat(path); filepath.IsAbs(path) && errors.Is(err, fs.ErrNotExist) {
			absent = append(absent, path)
			continue
		}
		l := &loaded{}
		why, p := make([]byte, 512), C.CString(path)
		bad := C.driver_load(&l.c, p, (*C.char)(unsafe.Pointer(&why[0])), C.size_t(len(why)))
		C.free(unsafe.Pointer(p))
		if bad == 0 {
			return l, nil
		}
		text, _, _ := strings.Cut(string(why), "\x00")
		failed = append(failed, text)
	}
	if absent != nil {
		failed = append(failed, "no such file: "+strings.Join(absent, ", "))
	}
	return nil, errors.New("cuda: can't load the driver's library: " + strings.Join(failed, "; ") +
		". Install NVIDIA's driver; start a container with access to the GPUs, which adds the library; or set Options.Library")
}

func (l *loaded) initialize() code { return code(C.driver_init(&l.c)) }

func (l *loaded) devices() (int, code) {
	var n C.int
	c := C.driver_device_count(&l.c, &n)
	return int(n), code(c)
}

func (l *loaded) device(ordinal int) (device, code) {
	var d C.int
	c := C.driver_device_get(&l.c, &d, C.int(ordinal))
	return device(d), code(c)
}

func (l *loaded) attribute(d device, attribute int) (int, code) {
	var value C.int
	c := C.driver_attribute(&l.c, &value, C.int(attribute), C.int(d))
	return int(value), code(c)
}

func (l *loaded) retain(d device) code  { return code(C.driver_retain(&l.c, C.int(d))) }
func (l *loaded) release(d device) code { return code(C.driver_release(&l.c, C.int(d))) }

func (l *loaded) register(m []byte, flags uint) code {
	return code(C.driver_register(&l.c, unsafe.Pointer(unsafe.SliceData(m)), C.size_t(len(m)), C.uint(flags)))
}

func (l *loaded) unregister(base uintptr) code {
	return code(C.driver_unregister(&l.c, C.uintptr_t(base)))
}

func (l *loaded) createStream() (uintptr, code) {
	var stream C.uintptr_t
	c := C.driver_stream_create(&l.c, &stream)
	return uintptr(stream), code(c)
}

func (l *loaded) destroyStream(stream uintptr) code {
	return code(C.driver_stream_destroy(&l.c, C.uintptr_t(stream)))
}

func (l *loaded) alloc(size int) (uintptr, code) {
	var address C.uintptr_t
	c := C.driver_alloc(&l.c, &address, C.size_t(size))
	return uintptr(address), code(c)
}

func (l *loaded) free(address uintptr) code {
	return code(C.driver_free(&l.c, C.uintptr_t(address)))
}

func (l *loaded) copy(stream, dst uintptr, src []byte) (event uintptr, op string, running bool, c code) {
	var (
		ev C.uintptr_t
		at *C.char
		on C.int
	)
	c = code(C.driver_copy(&l.c, C.uintptr_t(stream), C.uintptr_t(dst), unsafe.Pointer(unsafe.SliceData(src)),
		C.size_t(len(src)), &ev, &at, &on))
	if c != success {
		op = C.GoString(at)
	}
	return uintptr(ev), op, on != 0, c
}

func (l *loaded) read(stream uintptr, dst []byte, src uintptr) (op string, c code) {
	var at *C.char
	c = code(C.driver_read(&l.c, C.uintptr_t(stream), unsafe.Pointer(unsafe.SliceData(dst)), C.uintptr_t(src),
		C.size_t(len(dst)), &at))
	return C.GoString(at), c
}

func (l *loaded) finish(event uintptr, wait bool) (op string, c code) {
	var (
		at  *C.char
		yes C.int
	)
	if wait {
		yes = 1
	}
	c = code(C.driver_finish(&l.c, C.uintptr_t(event), yes, &at))
	return C.GoString(at), c
}

func (l *loaded) describe(c code) (name, text string) {
	return C.GoString(C.driver_error_name(&l.c, C.int(c))), C.GoString(C.driver_error_string(&l.c, C.int(c)))
}
