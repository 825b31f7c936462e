package engine

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/internal/sentinel"
)

var (
	// ErrInvalid means that an argument or option makes no sense.
	ErrInvalid = sentinel.New(sentinel.Invalid, "engine: invalid argument")
	// ErrRefused is wrapped by [RefusedError], and means that a call is not made.
	ErrRefused = errors.New("engine: not sent")
	// ErrDead is wrapped by [DeadError].
	ErrDead = errors.New("engine: the engine is gone")
	// ErrNotRunning means that the engine was not started yet, or is being started
	// again.
	ErrNotRunning = errors.New("engine: the engine is not running")
	// ErrAsleep means that the engine was put to sleep.
	ErrAsleep = errors.New("engine: the engine is asleep; call WakeUp")
	// ErrClosed means that the client, or the socket, was closed.
	ErrClosed = sentinel.New(sentinel.Closed, "engine: closed")
	// ErrAborted means that a stream was closed before its end.
	ErrAborted = errors.New("engine: the request was aborted")
)

// Causes of a [DeadError].
var (
	// ErrCoreDead: the engine reported its end itself (ENGINE_CORE_DEAD), as it does when a
	// worker fails.
	ErrCoreDead = errors.New("the engine reported that it died; its log contains the cause")
	// ErrDisconnected: the engine closed a connection. Its process may be alive,
	// and deaf: that is what a malformed request does to its input thread.
	ErrDisconnected = errors.New("the engine closed its connection; it died, or its input thread did")
	// ErrDeaf: the engine answers nothing any more.
	ErrDeaf = errors.New("the engine is connected but does not answer")
)

// RefusedError reports what is wrong with a request that would have harmed the
// engine or given wrong tokens. Nothing was sent. It wraps [ErrRefused] and the
// cause, if there is one.
type RefusedError struct {
	ID   string // the request's
	What string // the part of it
	Err  error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("engine: request %q was not sent: %s: %v", e.ID, e.What, e.Err)
}

// Unwrap returns ErrRefused and the cause.
func (e *RefusedError) Unwrap() []error { return []error{ErrRefused, e.Err} }

// DeadError ends what was under way when the engine went. Start the engine again;
// requests may be repeated then. It wraps [ErrDead] and the cause: [ErrCoreDead],
// [ErrDisconnected], [ErrDeaf], an [*ExitError], [ErrClosed], or why its answer can't
// be read.
type DeadError struct{ Err error }

func (e *DeadError) Error() string { return fmt.Sprintf("engine: the engine is gone: %v", e.Err) }

// Unwrap returns ErrDead and the cause.
func (e *DeadError) Unwrap() []error { return []error{ErrDead, e.Err} }

// ExitError means that the engine's process ended. It wraps the error of
// exec.Cmd.Wait, which is nil for the status 0.
type ExitError struct{ Err error }

func (e *ExitError) Error() string {
	if e.Err == nil {
		return "the engine's process exited with status 0"
	}
	return fmt.Sprintf("the engine's process ended: %v", e.Err)
}

// Unwrap returns the error of exec.Cmd.Wait.
func (e *ExitError) Unwrap() error { return e.Err }

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

func (e *RequestError) Error() string {
	s := fmt.Sprintf("engine: request %q failed in the engine", e.ID)
	switch {
	case e.Err != nil:
		s += ": " + e.Err.Error()
	case e.Text != "":
		s += fmt.Sprintf(": %s %s", e.Code, e.Text)
	default:
		s += "; its log contains the cause"
	}
	return s
}

// Unwrap returns Err.
func (e *RequestError) Unwrap() error { return e.Err }

// CallError is the engine's answer to a utility call that failed.
type CallError struct{ Method, Text string }

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

func (e *MismatchError) Error() string {
	return fmt.Sprintf("engine: the engine's %s is %s, not %s; %s", e.What, e.Got, e.Want, e.Advice)
}
