package sidecar

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/shmring"
)

// Suffix ends the name of a segment's sidecar.
const Suffix = ".ctl"

// File is a segment's sidecar, the object <name>.ctl: who owns the segment, what the
// segment is, which objects are in it, and which of them readers look at. vLLM does
// not use it. A writer holds its lock (flock) for life: there is no other sign of life.
//
// Any goroutine may call its methods, but for those of the table, which need the
// writer's lock.
type File struct {
	path    string
	file    *os.File // nil if private
	mem     []byte
	version uint32
	opt     Options

	mu    sync.Mutex // guards the state
	state State
	seq   uint64

	free    []int // entries of the table
	readers chan struct{}
}

// Layout returns the version of the sidecar's layout.
func (f *File) Layout() int { return int(f.version) }

// Size returns the bytes of the file.
func (f *File) Size() int64 { return f.opt.bytes() }

// Path returns the path of the file.
func (f *File) Path() string { return f.path }

// Create makes the sidecar of the segment name in dir (/dev/shm if empty), whose open
// file is seg, and takes the writer's lock. The sidecar appears under its name complete
// and locked. A name that is taken is an fs.ErrExist.
func Create(dir, name string, o Options, seg *os.File) (*File, error) {
	path, err := shmfile.Path(dir, name+Suffix)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", shmring.ErrInvalid, err)
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
	f, err := mapFile(path, file, o.bytes())
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
	f.version, f.opt = layoutVersion, o
	for range 2 { // so that both records are valid
		f.SetState(State{Epoch: 1, Readers: o.Readers, PID: os.Getpid()})
	}
	f.free = make([]int, 0, o.Objects)
	for i := o.Objects - 1; i >= 0; i-- {
		mem.Store64(f.entry(i), f.freeMark())
		f.free = append(f.free, i)
	}
}

func mapFile(path string, file *os.File, size int64) (*File, error) {
	m, err := shmfile.Map(file, size, true)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &File{path: path, file: file, mem: m, readers: make(chan struct{}, 1)}, nil
}

// Private returns a sidecar in memory that no other process sees.
func Private(o Options) (*File, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	f := &File{path: "(private)", mem: make([]byte, o.bytes()), readers: make(chan struct{}, 1)}
	f.start(o, 0, 0)
	return f, nil
}

// Open opens the sidecar of the segment name in dir (/dev/shm if empty), to look at it
// or to take a slot; it does not take the writer's lock. It fails with [ErrForeign] if
// there is none, and with a [*FormatError].
func Open(dir, name string) (*File, error) {
	path, err := shmfile.Path(dir, name+Suffix)
	if err != nil { // also for a name that is too long to have one
		return nil, fmt.Errorf("%w: %w: %w", ErrForeign, shmring.ErrInvalid, err)
	}
	file, size, err := shmfile.Open(path, true)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no %s; the segment was made by something else, it can be read but not adopted or removed", ErrForeign, path)
	}
	if err != nil {
		return nil, fmt.Errorf("shmring: opening sidecar: %w", err)
	}
	if size < offSlotTable || size > offSlotTable+maxSlots*slotSize+maxObjects*entrySize {
		return nil, errors.Join(&FormatError{Path: path, What: fmt.Sprintf("it has %d bytes", size)}, file.Close())
	}
	f, err := mapFile(path, file, size)
	if err != nil {
		return nil, err
	}
	if err := fault.Guard(func() error { return f.parse(f.mem, size, false) }); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Own takes the writer's lock and reads again what the last owner may have written
// since the sidecar was opened. It fails with [ErrOwned] if the writer lives, with
// fs.ErrNotExist if the sidecar was removed meanwhile, and with a [*FormatError].
func (f *File) Own() error {
	ok, err := shmfile.TryLock(f.file)
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("%w: a living process (it said pid %d) holds the lock of %s", ErrOwned, f.State().PID, f.path)
	case !shmfile.Same(f.file, f.path):
		return fmt.Errorf("%w: %s was removed just now", fs.ErrNotExist, f.path)
	}
	return fault.Guard(func() error { return f.parse(f.mem, int64(len(f.mem)), true) })
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

// Describes is [File.Describes] for a sidecar that [Open] refuses: ctl is its open file.
// The identity of a segment is 16 bytes, which no accident makes.
func Describes(ctl, seg *os.File) bool {
	var b [16]byte
	_, err := ctl.ReadAt(b[:], offInode)
	return err == nil && identifies(b[:], seg)
}

// Offset returns the offset in the file of an address in the mapping of f, such as that
// of a fault; ok is false if the address is not there.
func (f *File) Offset(address uintptr) (offset int, ok bool) { return mem.Offset(f.mem, address) }

// Close unmaps the sidecar and gives up its locks. Closing twice is fine.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	m, file := f.mem, f.file
	f.mem, f.file = nil, nil
	return errors.Join(shmfile.Unmap(m), shmfile.Unlock(file), file.Close())
}

// Remove removes the name of the sidecar, if that still names this file.
func (f *File) Remove() error {
	if f.file == nil || !shmfile.Same(f.file, f.path) {
		return nil
	}
	if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("shmring: unlinking sidecar: %w", err)
	}
	return nil
}
