// Package memory says how much memory is there for a shared mapping, gets the
// pages of a mapping into place, and looks at what the kernel made of it.
//
// The files of /proc and /sys are read through an fs.FS that stands for "/".
// What they say is believed when it can be read and ignored when it can't: they
// are missing or empty in one container or another.
package memory

import "errors"

// ErrUnsupported says that this system has none of this.
var ErrUnsupported = errors.New("shared memory is supported on linux only")
