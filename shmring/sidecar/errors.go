package sidecar

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/shmring"
)

var (
	// ErrForeign says that a segment has no sidecar, so something else made it.
	ErrForeign = errors.New("shmring: not a segment of this library")
	// ErrOwned says that a segment's writer lives.
	ErrOwned = errors.New("shmring: segment has a living writer")
	// ErrBusy says that every slot is taken.
	ErrBusy = sentinel.New(sentinel.Busy, "shmring: no reader slot is free")
)

// FormatError says that a file can't be the sidecar of a segment: it is empty, cut
// short or damaged, or a later release made it.
type FormatError struct {
	Path string
	What string
	// Newer reports a layout that this release can't read.
	Newer bool
}

func (e *FormatError) Error() string {
	advice := "use the release that made it"
	if !e.Newer {
		advice = "if no process uses it, this removes it: " + shmfile.SweepCommand(strings.TrimSuffix(filepath.Base(e.Path), Suffix))
	}
	return fmt.Sprintf("shmring: %s is not a usable sidecar: %s; %s", e.Path, e.What, advice)
}

// Unwrap makes errors.Is(err, shmring.ErrCorrupt) true.
func (e *FormatError) Unwrap() error { return shmring.ErrCorrupt }
