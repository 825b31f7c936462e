package cuda

// library is the driver's loaded library, after retain bound to one device. Every method is one call into C, which
// stays on one thread: those that need the device's context make it current for that call. Contexts, streams and
// events are addresses in C memory that mean nothing to Go.
type library interface {
	initialize() code
	devices() (int, code)
	device(ordinal int) (device, code)
	attribute(d device, attribute int) (int, code)
	retain(d device) code
	release(d device) code

	register(m []byte, flags uint) code
	unregister(base uintptr) code

	createStream() (uintptr, code)
	destroyStream(stream uintptr) code
	alloc(size int) (uintptr, code)
	free(address uintptr) code
	// copy starts a copy and returns the event that marks its end. After an error, op is the function that failed,
	// and running reports that the copy may go on all the same.
	copy(stream, dst uintptr, src []byte) (event uintptr, op string, running bool, c code)
	// read waits for what the stream has to do, unless stream is 0, and for its own copy.
	read(stream uintptr, dst []byte, src uintptr) (op string, c code)
	// finish queries the event, or waits for it, and destroys it if the copy is done.
	finish(event uintptr, wait bool) (op string, c code)

	// describe returns the driver's name of a code, and its sentence about it; empty if it has none.
	describe(c code) (name, text string)
}

type (
	device int32 // the driver's number of a device
	code   int   // what the driver's functions return
)

// Codes, attributes and flags are those of CUDA's cuda.h.
const (
	success              code = 0
	invalidValue         code = 1
	outOfMemory          code = 2
	notInitialized       code = 3
	deinitialized        code = 4
	stubLibrary          code = 34
	noDevice             code = 100
	invalidContext       code = 201
	operatingSystem      code = 304
	notReady             code = 600
	alreadyRegistered    code = 712
	notRegistered        code = 713
	notPermitted         code = 800
	notSupported         code = 801
	systemNotReady       code = 802
	systemDriverMismatch code = 803
	compatNotSupported   code = 804
	unknown              code = 999

	hostRegisterSupported         = 99
	readOnlyHostRegisterSupported = 113

	flagPortable = 1
	flagReadOnly = 8
)

// libraries are where the driver's library may be, in order. libcuda.so without a number is the
// toolkit's stub for linkers.
var libraries = []string{
	"libcuda.so.1",
	"/usr/local/nvidia/lib64/libcuda.so.1",
	"/usr/lib/x86_64-linux-gnu/libcuda.so.1",
	"/usr/lib/aarch64-linux-gnu/libcuda.so.1",
	"/usr/lib64/libcuda.so.1",
	"/usr/lib/wsl/lib/libcuda.so.1",
	"/run/opengl-driver/lib/libcuda.so.1",
}
