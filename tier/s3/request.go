package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/ringcache/ringcache/tier/internal/remote"
)

const (
	tries      = 3 // of a round trip
	firstPause = 100 * time.Millisecond

	// budget is how many failures in a row are repeated, by all calls of a level together. See retries.
	budget     = 10
	giveBack   = 0.1 // of a token, by an answer
	leastToken = budget / 2
)

// retries is the budget of repetitions: a store that fails all the time is not sent three times the load.
// A failure takes a token, an answer gives a part of one back, and with half of them nothing is repeated.
type retries struct {
	mu     sync.Mutex
	tokens float64
}

func (r *retries) succeed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens = min(budget, r.tokens+giveBack)
}

// fail takes a token, and reports whether there is one to repeat what failed.
func (r *retries) fail() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens = max(0, r.tokens-1)
	return r.tokens >= leastToken
}

// callerError is an error of the caller's functions, which says nothing about the store.
type callerError struct{ error }

func (e callerError) Unwrap() error { return e.error }

// do makes a round trip that moves so many bytes, and repeats it if the store failed in a way that may pass.
// The error is explained, but for those of trip that say nothing about the store.
func (l *Level) do(ctx context.Context, bytes int64, trip func(ctx context.Context) error) error {
	for try := 1; ; try++ {
		if err := l.breaker.Down(); err != nil {
			return explain(ctx, err)
		}
		limited, cancel, hurried := l.settings.limited(ctx, bytes)
		err := trip(limited)
		late := limited.Err() != nil
		cancel()
		switch {
		case answered(err) && !refused(err):
			l.breaker.Succeed()
			l.retries.succeed()
			return explain(ctx, err)
		case errors.Is(ctx.Err(), context.Canceled):
			return ctx.Err()
		case late && hurried, ctx.Err() != nil:
			l.breaker.Suspect()
			return explain(ctx, err)
		}
		again := l.retries.fail()
		if try == tries || !again || late || !passes(err) || !l.pause(ctx, try) {
			l.breaker.Fail(err)
			return explain(ctx, err)
		}
	}
}

// pause waits for a random time, twice as long after each try. It returns false if the context ends.
func (l *Level) pause(ctx context.Context, try int) bool {
	t := time.NewTimer(time.Duration(rand.Int64N(int64(firstPause << (try - 1)))))
	defer t.Stop()
	select {
	case <-t.C:
		return remote.EndOf(ctx) == nil
	case <-ctx.Done():
		return false
	}
}

// answered reports whether the store has answered, if only with an error about the request.
func answered(err error) bool {
	if err == nil || errors.As(err, new(callerError)) || errors.As(err, new(errDamaged)) || errors.As(err, new(errForeign)) ||
		errors.Is(err, errMissing) || errors.Is(err, errChanged) || errors.Is(err, errLongerHead) || errors.As(err, new(*needsMemory)) {
		return true
	}
	r, ok := response(err)
	if ok && r.StatusCode == http.StatusNotImplemented {
		return true
	}
	return ok && r.StatusCode < 500 && r.StatusCode != http.StatusTooManyRequests && r.StatusCode != http.StatusRequestTimeout ||
		ok && isFull(r)
}

// refused reports whether the store refuses every request of this client.
func refused(err error) bool {
	r, ok := response(err)
	if !ok {
		return false
	}
	switch r.Code {
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "RequestTimeTooSkewed", "NoSuchBucket",
		"AuthorizationHeaderMalformed", "AllAccessDisabled", "AccountProblem":
		return true
	}
	return false
}

// passes reports whether a failure may be over at the next try: an overloaded store, a broken connection.
func passes(err error) bool {
	if _, ok := response(err); ok {
		return !refused(err)
	}
	var op *net.OpError
	return !errors.Is(err, context.DeadlineExceeded) && !(errors.As(err, &op) && op.Op == "dial") && !errors.Is(err, errCredentials)
}

// response returns the store's answer, if the error is one.
func response(err error) (minio.ErrorResponse, bool) {
	var r minio.ErrorResponse
	ok := errors.As(err, &r) && r.StatusCode != 0
	return r, ok
}

// errChanged is that an object was replaced between two parts of it that were read.
var errChanged = errors.New("the object was replaced while it was read")

// readRange reads an object of the bucket from an offset on, at most n bytes, and hands them to a function with
// the length of the whole object and its ETag. If etag is not empty, it reads only the object that has it.
// The error is not explained.
func (l *Level) readRange(ctx context.Context, key, etag string, from, n int64, fn func(body io.Reader, total int64, etag string) error) error {
	var o minio.GetObjectOptions
	o.Set("Range", fmt.Sprintf("bytes=%d-%d", from, from+n-1))
	if etag != "" {
		if err := o.SetMatchETag(etag); err != nil {
			return err
		}
	}
	body, info, header, err := l.client.GetObject(ctx, l.settings.bucket, key, o)
	if err != nil {
		r, ok := response(err)
		switch {
		case ok && r.Code == "NoSuchKey":
			return errMissing
		case ok && r.StatusCode == http.StatusPreconditionFailed:
			return errChanged
		case ok && r.StatusCode == http.StatusRequestedRangeNotSatisfiable && from == 0: // it has no bytes
			return fn(strings.NewReader(""), 0, "")
		case ok && r.StatusCode == http.StatusRequestedRangeNotSatisfiable:
			return errChanged
		}
		return err
	}
	defer body.Close()
	total := info.Size
	if r := header.Get("Content-Range"); r != "" {
		if total, err = lengthOf(r, from, n, info.Size); err != nil {
			return err
		}
	} else if from > 0 {
		return errors.New("the store returned a whole object in place of a part")
	}
	if total < 0 {
		return errors.New("the store does not say how long the object is")
	}
	if etag != "" && info.ETag != "" && info.ETag != etag { // the store ignores If-Match
		return errChanged
	}
	if err := fn(io.LimitReader(body, n), total, info.ETag); err != nil {
		return err
	}
	// Behind the last byte the connection is free for the next request.
	var more [1]byte
	if k, err := body.Read(more[:]); k == 0 && !errors.Is(err, io.EOF) && err != nil {
		return nil // what was asked for is there; the connection is closed
	}
	return nil
}

// lengthOf returns the length of the whole object, of an answer that has a part of it.
func lengthOf(header string, from, n, length int64) (int64, error) {
	err := fmt.Errorf("the store returned the part %.100q in place of %d bytes from %d on", header, n, from)
	text, ok := strings.CutPrefix(header, "bytes ")
	part, all, ok2 := strings.Cut(text, "/")
	first, last, ok3 := strings.Cut(part, "-")
	if !ok || !ok2 || !ok3 {
		return 0, err
	}
	a, err1 := strconv.ParseInt(first, 10, 64)
	b, err2 := strconv.ParseInt(last, 10, 64)
	total, err3 := strconv.ParseInt(all, 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || total <= 0 || a != from || b != min(from+n, total)-1 || length != b-a+1 {
		return 0, err
	}
	return total, nil
}
