package sidecar

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/shmring"
)

// Suffix ends the name of a segment's sidecar.
const Suffix = ".ctl"

// Policy is how the memory of a segment is managed. The numbers stand in the
// sidecar.
type Policy uint8

const (
	// FIFO is vLLM's ring: freed in the order of allocation, by counts.
	FIFO Policy = 1
	// Pool places chunks anywhere; leases decide which can go.
	Pool Policy = 2
)

func (p Policy) String() string {
	switch p {
	case FIFO:
		return "fifo"
	case Pool:
		return "pool"
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// Options are what a sidecar is made with.
type Options struct {
	Policy Policy
	// Generation is the vLLM version of the segment's wire, at most 24 bytes.
	Generation string
	// Owner is a label that sweeping goes by, at most 64 bytes: a service, not a
	// process.
	Owner string
	// Readers is the number of processes that read every object.
	Readers int
	// Objects is the most objects that are recorded at a time; 64 bytes each.
	Objects int
	// Slots is the most readers of this library at a time; 2 KiB each. 0 is 64.
	Slots int
	// RingSize and DataOffset are those of the segment, in bytes. Creating a segment
	// with a sidecar sets them.
	RingSize, DataOffset int
}

func (o Options) withDefaults() (Options, error) {
	if o.Slots == 0 {
		o.Slots = 64
	}
	switch {
	case o.Policy != FIFO && o.Policy != Pool:
		return o, fmt.Errorf("%w: %v", shmring.ErrInvalid, o.Policy)
	case len(o.Generation) > generationLen || len(o.Owner) > ownerLen:
		return o, fmt.Errorf("%w: Generation %q or Owner %q is too long, at most %d and %d bytes", shmring.ErrInvalid, o.Generation, o.Owner, generationLen, ownerLen)
	case o.Objects < 0 || o.Objects > maxObjects || o.Slots < 0 || o.Slots > maxSlots:
		return o, fmt.Errorf("%w: %d objects and %d reader slots, at most %d and %d", shmring.ErrInvalid, o.Objects, o.Slots, maxObjects, maxSlots)
	}
	return o, nil
}

// bytes returns the size of a sidecar with these options.
func (o Options) bytes() int64 {
	return offSlotTable + int64(o.Slots)*slotSize + int64(o.Objects)*entrySize
}

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

	mu     sync.Mutex // guards the state
	state  State
	seq    uint64
	intact bool // see StateIntact

	free    []int // entries of the table
	readers chan struct{}
}

// format fills a new sidecar.
func format(m []byte, o Options, dev, ino uint64) {
	clear(m[:offSlotTable])
	copy(m, magic)
	p32 := func(at int, v uint32) { binary.LittleEndian.PutUint32(m[at:], v) }
	p64 := func(at int, v uint64) { binary.LittleEndian.PutUint64(m[at:], v) }
	p32(offVersion, layoutVersion)
	p32(offPolicy, uint32(o.Policy))
	p64(offRingSize, uint64(o.RingSize))
	p32(offDataOffset, uint32(o.DataOffset))
	p32(offSlots, uint32(o.Slots))
	p32(offObjects, uint32(o.Objects))
	p64(offInode, ino)
	p64(offDevice, dev)
	p32(offUID, uint32(os.Geteuid()))
	copy(m[offGeneration:offGeneration+generationLen], o.Generation)
	copy(m[offOwner:offOwner+ownerLen], o.Owner)
	p32(offHeaderSum, crc32.Checksum(m[:offHeaderSum], castagnoli))
}

// text returns what stands in front of the zeros of a field.
func text(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

// parse reads the header and the state of a sidecar of size bytes. It trusts nothing.
// A caller without the writer's lock can see the state records while they are written.
func (f *File) parse(m []byte, size int64, owner bool) error {
	bad := func(format string, args ...any) error {
		return &FormatError{Path: f.path, What: fmt.Sprintf(format, args...)}
	}
	if len(m) < offSlotTable || string(m[:len(magic)]) != magic {
		return bad("it does not begin as one")
	}
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(m[at:]) }
	f.version = u32(offVersion)
	if f.version == 0 || f.version > layoutVersion {
		return &FormatError{Path: f.path, What: fmt.Sprintf("layout version %d, this library knows 1 to %d", f.version, layoutVersion), Newer: f.version > 0}
	}
	if u32(offHeaderSum) != crc32.Checksum(m[:offHeaderSum], castagnoli) {
		return bad("its header's checksum is wrong")
	}
	f.opt = Options{
		Policy: Policy(u32(offPolicy)), Generation: text(m[offGeneration : offGeneration+generationLen]),
		Owner: text(m[offOwner : offOwner+ownerLen]), Objects: int(u32(offObjects)), Slots: int(u32(offSlots)),
		RingSize: int(binary.LittleEndian.Uint64(m[offRingSize:])), DataOffset: int(u32(offDataOffset)),
	}
	if _, err := f.opt.withDefaults(); err != nil || f.opt.bytes() != size {
		return bad("%d bytes for %d slots and %d objects", size, f.opt.Slots, f.opt.Objects)
	}
	if !f.readState(m) && owner {
		return bad("neither of its state records is whole")
	}
	return nil
}

// Layout returns the version of the sidecar's layout.
func (f *File) Layout() int { return int(f.version) }

// Options returns what the sidecar was made with.
func (f *File) Options() Options { return f.opt }

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
	failpoint.Hit("control.link")
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
	f.intact = true
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
