package main

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// link is how objects go from this process to a receiver in another one, one at a time: the next is sent when
// the receiver has answered the last.
type link interface {
	// open makes this end, with sockets in a folder, and returns what the receiver needs to know.
	open(c Case, folder string) (map[string]any, error)
	// accept waits for the receiver.
	accept() error
	// send sends an object, and returns the time from which its way counts.
	send() (began int64, err error)
	// answer waits for the receiver's answer: the time at which it read the first byte.
	answer() (int64, error)
	// Close tells the receiver that nothing follows, and gives everything back. It also follows an open that
	// failed.
	Close() error
}

// wayJob times the way of objects over a link to a receiver in Python.
type wayJob struct {
	receiver remote
	purpose  string // of the receiver's process
	link     link
	folder   string
}

func over(peer, purpose string, l func(*environment) link) maker {
	return maker{make: func(e *environment) Job {
		return &wayJob{receiver: remote{peer: peer, env: e}, purpose: purpose, link: l(e)}
	}}
}

func (j *wayJob) Peer() string { return j.receiver.peer }

func (j *wayJob) Prepare(c Case) (err error) {
	if j.folder, err = os.MkdirTemp("", "ringcache-compare-"); err != nil {
		return err
	}
	if j.receiver.more, err = j.link.open(c, j.folder); err != nil {
		return err
	}
	if err := j.receiver.prepare(j.purpose, c); err != nil {
		return err
	}
	return j.link.accept()
}

func (j *wayJob) Run(n int) ([]float64, error) { return exchange(j.link, n) }

// exchange sends n objects over a link and returns the time of each.
func exchange(l link, n int) ([]float64, error) {
	times := make([]float64, 0, n)
	for range n {
		began, err := l.send()
		if err != nil {
			return nil, err
		}
		ended, err := l.answer()
		if err != nil {
			return nil, err
		}
		times = append(times, float64(ended-began))
	}
	return times, nil
}

func (j *wayJob) Close() error {
	return errors.Join(j.link.Close(), j.receiver.Close(), os.RemoveAll(j.folder))
}

// now is the system's monotonic clock, which all processes share; Python's time.monotonic_ns is the same one.
func now() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // exists everywhere
	return t.Nano()
}

// sender is the peer whose objects are sent by the process with vLLM; receivers of it are Python processes,
// too.
type sender struct {
	from, to remote
	purpose  string // of the receiver's process; none if the sender starts it by itself
	folder   string
}

// sendVLLM is one of the ways of the process with vLLM: shm, direct or queue.
func sendVLLM(way, peer string) maker {
	return maker{make: func(e *environment) Job {
		s := &sender{from: remote{peer: peer, env: e}, to: remote{env: e}, purpose: "receive-vllm"}
		if way == "queue" {
			s.purpose = ""
		}
		s.from.more = map[string]any{"way": way}
		return s
	}}
}

func (s *sender) Peer() string { return s.from.peer }

func (s *sender) Prepare(c Case) (err error) {
	if s.folder, err = os.MkdirTemp("", "ringcache-compare-"); err != nil {
		return err
	}
	more := map[string]any{"way": s.from.more["way"], "endpoint": "ipc://" + filepath.Join(s.folder, "socket"),
		"name": segmentName()}
	s.from.more, s.to.more = more, more
	if err := s.from.prepare("vllm", c); err != nil || s.purpose == "" {
		return err
	}
	return s.to.prepare(s.purpose, c)
}

func (s *sender) Run(n int) ([]float64, error) { return s.from.Run(n) }

func (s *sender) Close() error {
	return errors.Join(s.from.Close(), s.to.Close(), os.RemoveAll(s.folder))
}
