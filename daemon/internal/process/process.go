// Package process identifies the process at the other end of a unix socket, and notices when it is dead.
//
// A number of a process is used again after its death, so a process is identified by its number and the time
// of its start, and watched through a pidfd, which is of one process for ever. The peer of a connection is
// the process that connected: a child that inherits the connection speaks for its parent, and is not watched.
//
// See docs/decisions.md, "Sessions belong to processes, by number, start and namespace".
package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ErrDead reports a process that has ended, or of which nothing is left but its entry in the table of processes.
var ErrDead = errors.New("daemon: the process has ended")

// ID identifies a process, also to later processes on the same machine.
type ID struct {
	PID int // 0 is unknown, as of a process of another PID namespace
	// Start is when it started, in clock ticks since the machine did; 0 is unknown.
	Start uint64
	// Namespace is the inode of the PID namespace in which PID is meant; 0 is unknown.
	Namespace uint64
}

// Known reports whether an ID is of one process.
func (id ID) Known() bool { return id.PID > 0 && id.Start > 0 }

// String returns the ID as two words, which Parse reads: "4711 123456@4026531836"; "0 0" is unknown.
func (id ID) String() string {
	s := strconv.Itoa(id.PID) + " " + strconv.FormatUint(id.Start, 10)
	if id.Namespace != 0 {
		s += "@" + strconv.FormatUint(id.Namespace, 10)
	}
	return s
}

// Parse returns the ID of two words. The namespace may be missing.
func Parse(pid, start string) (ID, error) {
	var id ID
	var err error
	if id.PID, err = strconv.Atoi(pid); err != nil || id.PID < 0 {
		return ID{}, fmt.Errorf("daemon: %q is no number of a process", pid)
	}
	start, space, found := strings.Cut(start, "@")
	if id.Start, err = strconv.ParseUint(start, 10, 64); err == nil && found {
		id.Namespace, err = strconv.ParseUint(space, 10, 64)
	}
	if err != nil {
		return ID{}, fmt.Errorf("daemon: %q is no start of a process: %w", start, err)
	}
	return id, nil
}

// Process is a process. Close it when nobody needs it any more.
type Process struct {
	id    ID
	inode uint64   // of the pidfd, unique among all processes; 0 is unknown
	fd    *os.File // the pidfd; nil if the process can't be watched
}

// Unknown returns a process about which nothing is known: it is never the same as another one, and can't be watched.
func Unknown() *Process { return &Process{} }

// ID returns the identity of the process, for later processes.
func (p *Process) ID() ID { return p.id }

// Watchable reports whether the death of the process will be noticed.
func (p *Process) Watchable() bool { return p.fd != nil }

// Relation is what is known about two processes.
type Relation int

// The relations.
const (
	Different Relation = iota
	Same
	Unclear // nothing tells them apart
)

// Compare reports whether p and q are one process.
func (p *Process) Compare(q *Process) Relation {
	same := func(is bool) Relation {
		if is {
			return Same
		}
		return Different
	}
	switch {
	case p == q:
		return Same
	case p.inode != 0 && q.inode != 0:
		return same(p.inode == q.inode)
	case p.id.Known() && q.id.Known():
		return same(p.id == q.id)
	case p.id.PID != q.id.PID:
		return Different
	}
	return Unclear
}

// Wait waits until the process is dead, and returns true; or until Close, and returns false. That it does at
// once if the process can't be watched.
func (p *Process) Wait() bool { return p.fd != nil && p.wait() }

// Close ends the watch. Closing twice is fine.
func (p *Process) Close() {
	if p.fd != nil {
		_ = p.fd.Close() // nothing was written
	}
}
