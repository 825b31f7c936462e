package sidecar

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/shmfile"
)

// Suffix is what the name of a sidecar has behind the name of its segment.
const Suffix = ".ctl"

// File is an open sidecar. vLLM does not use sidecars. See the package comment for its
// parts, lifetime and concurrency. Each part has a type, whose methods are those of the File.
type File struct {
	mapping
	stateRecords
	slots
	table
	readersLock
}

// mapping is the memory of a sidecar, which all parts share.
type mapping struct {
	path string
	file *os.File // nil if private
	mem  []byte
	opt  Options
}

func newFile(m mapping) *File {
	f := &File{mapping: m}
	f.stateRecords.mapping, f.slots.mapping, f.table.mapping, f.readersLock.mapping = &f.mapping, &f.mapping,
		&f.mapping, &f.mapping
	f.readersLock.held = make(chan struct{}, 1)
	return f
}

// Options returns the options with which the sidecar was made; Readers is that of the
// state that Open, or Own, found.
func (m *mapping) Options() Options { return m.opt }

// Size returns the size of the file in bytes.
func (m *mapping) Size() int64 { return m.opt.bytes() }

// Path returns the path of the file.
func (m *mapping) Path() string { return m.path }

// Create makes the sidecar of the segment name in dir (/dev/shm if empty), whose open
// file is seg, and takes the writer's lock. The file is complete and locked when it gets its
// name. Create fails with fs.ErrExist if there is a file of that name.
func Create(dir, name string, o Options, seg *os.File) (*File, error) {
	path, err := shmfile.Path(dir, name+Suffix)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errInvalid, err)
	}
	if o, err = o.withDefaults(); err != nil {
		return nil, err
	}
	dev, ino, err := shmfile.Identity(seg)
	if err != nil {
		return nil, err
	}
	file, err := shmfile.CreateUnnamed(filepath.Dir(path), o.bytes())
	if err != nil {
		return nil, err
	}
	f, err := mapFile(path, file, o.bytes(), true)
	if err != nil {
		return nil, err
	}
	f.start(o, dev, ino)
	if _, err := shmfile.TryLock(file); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	failpoint.Hit("sidecar.link")
	if err := shmfile.Link(file, path); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *File) start(o Options, dev, ino uint64) {
	format(f.mem, o, dev, ino)
	f.opt = o
	for range 2 { // so that both records are valid
		f.SetState(State{Epoch: 1, Readers: o.Readers, PID: os.Getpid()})
	}
	f.free = make([]uint32, 0, o.Objects)
	for i := o.Objects - 1; i >= 0; i-- {
		mem.Store64(f.entry(i), markFree)
		f.free = append(f.free, uint32(i))
	}
}

func mapFile(path string, file *os.File, size int64, write bool) (*File, error) {
	m, err := shmfile.Map(file, size, write)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return newFile(mapping{path: path, file: file, mem: m}), nil
}

// Private returns a sidecar in memory of this process, without a file.
func Private(o Options) (*File, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	f := newFile(mapping{path: "(private)", mem: make([]byte, o.bytes())})
	f.start(o, 0, 0)
	return f, nil
}

// Open opens the sidecar of the segment name in dir (/dev/shm if empty) without the writer's
// lock: to look at it, to take a slot, or to call Own. It fails with [ErrForeign] if there is
// no sidecar, and with a [*FormatError].
func Open(dir, name string) (*File, error) { return openFile(dir, name, true) }

// OpenToLook is Open for a file that is not written to: only Options, State, Size, Path, Describes, Use, PutTime,
// Close and the methods of check.go may be called.
func OpenToLook(dir, name string) (*File, error) { return openFile(dir, name, false) }

func openFile(dir, name string, write bool) (*File, error) {
	path, err := shmfile.Path(dir, name+Suffix)
	if err != nil { // also for a name that is too long to have one
		return nil, fmt.Errorf("%w: %w: %w", ErrForeign, errInvalid, err)
	}
	file, size, err := shmfile.Open(path, write)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no %s; the segment was made by something else, it can be read but not adopted or removed", ErrForeign, path)
	}
	if err != nil {
		return nil, fmt.Errorf("sidecar: opening: %w", err)
	}
	if size < pageSize || size > (Options{Slots: maxSlots, Objects: maxObjects}).bytes() {
		return nil, errors.Join(&FormatError{Path: path, What: fmt.Sprintf("it has %d bytes", size)}, file.Close())
	}
	f, err := mapFile(path, file, size, write)
	if err != nil {
		return nil, err
	}
	if err := fault.Guard(func() error { return f.parse(f.mem, size, false) }); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Own takes the writer's lock and reads again what the last writer may have written
// since Open. It fails with [ErrOwned] if the writer is alive, with fs.ErrNotExist if the
// sidecar was removed meanwhile, and with a [*FormatError].
func (f *File) Own() error {
	ok, err := shmfile.TryLock(f.file)
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("%w: a living process (pid %d by its own account) holds the lock of %s",
			ErrOwned, f.State().PID, f.path)
	case !shmfile.Same(f.file, f.path):
		return fmt.Errorf("%w: %s was removed just now", fs.ErrNotExist, f.path)
	}
	return fault.Guard(func() error { return f.parse(f.mem, int64(len(f.mem)), true) })
}

// ReleaseOwner releases the writer's lock. The writer must not write to the file any more.
func (f *File) ReleaseOwner() error {
	if f.file == nil {
		return nil
	}
	return shmfile.Unlock(f.file)
}

// Describes reports whether the sidecar is that of the segment whose open file is seg.
func (f *File) Describes(seg *os.File) bool {
	if f.file == nil {
		return false
	}
	same := false
	err := fault.Guard(func() error {
		same = identifies(f.mem[offInode:], seg)
		return nil
	})
	return err == nil && same
}

// identifies reports whether b begins with the inode and the device of seg.
func identifies(b []byte, seg *os.File) bool {
	dev, ino, err := shmfile.Identity(seg)
	return err == nil && binary.LittleEndian.Uint64(b) == ino && binary.LittleEndian.Uint64(b[8:]) == dev
}

// Describes is [File.Describes] for a sidecar that [Open] refuses, by its open file. The
// identity of a segment is 16 bytes, so damage does not produce it by accident.
func Describes(sidecar, seg *os.File) bool {
	var b [16]byte
	_, err := sidecar.ReadAt(b[:], offInode)
	return err == nil && identifies(b[:], seg)
}

// Offset returns the offset in the file of an address in the mapping of f, such as the
// address of a fault; ok is false if the address is outside of the mapping.
func (f *File) Offset(address uintptr) (offset int, ok bool) { return mem.Offset(f.mem, address) }

// Close unmaps the sidecar and releases its locks. Closing twice is fine.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	m, file := f.mem, f.file
	f.mem, f.file = nil, nil
	return errors.Join(shmfile.Unmap(m), shmfile.Unlock(file), file.Close())
}

// Named reports whether the name of the sidecar still names this file.
func (f *File) Named() bool { return f.file != nil && shmfile.Same(f.file, f.path) }

// Remove removes the name of the sidecar if that still names this file.
func (f *File) Remove() error {
	if !f.Named() {
		return nil
	}
	if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sidecar: unlinking: %w", err)
	}
	return nil
}
