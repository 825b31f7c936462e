// The driver's functions, called through pointers that are looked up at run time. Names, numbers and signatures are
// those of CUDA's driver API; its header is not needed. Everything here is static: driver_cgo.go alone includes it.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef unsigned long long device_address;

// The functions that everything here needs: field, symbol, parameters. The symbols with _v2 are what cuda.h
// makes of the names without; the names without are of CUDA before 4.0 (before 11.0 for the context's release).
#define FUNCTIONS(F) \
	F(init, cuInit, (unsigned)) \
	F(device_count, cuDeviceGetCount, (int *)) \
	F(device_get, cuDeviceGet, (int *, int)) \
	F(device_attribute, cuDeviceGetAttribute, (int *, int, int)) \
	F(context_retain, cuDevicePrimaryCtxRetain, (void **, int)) \
	F(context_release, cuDevicePrimaryCtxRelease_v2, (int)) \
	F(context_push, cuCtxPushCurrent_v2, (void *)) \
	F(context_pop, cuCtxPopCurrent_v2, (void **)) \
	F(host_register, cuMemHostRegister_v2, (void *, size_t, unsigned)) \
	F(host_unregister, cuMemHostUnregister, (void *)) \
	F(memory_alloc, cuMemAlloc_v2, (device_address *, size_t)) \
	F(memory_free, cuMemFree_v2, (device_address)) \
	F(copy_to_device, cuMemcpyHtoDAsync_v2, (device_address, const void *, size_t, void *)) \
	F(copy_to_host, cuMemcpyDtoH_v2, (void *, device_address, size_t)) \
	F(stream_create, cuStreamCreate, (void **, unsigned)) \
	F(stream_destroy, cuStreamDestroy_v2, (void *)) \
	F(stream_synchronize, cuStreamSynchronize, (void *)) \
	F(event_create, cuEventCreate, (void **, unsigned)) \
	F(event_record, cuEventRecord, (void *, void *)) \
	F(event_query, cuEventQuery, (void *)) \
	F(event_synchronize, cuEventSynchronize, (void *)) \
	F(event_destroy, cuEventDestroy_v2, (void *)) \
	F(error_name, cuGetErrorName, (int, const char **)) \
	F(error_string, cuGetErrorString, (int, const char **))

enum { STREAM_NON_BLOCKING = 1, EVENT_BLOCKING_SYNC = 1, EVENT_DISABLE_TIMING = 2 };

typedef struct driver {
#define FIELD(field, symbol, parameters) int (*field) parameters;
	FUNCTIONS(FIELD)
#undef FIELD
	void *context; // of the device that is in use
} driver;

// driver_load looks the functions up in a library. It returns 0, or writes into why what is wrong.
// The library is never closed: the driver's threads may be running in it.
static int driver_load(driver *d, const char *path, char *why, size_t room) {
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		const char *text = dlerror();
		snprintf(why, room, "%s", text ? text : path);
		return 1;
	}
#define LOOK_UP(field, symbol, parameters) \
	if (!(d->field = (int (*) parameters)dlsym(library, #symbol))) { \
		snprintf(why, room, "%s: has no %s: not the driver's library, or that of a driver before CUDA 11", path, #symbol); \
		return 1; \
	}
	FUNCTIONS(LOOK_UP)
#undef LOOK_UP
	return 0;
}

// enter makes the context current for this thread, until leave. Whatever was current then is again.
static int enter(driver *d) { return d->context_push(d->context); }

// leave can't fail in a way that matters: the context was pushed on the same thread.
static int leave(driver *d, int code) {
	void *popped;
	d->context_pop(&popped);
	return code;
}

static int driver_init(driver *d) { return d->init(0); }
static int driver_device_count(driver *d, int *n) { return d->device_count(n); }
static int driver_device_get(driver *d, int *device, int ordinal) { return d->device_get(device, ordinal); }
static int driver_attribute(driver *d, int *value, int attribute, int device) { return d->device_attribute(value, attribute, device); }
static int driver_retain(driver *d, int device) { return d->context_retain(&d->context, device); }
static int driver_release(driver *d, int device) { return d->context_release(device); }

static int driver_register(driver *d, void *p, size_t n, unsigned flags) {
	int code = enter(d);
	return code ? code : leave(d, d->host_register(p, n, flags));
}

static int driver_unregister(driver *d, uintptr_t p) {
	int code = enter(d);
	return code ? code : leave(d, d->host_unregister((void *)p));
}

static int driver_stream_create(driver *d, uintptr_t *stream) {
	int code = enter(d);
	return code ? code : leave(d, d->stream_create((void **)stream, STREAM_NON_BLOCKING));
}

static int driver_stream_destroy(driver *d, uintptr_t stream) {
	int code = enter(d);
	return code ? code : leave(d, d->stream_destroy((void *)stream));
}

static int driver_alloc(driver *d, uintptr_t *p, size_t n) {
	device_address address = 0;
	int code = enter(d);
	if (code) return code;
	code = leave(d, d->memory_alloc(&address, n));
	*p = address;
	return code;
}

static int driver_free(driver *d, uintptr_t p) {
	int code = enter(d);
	return code ? code : leave(d, d->memory_free(p));
}

// driver_copy starts a copy and marks its end with a new event. After an error, *op is what failed, there is
// no event, and *running reports that the copy may have been started and not have ended.
static int driver_copy(driver *d, uintptr_t stream, uintptr_t dst, const void *src, size_t n, uintptr_t *event, const char **op, int *running) {
	void *e = NULL;
	*op = "cuCtxPushCurrent";
	int code = enter(d);
	if (code) return code;
	*op = "cuEventCreate";
	if ((code = d->event_create(&e, EVENT_BLOCKING_SYNC | EVENT_DISABLE_TIMING))) return leave(d, code);
	*op = "cuMemcpyHtoDAsync";
	if (n) code = d->copy_to_device(dst, src, n, (void *)stream);
	if (!code) {
		*op = "cuEventRecord";
		code = d->event_record(e, (void *)stream);
		if (code) *running = d->stream_synchronize((void *)stream) != 0;
	}
	if (code) d->event_destroy(e);
	else *event = (uintptr_t)e;
	return leave(d, code);
}

static int driver_read(driver *d, uintptr_t stream, void *dst, uintptr_t src, size_t n, const char **op) {
	*op = "cuCtxPushCurrent";
	int code = enter(d);
	if (code) return code;
	*op = "cuStreamSynchronize"; // the copy below is on another stream, which does not wait for this one
	if (stream && (code = d->stream_synchronize((void *)stream))) return leave(d, code);
	*op = "cuMemcpyDtoH";
	return leave(d, d->copy_to_host(dst, src, n));
}

static int driver_finish(driver *d, uintptr_t event, int wait, const char **op) {
	*op = "cuCtxPushCurrent";
	int code = enter(d);
	if (code) return code;
	*op = wait ? "cuEventSynchronize" : "cuEventQuery";
	code = wait ? d->event_synchronize((void *)event) : d->event_query((void *)event);
	if (code) return leave(d, code);
	d->event_destroy((void *)event); // which reports failures of others, and destroys the event all the same
	return leave(d, 0);
}

static const char *driver_error_name(driver *d, int code) {
	const char *s = NULL;
	return d->error_name(code, &s) ? NULL : s;
}

static const char *driver_error_string(driver *d, int code) {
	const char *s = NULL;
	return d->error_string(code, &s) ? NULL : s;
}
