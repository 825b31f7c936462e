// A fake CUDA driver for tests on machines without a GPU. It is stricter than the real one:
// what the real driver forgives or answers with undefined behaviour is a violation here, which
// fails the test. Build: cc -shared -fPIC -pthread -o libcuda.so.1 driver.c
//
// What it models
//   - Contexts are current per thread. A call that needs one and finds none fails with 201.
//   - Registrations cover whole pages; two must not share one (712). Unregistering needs the base of
//     the call that registered (1 for another address inside, 713 for an unknown one).
//   - The registered range must be mapped. A mapping that is not writable needs READ_ONLY.
//   - A copy from registered memory happens later, on the thread of its stream: whoever changes
//     the source before the event of the copy is done has corrupted the data. A copy from other
//     memory is taken at the call, as the real driver stages it. A source that is registered only in
//     part, or that spans two registrations, is refused (1).
//   - Device memory is memory of this process that only these calls know the bounds of.
//
// What is a violation: a registered range that was unmapped, or whose file was replaced by another
// mapping; a copy whose source was unregistered before the copy was done; freeing device memory that a
// copy still writes; reading it back without waiting for the stream of the copy, if that is non-blocking; an event
// or a stream that was destroyed in use.
//
// Control: the functions fake_... below, and for other processes the environment:
//   FAKE_CUDA_DELAY_US  how long every copy from registered memory waits
//   FAKE_CUDA_FAIL      OP:K:CODE[,OP:K:CODE...]: the K-th call (from 1) of OP returns CODE; K 0 is every call
//   FAKE_CUDA_LOG       a file that gets the log, a line for each call: "PID TID OP ... = CODE"
// Numbers, flags and signatures are those of the CUDA driver API 12 (cuda.h).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

enum {
	OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, DEINITIALIZED = 4, STUB_LIBRARY = 34,
	NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_READY = 600,
	ALREADY_REGISTERED = 712, NOT_REGISTERED = 713, NOT_PERMITTED = 800, NOT_SUPPORTED = 801, DRIVER_MISMATCH = 803,
};

enum { PORTABLE = 1, DEVICEMAP = 2, IOMEMORY = 4, READ_ONLY = 8 };

enum { DEVICES = 2, STACK = 8, PAGE = 4096 };

typedef struct context { int device; int retained; } context;
typedef struct registration {
	struct registration *next;
	uintptr_t base, len, lo, hi; // as given, and in whole pages
	unsigned flags;
	uint64_t dev, ino; // of what was mapped
	context *by; // the context that it was made in
} registration;
typedef struct memory {
	struct memory *next;
	uintptr_t base, len;
	int writing, unordered; // copies, and those of them whose stream the stream NULL does not wait for
} memory;
typedef struct event { struct event *next; bool recorded; int pending; struct timespec done; } event;
typedef struct job { // a copy, or an event to mark
	struct job *next;
	void *dst; const void *src; size_t len;
	struct timespec due;
	registration *of; // of the source
	memory *to;
	bool unordered;
	event *ev;
	struct event *after; // waits for this event
} job;
typedef struct stream { struct stream *next; pthread_t thread; bool started, ending, non_blocking; int pending; job *first, *last; } stream;

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool initialised;
static context contexts[DEVICES];
static int device_count = DEVICES;
static registration *registrations;
static memory *memories;
static event *events;
static stream *streams;
static stream legacy; // the stream NULL
static long delay_us;
static bool held;
static int violations;
static struct { char op[32]; int k, code; } failures[16];
static int failure_count;
static struct { char op[32]; int n; } calls[64];
static int attribute_values[256]; // value + 1 of what a test set, 0 for the default
static char *log_text;
static size_t log_len, log_cap;
static int log_fd = -1;
static __thread context *stack[STACK];
static __thread int depth;

static void say(const char *format, ...) {
	char line[512];
	int n = snprintf(line, sizeof line, "%d %ld ", (int)getpid(), (long)syscall(SYS_gettid));
	va_list args;
	va_start(args, format);
	n += vsnprintf(line + n, sizeof line - n - 1, format, args);
	va_end(args);
	if (n > (int)sizeof line - 2) n = sizeof line - 2;
	line[n++] = '\n';
	if (log_fd >= 0 && write(log_fd, line, n) < 0) abort();
	if (log_len + n + 1 > log_cap) {
		log_cap = 2 * log_cap + n + 4096;
		log_text = realloc(log_text, log_cap);
		if (!log_text) abort();
	}
	memcpy(log_text + log_len, line, n);
	log_len += n;
	log_text[log_len] = 0;
}

static void violation(const char *what, uintptr_t base, uintptr_t len) {
	violations++;
	say("VIOLATION %s %#" PRIxPTR "+%" PRIuPTR, what, base, len);
}

// add_failures takes OP:K:CODE, separated by commas.
static void add_failures(const char *text) {
	while (text && *text && failure_count < 16) {
		int used = 0;
		if (sscanf(text, "%31[^:]:%d:%d%n", failures[failure_count].op, &failures[failure_count].k, &failures[failure_count].code, &used) != 3) abort();
		failure_count++;
		text += used;
		if (*text == ',') text++;
	}
}

__attribute__((constructor)) static void load(void) {
	const char *s = getenv("FAKE_CUDA_DELAY_US");
	if (s) delay_us = atol(s);
	add_failures(getenv("FAKE_CUDA_FAIL"));
	if ((s = getenv("FAKE_CUDA_LOG"))) log_fd = open(s, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int live(void) {
	int n = 0;
	for (registration *r = registrations; r; r = r->next) n++;
	return n;
}

static int retained(void) {
	int n = 0;
	for (int i = 0; i < DEVICES; i++) n += contexts[i].retained;
	return n;
}

__attribute__((destructor)) static void unload(void) {
	if (initialised) say("exit live=%d contexts=%d violations=%d", live(), retained(), violations);
}

// injected counts a call of op and returns the code that it must fail with, if any.
static int injected(const char *op) {
	int i = 0;
	while (i < 63 && calls[i].op[0] && strcmp(calls[i].op, op)) i++;
	strncpy(calls[i].op, op, sizeof calls[i].op - 1);
	calls[i].n++;
	for (int f = 0; f < failure_count; f++)
		if (!strcmp(failures[f].op, op) && (failures[f].k == 0 || failures[f].k == calls[i].n)) return failures[f].code;
	return OK;
}

// mapped reports whether [lo, hi) is mapped as one object: its identity and whether it is writable.
static bool mapped(uintptr_t lo, uintptr_t hi, uint64_t *dev, uint64_t *ino, bool *writable) {
	FILE *f = fopen("/proc/self/maps", "re");
	if (!f) abort();
	char line[4352], perms[5];
	uintptr_t at = lo, from, to;
	bool first = true, same = true;
	*writable = true;
	while (at < hi && fgets(line, sizeof line, f)) {
		unsigned major, minor;
		uint64_t inode;
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*x %x:%x %" SCNu64, &from, &to, perms, &major, &minor, &inode) != 6) continue;
		if (to <= at || from > at) continue;
		uint64_t d = (uint64_t)major << 32 | minor;
		if (first) *dev = d, *ino = inode, first = false;
		same = same && *dev == d && *ino == inode;
		*writable = *writable && perms[1] == 'w';
		at = to;
	}
	fclose(f);
	return at >= hi && same;
}

static void check(registration *r) {
	uint64_t dev, ino;
	bool writable;
	if (!mapped(r->lo, r->hi, &dev, &ino, &writable)) violation("registered memory was unmapped", r->base, r->len);
	else if (dev != r->dev || ino != r->ino) violation("another mapping took the place of registered memory", r->base, r->len);
}

static registration *overlapping(uintptr_t lo, uintptr_t hi) {
	for (registration *r = registrations; r; r = r->next)
		if (lo < r->hi && r->lo < hi) return r;
	return NULL;
}

static context *current(void) { return depth ? stack[depth - 1] : NULL; }

// enter begins a call that needs the driver and a context. The lock stays taken.
static int enter(const char *op, bool needs_context) {
	pthread_mutex_lock(&mu);
	int code = injected(op);
	if (code) return code;
	if (!initialised) return NOT_INITIALIZED;
	if (needs_context && (!current() || !current()->retained)) return INVALID_CONTEXT;
	return OK;
}

static int leave(int code) {
	pthread_mutex_unlock(&mu);
	return code;
}

API int cuInit(unsigned flags) {
	pthread_mutex_lock(&mu);
	int code = flags ? INVALID_VALUE : injected("cuInit");
	if (!code) initialised = true;
	say("cuInit = %d", code);
	return leave(code);
}

API int cuDriverGetVersion(int *v) { *v = 12090; return OK; }

API int cuDeviceGetCount(int *n) {
	int code = enter("cuDeviceGetCount", false);
	if (!code) *n = device_count;
	return leave(code);
}

API int cuDeviceGet(int *device, int ordinal) {
	int code = enter("cuDeviceGet", false);
	if (!code && (ordinal < 0 || ordinal >= device_count)) code = INVALID_DEVICE;
	if (!code) *device = ordinal;
	return leave(code);
}

API int cuDeviceGetName(char *name, int len, int device) {
	int code = enter("cuDeviceGetName", false);
	if (!code) snprintf(name, len, "Fake GPU %d", device);
	return leave(code);
}

API int cuDeviceGetPCIBusId(char *id, int len, int device) {
	int code = enter("cuDeviceGetPCIBusId", false);
	if (!code) snprintf(id, len, "0000:00:%02x.0", device);
	return leave(code);
}

API int cuDeviceGetAttribute(int *value, int attribute, int device) {
	int code = enter("cuDeviceGetAttribute", false);
	(void)device;
	if (!code && (attribute < 0 || attribute > 255)) code = INVALID_VALUE;
	if (!code) {
		// host registration, the device's use of host pointers, unified addresses, read-only registration
		bool yes = attribute == 99 || attribute == 91 || attribute == 41 || attribute == 113;
		*value = attribute_values[attribute] ? attribute_values[attribute] - 1 : yes;
	}
	return leave(code);
}

API int cuDevicePrimaryCtxRetain(context **c, int device) {
	int code = enter("cuDevicePrimaryCtxRetain", false);
	if (!code && (device < 0 || device >= device_count)) code = INVALID_DEVICE;
	if (!code) {
		contexts[device].device = device;
		contexts[device].retained++;
		*c = &contexts[device];
	}
	say("cuDevicePrimaryCtxRetain %d = %d", device, code);
	return leave(code);
}

API int cuDevicePrimaryCtxRelease_v2(int device) {
	int code = enter("cuDevicePrimaryCtxRelease", false);
	if (!code && (device < 0 || device >= device_count || !contexts[device].retained)) code = INVALID_CONTEXT;
	if (!code) contexts[device].retained--;
	for (registration *r = registrations; r && !code && !contexts[device].retained; r = r->next)
		if (r->by == &contexts[device]) violation("the last context went before its registrations", 0, 0);
	say("cuDevicePrimaryCtxRelease %d = %d", device, code);
	return leave(code);
}

API int cuCtxPushCurrent_v2(context *c) {
	int code = enter("cuCtxPushCurrent", false);
	if (!code && (!c || !c->retained || depth == STACK)) code = INVALID_CONTEXT;
	if (!code) stack[depth++] = c;
	return leave(code);
}

API int cuCtxPopCurrent_v2(context **c) {
	int code = enter("cuCtxPopCurrent", true);
	if (!code) {
		context *top = stack[--depth];
		if (c) *c = top;
	}
	return leave(code);
}

API int cuCtxGetCurrent(context **c) {
	int code = enter("cuCtxGetCurrent", false);
	if (!code) *c = current();
	return leave(code);
}

API int cuMemHostRegister_v2(void *p, size_t len, unsigned flags) {
	int code = enter("cuMemHostRegister", true);
	for (registration *r = registrations; r; r = r->next) check(r);
	uintptr_t base = (uintptr_t)p, lo = base & ~(uintptr_t)(PAGE - 1), hi = (base + len + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
	uint64_t dev = 0, ino = 0;
	bool writable = false;
	if (!code && (!p || !len || flags & ~(PORTABLE | DEVICEMAP | READ_ONLY))) code = INVALID_VALUE;
	if (!code && overlapping(lo, hi)) code = ALREADY_REGISTERED;
	if (!code && (!mapped(lo, hi, &dev, &ino, &writable) || (!writable && !(flags & READ_ONLY)))) code = INVALID_VALUE;
	if (!code) {
		registration *r = calloc(1, sizeof *r);
		*r = (registration){registrations, base, len, lo, hi, flags, dev, ino, current()};
		registrations = r;
	}
	say("cuMemHostRegister %#" PRIxPTR "+%zu flags=%u = %d", base, len, flags, code);
	return leave(code);
}

API int cuMemHostUnregister(void *p) {
	int code = enter("cuMemHostUnregister", false);
	uintptr_t base = (uintptr_t)p;
	registration **at = &registrations;
	while (*at && (*at)->base != base) at = &(*at)->next;
	if (!code && !*at) code = overlapping(base, base + 1) ? INVALID_VALUE : NOT_REGISTERED;
	if (!code) {
		registration *r = *at;
		check(r);
		stream *all[] = {&legacy, streams};
		for (int i = 0; i < 2; i++)
			for (stream *s = all[i]; s; s = s->next)
				for (job *j = s->first; j; j = j->next)
					if (j->of == r) violation("unregistered before its copy was done", base, r->len), j->of = NULL;
		*at = r->next;
		free(r);
	}
	say("cuMemHostUnregister %#" PRIxPTR " = %d", base, code);
	return leave(code);
}

API int cuMemHostGetFlags(unsigned *flags, void *p) {
	int code = enter("cuMemHostGetFlags", true);
	registration *r = overlapping((uintptr_t)p, (uintptr_t)p + 1);
	if (!code && !r) code = INVALID_VALUE;
	if (!code) *flags = r->flags;
	return leave(code);
}

API int cuMemAlloc_v2(uintptr_t *out, size_t len) {
	int code = enter("cuMemAlloc", true);
	if (!code && !len) code = INVALID_VALUE;
	if (!code) {
		memory *m = calloc(1, sizeof *m);
		m->base = (uintptr_t)aligned_alloc(256, (len + 255) & ~(size_t)255);
		m->len = len;
		memset((void *)m->base, 0xEE, len);
		m->next = memories;
		memories = m;
		*out = m->base;
	}
	return leave(code);
}

static memory *find_memory(uintptr_t base, size_t len) {
	for (memory *m = memories; m; m = m->next)
		if (base >= m->base && len <= m->len && base - m->base <= m->len - len) return m;
	return NULL;
}

API int cuMemFree_v2(uintptr_t base) {
	int code = enter("cuMemFree", true);
	memory **at = &memories;
	while (*at && (*at)->base != base) at = &(*at)->next;
	if (!code && !*at) code = INVALID_VALUE;
	if (!code) {
		memory *m = *at;
		if (m->writing) {
			violation("device memory was freed while a copy wrote it", base, m->len);
			while (m->writing) pthread_cond_wait(&changed, &mu);
			for (at = &memories; *at != m; at = &(*at)->next);
		}
		*at = m->next;
		free((void *)m->base);
		free(m);
	}
	return leave(code);
}

static bool before(struct timespec a, struct timespec b) {
	return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

static struct timespec now(long later_us) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += later_us / 1000000;
	t.tv_nsec += later_us % 1000000 * 1000;
	if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
	return t;
}

static void *run(void *argument) {
	stream *s = argument;
	pthread_mutex_lock(&mu);
	for (;;) {
		job *j = s->first;
		if (!j) {
			if (s->ending) break;
			pthread_cond_wait(&changed, &mu);
			continue;
		}
		if (j->after && j->after->pending) { pthread_cond_wait(&changed, &mu); continue; }
		if (j->src) {
			struct timespec t = now(0);
			if (held) { pthread_cond_wait(&changed, &mu); continue; }
			if (before(t, j->due)) { pthread_cond_timedwait(&changed, &mu, &j->due); continue; }
			if (j->of) { // else it was unregistered, and may be gone
				uint64_t dev, ino;
				bool writable;
				if (mapped((uintptr_t)j->src & ~(uintptr_t)(PAGE - 1), (uintptr_t)j->src + j->len, &dev, &ino, &writable))
					memcpy(j->dst, j->src, j->len);
				else
					violation("the source of a copy was unmapped", (uintptr_t)j->src, j->len);
			}
			j->to->writing--;
			j->to->unordered -= j->unordered;
		}
		if (j->ev) j->ev->pending--, j->ev->done = now(0);
		s->first = j->next;
		if (!s->first) s->last = NULL;
		s->pending--;
		free(j);
		pthread_cond_broadcast(&changed);
	}
	pthread_mutex_unlock(&mu);
	return NULL;
}

static void enqueue(stream *s, job j) {
	if (!s) s = &legacy;
	job *copy = malloc(sizeof *copy);
	*copy = j;
	copy->next = NULL;
	if (s->last) s->last->next = copy;
	else s->first = copy;
	s->last = copy;
	s->pending++;
	if (!s->started) {
		s->started = true;
		if (pthread_create(&s->thread, NULL, run, s)) abort();
	}
	pthread_cond_broadcast(&changed);
}

static bool known_stream(stream *wanted) {
	for (stream *s = streams; s; s = s->next)
		if (s == wanted) return true;
	return !wanted || wanted == &legacy;
}

static bool known_event(event *wanted) {
	for (event *e = events; e; e = e->next)
		if (e == wanted) return true;
	return false;
}

API int cuMemcpyHtoDAsync_v2(uintptr_t dst, const void *src, size_t len, stream *s) {
	int code = enter("cuMemcpyHtoDAsync", true);
	memory *m = find_memory(dst, len);
	uintptr_t at = (uintptr_t)src;
	registration *r = len ? overlapping(at, at + len) : NULL;
	if (!code && (!m || !src)) code = INVALID_VALUE;
	if (!code && !known_stream(s)) code = INVALID_HANDLE;
	if (!code && r && (at < r->lo || at + len > r->hi)) code = INVALID_VALUE; // registered in part
	if (!code && r) {
		bool unordered = s && s->non_blocking;
		m->writing++;
		m->unordered += unordered;
		enqueue(s, (job){.dst = (void *)dst, .src = src, .len = len, .due = now(delay_us), .of = r, .to = m, .unordered = unordered});
	} else if (!code && len) {
		memcpy((void *)dst, src, len);
	}
	say("cuMemcpyHtoDAsync %#" PRIxPTR "+%zu %s = %d", at, len, r ? "registered" : "pageable", code);
	return leave(code);
}

API int cuMemcpyDtoH_v2(void *dst, uintptr_t src, size_t len) {
	int code = enter("cuMemcpyDtoH", true);
	memory *m = find_memory(src, len);
	if (!code && !m) code = INVALID_VALUE;
	if (!code) {
		if (m->unordered) violation("device memory was read while a copy wrote it", src, len);
		while (m->writing) pthread_cond_wait(&changed, &mu);
		memcpy(dst, (void *)src, len);
	}
	return leave(code);
}

API int cuStreamCreate(stream **out, unsigned flags) {
	int code = enter("cuStreamCreate", true);
	if (!code && flags > 1) code = INVALID_VALUE;
	if (!code) {
		*out = calloc(1, sizeof **out);
		(*out)->non_blocking = flags;
		(*out)->next = streams;
		streams = *out;
	}
	return leave(code);
}

API int cuStreamDestroy_v2(stream *s) {
	int code = enter("cuStreamDestroy", true);
	stream **at = &streams;
	while (*at && *at != s) at = &(*at)->next;
	if (!code && !*at) code = INVALID_HANDLE;
	if (!code) {
		if (s->pending) violation("a stream was destroyed in use", 0, 0);
		*at = s->next;
		s->ending = true;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&mu);
		if (s->started) pthread_join(s->thread, NULL);
		free(s);
		return code;
	}
	return leave(code);
}

API int cuStreamSynchronize(stream *s) {
	int code = enter("cuStreamSynchronize", true);
	if (!code && !known_stream(s)) code = INVALID_HANDLE;
	if (!code) {
		if (!s) s = &legacy;
		while (s->pending) pthread_cond_wait(&changed, &mu);
	}
	return leave(code);
}

API int cuStreamWaitEvent(stream *s, event *e, unsigned flags) {
	int code = enter("cuStreamWaitEvent", true);
	(void)flags;
	if (!code && (!known_stream(s) || !known_event(e))) code = INVALID_HANDLE;
	if (!code && e->pending) enqueue(s, (job){.after = e});
	return leave(code);
}

API int cuEventCreate(event **out, unsigned flags) {
	int code = enter("cuEventCreate", true);
	(void)flags;
	if (!code) {
		*out = calloc(1, sizeof **out);
		(*out)->next = events;
		events = *out;
	}
	return leave(code);
}

API int cuEventRecord(event *e, stream *s) {
	int code = enter("cuEventRecord", true);
	if (!code && (!known_event(e) || !known_stream(s))) code = INVALID_HANDLE;
	if (!code) {
		e->recorded = true;
		e->pending++;
		enqueue(s, (job){.ev = e});
	}
	return leave(code);
}

API int cuEventQuery(event *e) {
	int code = enter("cuEventQuery", false);
	if (!code && !known_event(e)) code = INVALID_HANDLE;
	if (!code && e->pending) code = NOT_READY;
	return leave(code);
}

API int cuEventSynchronize(event *e) {
	int code = enter("cuEventSynchronize", false);
	if (!code && !known_event(e)) code = INVALID_HANDLE;
	while (!code && e->pending) pthread_cond_wait(&changed, &mu);
	return leave(code);
}

API int cuEventElapsedTime(float *ms, event *from, event *to) {
	int code = enter("cuEventElapsedTime", false);
	if (!code && (!known_event(from) || !known_event(to))) code = INVALID_HANDLE;
	if (!code && (from->pending || to->pending)) code = NOT_READY;
	if (!code) *ms = (to->done.tv_sec - from->done.tv_sec) * 1e3f + (to->done.tv_nsec - from->done.tv_nsec) * 1e-6f;
	return leave(code);
}

API int cuEventDestroy_v2(event *e) {
	int code = enter("cuEventDestroy", false);
	event **at = &events;
	while (*at && *at != e) at = &(*at)->next;
	if (!code && !*at) code = INVALID_HANDLE;
	if (*at) { // a code that a test asked for is of another call's failure, and the event is gone
		if (e->pending) violation("an event was destroyed in use", 0, 0);
		while (e->pending) pthread_cond_wait(&changed, &mu);
		for (at = &events; *at && *at != e; at = &(*at)->next);
		if (*at) *at = e->next;
		free(e);
	}
	return leave(code);
}

static const struct { int code; const char *name, *text; } names[] = {
	{OK, "CUDA_SUCCESS", "no error"},
	{INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
	{STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
	{NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
	{ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
	{NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
	{NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
	{NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
	{DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
};

API int cuGetErrorName(int code, const char **out) {
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].code == code) return *out = names[i].name, OK;
	return *out = NULL, INVALID_VALUE;
}

API int cuGetErrorString(int code, const char **out) {
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].code == code) return *out = names[i].text, OK;
	return *out = NULL, INVALID_VALUE;
}

// Control, for tests in the same process.

// fake_reset forgets failures, counts, attributes, delay, log and violations. What is registered stays.
API void fake_reset(void) {
	pthread_mutex_lock(&mu);
	failure_count = violations = 0;
	device_count = DEVICES;
	delay_us = 0;
	held = false;
	pthread_cond_broadcast(&changed);
	memset(calls, 0, sizeof calls);
	memset(attribute_values, 0, sizeof attribute_values);
	log_len = 0;
	if (log_text) log_text[0] = 0;
	pthread_mutex_unlock(&mu);
}

// fake_fail makes calls fail; the text is that of FAKE_CUDA_FAIL.
API void fake_fail(const char *text) {
	pthread_mutex_lock(&mu);
	add_failures(text);
	pthread_mutex_unlock(&mu);
}

// fake_hold keeps copies from registered memory from being made, until a call with 0.
API void fake_hold(int hold) { pthread_mutex_lock(&mu); held = hold; pthread_cond_broadcast(&changed); pthread_mutex_unlock(&mu); }

API void fake_set_delay(long us) { pthread_mutex_lock(&mu); delay_us = us; pthread_mutex_unlock(&mu); }
API void fake_set_devices(int n) { pthread_mutex_lock(&mu); device_count = n; pthread_mutex_unlock(&mu); }
API void fake_set_attribute(int attribute, int value) { pthread_mutex_lock(&mu); attribute_values[attribute] = value + 1; pthread_mutex_unlock(&mu); }

// fake_end waits for the streams and takes everything back, as the end of a process does.
API void fake_end(void) {
	pthread_mutex_lock(&mu);
	stream *all[] = {&legacy, streams};
	for (int i = 0; i < 2; i++)
		for (stream *s = all[i]; s; s = s->next)
			while (s->pending) pthread_cond_wait(&changed, &mu);
	while (streams) {
		stream *s = streams;
		streams = s->next;
		s->ending = true;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&mu);
		if (s->started) pthread_join(s->thread, NULL);
		free(s);
		pthread_mutex_lock(&mu);
	}
	while (registrations) { registration *r = registrations; registrations = r->next; free(r); }
	while (memories) { memory *m = memories; memories = m->next; free((void *)m->base); free(m); }
	while (events) { event *e = events; events = e->next; free(e); }
	for (int i = 0; i < DEVICES; i++) contexts[i].retained = 0;
	pthread_mutex_unlock(&mu);
}

// fake_live, fake_contexts, fake_memories, fake_streams and fake_events count what was not given back.
API int fake_live(void) { pthread_mutex_lock(&mu); int n = live(); return leave(n); }
API int fake_contexts(void) { pthread_mutex_lock(&mu); int n = retained(); return leave(n); }
API int fake_memories(void) { pthread_mutex_lock(&mu); int n = 0; for (memory *m = memories; m; m = m->next) n++; return leave(n); }
API int fake_streams(void) { pthread_mutex_lock(&mu); int n = 0; for (stream *s = streams; s; s = s->next) n++; return leave(n); }
API int fake_events(void) { pthread_mutex_lock(&mu); int n = 0; for (event *e = events; e; e = e->next) n++; return leave(n); }

// fake_violations looks at all registrations once more and returns the number of violations.
API int fake_violations(void) {
	pthread_mutex_lock(&mu);
	for (registration *r = registrations; r; r = r->next) check(r);
	int n = violations;
	return leave(n);
}

// fake_log copies the log, with its ending zero, into out if there is room, and returns its length.
API size_t fake_log(char *out, size_t room) {
	pthread_mutex_lock(&mu);
	size_t n = log_len;
	if (log_text && n < room) memcpy(out, log_text, n + 1);
	pthread_mutex_unlock(&mu);
	return n;
}
