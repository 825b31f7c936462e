//go:build linux && cgo

// Package fakedriver builds and controls the fake of CUDA's driver that lies in pin/cuda/testdata/driver. It is for
// tests only. A fake is one for the whole process: tests that use it run one after the other.
package fakedriver

// #cgo LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdlib.h>
//
// typedef struct fake {
//	void (*reset)(void);
//	void (*fail)(const char *);
//	void (*set_delay)(long);
//	void (*set_devices)(int);
//	void (*set_attribute)(int, int);
//	int (*live)(void);
//	int (*contexts)(void);
//	int (*memories)(void);
//	int (*streams)(void);
//	int (*events)(void);
//	int (*violations)(void);
//	size_t (*log)(char *, size_t);
//	int (*unregister)(void *);
//	void (*end)(void);
// } fake;
//
// // fake_load returns what is wrong, or NULL. The library is never closed.
// static const char *fake_load(fake *f, const char *path) {
//	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
//	if (!library) return dlerror();
//	void **fields = (void **)f;
//	static const char *names[] = {"fake_reset", "fake_fail", "fake_set_delay", "fake_set_devices", "fake_set_attribute", "fake_live",
//		"fake_contexts", "fake_memories", "fake_streams", "fake_events", "fake_violations", "fake_log", "cuMemHostUnregister",
//		"fake_end"};
//	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
//		if (!(fields[i] = dlsym(library, names[i]))) return names[i];
//	return NULL;
// }
//
// static void call_reset(fake *f) { f->reset(); }
// static void call_fail(fake *f, const char *text) { f->fail(text); }
// static void call_set_delay(fake *f, long us) { f->set_delay(us); }
// static void call_set_devices(fake *f, int n) { f->set_devices(n); }
// static void call_set_attribute(fake *f, int attribute, int value) { f->set_attribute(attribute, value); }
// static int call_live(fake *f) { return f->live(); }
// static int call_contexts(fake *f) { return f->contexts(); }
// static int call_memories(fake *f) { return f->memories(); }
// static int call_streams(fake *f) { return f->streams(); }
// static int call_events(fake *f) { return f->events(); }
// static int call_violations(fake *f) { return f->violations(); }
// static int call_unregister(fake *f, void *p) { return f->unregister(p); }
// static void call_end(fake *f) { f->end(); }
// static size_t call_log(fake *f, char *out, size_t room) { return f->log(out, room); }
import "C"

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unsafe"
)

// Compile makes a library of a C file with the compiler of the environment variable CC, cc or gcc. It fails
// with exec.ErrNotFound if there is none.
func Compile(source, library string) error {
	var compiler string
	for _, name := range []string{os.Getenv("CC"), "cc", "gcc"} {
		if path, err := exec.LookPath(name); err == nil {
			compiler = path
			break
		}
	}
	if compiler == "" {
		return fmt.Errorf("no C compiler: %w", exec.ErrNotFound)
	}
	out, err := exec.Command(compiler, "-O1", "-shared", "-fPIC", "-pthread", "-o", library, source).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(compiler), source, err, out)
	}
	return nil
}

// Driver is the fake driver of this process.
type Driver struct{ c C.fake }

// Load loads the library that Compile made. Whoever loads it again, from the same file, gets the same driver.
func Load(library string) (*Driver, error) {
	d := &Driver{}
	path := C.CString(library)
	defer C.free(unsafe.Pointer(path))
	if bad := C.fake_load(&d.c, path); bad != nil {
		return nil, errors.New(C.GoString(bad))
	}
	return d, nil
}

// Reset forgets failures, attributes, delay, log and violations. What is registered stays.
func (d *Driver) Reset() { C.call_reset(&d.c) }

// Fail makes calls fail: "OP:K:CODE,..." for the K-th call of OP, and for every call if K is 0.
func (d *Driver) Fail(text string) {
	s := C.CString(text)
	defer C.free(unsafe.Pointer(s))
	C.call_fail(&d.c, s)
}

// SetDelay makes every copy from registered memory so late.
func (d *Driver) SetDelay(t time.Duration) { C.call_set_delay(&d.c, C.long(t.Microseconds())) }

// SetDevices sets the number of devices.
func (d *Driver) SetDevices(n int) { C.call_set_devices(&d.c, C.int(n)) }

// SetAttribute sets an attribute of all devices.
func (d *Driver) SetAttribute(attribute, value int) {
	C.call_set_attribute(&d.c, C.int(attribute), C.int(value))
}

// Unregister calls cuMemHostUnregister, as another library of the process might.
func (d *Driver) Unregister(m []byte) int {
	return int(C.call_unregister(&d.c, unsafe.Pointer(unsafe.SliceData(m))))
}

// End takes everything back, as the end of a process does.
func (d *Driver) End() { C.call_end(&d.c) }

// Left counts what was not given back, by name, and violations of the driver's rules. All are 0 in the end.
func (d *Driver) Left() map[string]int {
	return map[string]int{
		"registrations": int(C.call_live(&d.c)),
		"contexts":      int(C.call_contexts(&d.c)),
		"memories":      int(C.call_memories(&d.c)),
		"streams":       int(C.call_streams(&d.c)),
		"events":        int(C.call_events(&d.c)),
		"violations":    int(C.call_violations(&d.c)),
	}
}

// Call is a line of the log: what was called on which thread.
type Call struct{ Thread, Text string }

// Log returns the calls since the last Reset.
func (d *Driver) Log() []Call {
	var text []byte
	for n := 0; ; {
		need := int(C.call_log(&d.c, (*C.char)(unsafe.Pointer(unsafe.SliceData(text))), C.size_t(len(text))))
		if need < len(text) || need == 0 {
			text = text[:need]
			break
		}
		if n++; n > 100 {
			panic("fakedriver: the log grows all the time")
		}
		text = make([]byte, 2*need+1)
	}
	var calls []Call
	for line := range strings.Lines(string(text)) {
		if f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3); len(f) == 3 { // process, thread, text
			calls = append(calls, Call{Thread: f[1], Text: f[2]})
		}
	}
	return calls
}
