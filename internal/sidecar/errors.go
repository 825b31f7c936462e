package sidecar

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/internal/shmfile"
)

var (
	// ErrForeign reports that a segment has no sidecar, so something else made the segment.
	ErrForeign = errors.New("sidecar: not a segment of this library")
	// ErrOwned reports that the writer of a segment is alive.
	ErrOwned = errors.New("sidecar: segment has a living writer")
	// ErrBusy reports that every slot is taken.
	ErrBusy = sentinel.New(sentinel.Busy, "sidecar: no reader slot is free")

	errInvalid = sentinel.New(sentinel.Invalid, "sidecar: invalid argument")
	errCorrupt = sentinel.New(sentinel.Corrupt, "sidecar: damaged")
)

// FormatError reports that a file can't be the sidecar of a segment: the file is empty, cut
// short or damaged, or a later release made it.
type FormatError struct {
	Path   string
	What   string
	Offset int // of the word that can't be right
	// Newer reports that the file has a layout of a later release.
	Newer bool
}

func (e *FormatError) Error() string {
	advice := "use the release that made it"
	if !e.Newer {
		advice = "if no process uses it, this removes it: " +
			shmfile.SweepCommand(strings.TrimSuffix(filepath.Base(e.Path), Suffix))
	}
	return fmt.Sprintf("sidecar: %s is not a usable sidecar: %s; %s", e.Path, e.What, advice)
}

// Unwrap makes errors.Is true of the ErrCorrupt of package shmring.
func (e *FormatError) Unwrap() error { return errCorrupt }
