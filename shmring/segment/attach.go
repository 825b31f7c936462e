package segment

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/sidecar"
)

// Attach maps an existing segment. It fails with fs.ErrNotExist, [ErrSize], [ErrUnsafe], or
// an error of the system.
//
// Attach registers the segment nowhere. CPython's resource tracker, in contrast, unlinks a
// segment when a process that attached it exits.
func Attach(o Options) (*Segment, error) {
	if o.Name == "" {
		return nil, fmt.Errorf("%w: a segment name is needed to attach", errInvalid)
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	path, err := shmfile.Path(o.Dir, o.Name)
	if err != nil {
		return nil, err
	}
	f, size, err := shmfile.Open(path, !o.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s; the writer must create it before a reader starts", errNotExist, o.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("segment: attaching %s: %w", o.Name, err)
	}
	if size != o.bytes() {
		return nil, errors.Join(&sizeError{Name: o.Name, Got: size, Ring: o.RingSize, DataOffset: o.DataOffset},
			f.Close())
	}
	return newSegment(o, path, f)
}

// Adopt takes over a segment whose writer was killed, or closed the segment without removing
// it. o describes the segment. Adopt fails with fs.ErrNotExist; [ErrForeign] if there is no
// sidecar; [ErrOwned] if the writer is alive; [ErrSize]; and [shmring.ErrCorrupt] if the sidecar
// can't be that of the segment. The texts of these errors advise a writer.
func Adopt(o Options) (*Segment, error) {
	o.ReadOnly, o.Sidecar = false, nil
	s, err := Attach(o)
	if err != nil {
		return nil, adoptError(o, err)
	}
	if s.sidecar, err = sidecar.Open(o.Dir, o.Name); err == nil {
		err = own(s.sidecar)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", errNotExist, err)
	}
	if err == nil {
		if was := s.sidecar.Options(); !s.sidecar.Describes(s.file) || was.RingSize != o.RingSize ||
			was.DataOffset != o.DataOffset {
			err = &sidecar.FormatError{
				Path: s.sidecar.Path(), What: "it belongs to another segment than the one of its name",
			}
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// adoptError turns an error of Attach, which advises readers, into one for a writer.
func adoptError(o Options, err error) error {
	var size *sizeError
	switch {
	case errors.Is(err, errNotExist):
		return fmt.Errorf("%w to adopt: %s; create it", errNotExist, o.Name)
	case errors.As(err, &size):
		size.Adopting = true
		if f, err := sidecar.Open(o.Dir, o.Name); err == nil {
			was := f.Options()
			size.LeftRing, size.LeftGeneration = was.RingSize, was.Generation
			return errors.Join(size, f.Close())
		}
	}
	return err
}
