package folder

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier/internal/tree"
)

// The lease of the level that evicts is a file, so that one at a time searches the root and nothing is evicted twice. It
// ends with its file, or when its content has stayed the same for Options.lease, by the clock of the level that watches
// it: its owner writes it anew three times as often. So no clocks of two machines are compared, and a host that died
// holds it for no longer. Who takes it over while the owner only was slow does no harm: each step of an eviction is right
// by itself, see evict.go.
//
// See docs/decisions.md, "Who evicts in a shared folder has a lease that is watched".
const leasePath = tree.OwnDir + "/evictor"

// leaseContent is what the file has. Host is for people.
type leaseContent struct {
	Owner string `json:"owner"`
	Count int64  `json:"count"`
	Host  string `json:"host"`
	PID   int    `json:"pid"`
}

// lease is what a level knows of the lease.
type lease struct {
	l       *Level
	content string    // of the file, as it was seen or written last
	since   time.Time // when it was seen or written first
	count   int64
}

var errLeaseLost = errors.New("another level has taken over the lease of the evictor")

// take takes the lease if it is free, or its owner is dead.
func (s *lease) take(ctx context.Context) (taken bool, err error) {
	s.count++
	ours, dead := s.text(), ""
	if time.Since(s.since) >= s.l.o.lease {
		dead = s.content
	}
	var now string // what the file had
	var placed bool
	err = s.l.file(ctx, func(t *tree.Tree) (err error) {
		switch now, err = readSmall(t, leasePath); {
		case err != nil && !isAbsent(err):
			return err
		case err == nil && (dead == "" || now != dead):
			return nil
		case err == nil:
			if err := s.l.takeAway(t, dead); err != nil {
				return err
			}
		}
		placed, err = place(t, []byte(ours), s.l.tempName(), leasePath)
		failpoint.Hit("folder.lease.taken")
		return err
	})
	switch {
	case err != nil:
		return false, err
	case placed:
		now = ours
	case now == s.content:
		return false, nil
	}
	s.content, s.since = now, time.Now()
	return placed, nil
}

// takeAway removes the lease of a dead owner: the rename takes the file in one step, and what is not that lease is put back.
func (l *Level) takeAway(t *tree.Tree, dead string) error {
	aside := l.tempName()
	if err := t.Root.Rename(leasePath, aside); err != nil {
		return ignoreAbsent(err)
	}
	if now, err := readSmall(t, aside); err == nil && now != dead {
		return ignoreExist(link(t, aside, leasePath))
	}
	return t.Root.Remove(aside)
}

// renew keeps the lease, if it is time for that. It fails if the lease was taken over.
func (s *lease) renew(ctx context.Context) error {
	if time.Since(s.since) < s.l.o.lease/3 {
		return nil
	}
	s.count++
	ours, before := s.text(), s.content
	err := s.l.file(ctx, func(t *tree.Tree) error {
		now, err := readSmall(t, leasePath)
		if err != nil && !isAbsent(err) {
			return err
		}
		if now != before {
			return errLeaseLost
		}
		return replace(t, []byte(ours), s.l.tempName(), leasePath)
	})
	if err == nil {
		s.content, s.since = ours, time.Now()
	}
	return err
}

// release ends the lease, unless another level has it by now.
func (s *lease) release(ctx context.Context) error {
	ours := s.content
	return s.l.file(ctx, func(t *tree.Tree) error {
		now, err := readSmall(t, leasePath)
		if err != nil || now != ours {
			return nil // the next evictor finds it unchanged
		}
		return t.Root.Remove(leasePath)
	})
}

func (s *lease) text() string {
	host, _ := os.Hostname()
	b, _ := json.Marshal(leaseContent{s.l.name, s.count, host, os.Getpid()})
	return string(b) + "\n"
}

// maxSmall is the longest of the level's own files that is read, in bytes.
const maxSmall = 4096

func readSmall(t *tree.Tree, p string) (string, error) {
	f, _, err := t.OpenFile(p)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSmall))
	return strings.ToValidUTF8(string(b), "?"), errors.Join(err, f.Close())
}

// file makes file calls that belong to no object, in an op of their own.
func (l *Level) file(ctx context.Context, call func(t *tree.Tree) error) error {
	return l.fileCalls(ctx, 1, call)
}

// fileCalls is file for several calls, which get the time of that many.
func (l *Level) fileCalls(ctx context.Context, calls int, call func(t *tree.Tree) error) error {
	o, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer o.end()
	return o.do(int64(calls)<<20, func() error { return call(o.t) })
}
