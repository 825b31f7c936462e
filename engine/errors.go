package engine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/ringcache/ringcache/internal/sentinel"
)

var (
	// ErrRefused means that a request or a call was not sent, since it would have harmed
	// the engine or given wrong tokens. The text contains what is wrong with it.
	ErrRefused = errors.New("engine: not sent")
	// ErrDead ends what was under way when the engine went. Start the engine again;
	// requests may be repeated then. The error wraps the cause as well, and its text
	// contains it: the engine reported its end, closed a connection or answered nothing
	// any more, its answer can't be read, its process ended (errors.As finds an
	// [*exec.ExitError] unless the status was 0), or the client was closed.
	ErrDead = errors.New("engine: the engine is gone")
	// ErrNotRunning means that the engine was not started yet, or is being started
	// again.
	ErrNotRunning = errors.New("engine: the engine is not running")
	// ErrAsleep means that the engine was put to sleep.
	ErrAsleep = errors.New("engine: the engine is asleep; call WakeUp")

	errInvalid = sentinel.New(sentinel.Invalid, "engine: invalid argument")
	errClosed  = sentinel.New(sentinel.Closed, "engine: closed") // the client was closed
	// errAborted means that a stream was closed before its end.
	errAborted = sentinel.Like("engine: the request was aborted", fs.ErrClosed)
)

// Causes of an [ErrDead].
var (
	// errCoreDead: the engine reported its end itself (ENGINE_CORE_DEAD), as it does when a
	// worker fails.
	errCoreDead = errors.New("the engine reported that it died; its log contains the cause")
	// errDisconnected: the engine closed a connection. Its process may be alive,
	// and deaf: that is what a malformed request does to its input thread. ZeroMQ would
	// connect again, but what was on the way is lost, and nobody knows whose answers are still
	// to come: so a lost connection is the end of the engine.
	errDisconnected = errors.New("the engine closed its connection; it died, or its input thread did")
	// errDeaf: the engine answers nothing any more.
	errDeaf = errors.New("the engine is connected but does not answer")
)

// notEOF returns err, or only its text if err wraps io.EOF: that is the regular end of a
// stream, which a producer or a transport can't be taken for.
func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New(err.Error())
	}
	return err
}

// exited is the cause when the engine's process has ended. err is that of
// exec.Cmd.Wait, nil for the status 0.
func exited(err error) error {
	if err == nil {
		return errors.New("the engine's process exited with status 0")
	}
	return fmt.Errorf("the engine's process ended: %w", err)
}

// refusedError is an [ErrRefused] of a request.
type refusedError struct {
	id   string // the request's
	what string // the part of it that is wrong
	err  error
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("engine: request %q was not sent: %s: %v", e.id, e.what, e.err)
}

// Unwrap returns ErrRefused and the cause.
func (e *refusedError) Unwrap() []error { return []error{ErrRefused, e.err} }

// RequestError means that the engine gave up one request, or that the client did, since
// it could not use the engine's answers; the engine runs on.
type RequestError struct {
	ID string
	// Code and Text are the engine's (vLLM 0.33 on), else empty: its log has more.
	Code, Text string
	// Retryable reports that the engine recommends another try.
	Retryable bool
	// Err is why its answer could not be used, else nil.
	Err error
}

// Error is the engine's text where it sent one, else where to look.
func (e *RequestError) Error() string {
	s := fmt.Sprintf("engine: request %q failed", e.ID)
	switch {
	case e.Err != nil:
		return s + ": " + e.Err.Error()
	case e.Text != "":
		return s + fmt.Sprintf(" in the engine: %s %s", e.Code, e.Text)
	}
	return s + " in the engine; its log contains the cause"
}

// Unwrap returns Err.
func (e *RequestError) Unwrap() error { return e.Err }

// CallError is the engine's answer to a utility call that failed.
type CallError struct{ Method, Text string }

// Error is the engine's own text, behind the method.
func (e *CallError) Error() string {
	return fmt.Sprintf("engine: the call of %q failed: %s", e.Method, e.Text)
}

// MismatchError means that the engine that connected is not the one that the
// options are for, or that its ready message can't be true: What is the field then.
type MismatchError struct {
	What      string
	Want, Got string
	Advice    string
}

// Error has both values, and what to do about them.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("engine: the engine's %s is %s, not %s; %s", e.What, e.Got, e.Want, e.Advice)
}
