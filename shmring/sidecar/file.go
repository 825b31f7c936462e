package shmring

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
	"time"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/shmfile"
)

// ControlSuffix ends the name of a segment's sidecar.
const ControlSuffix = ".ctl"

// The sidecar, little-endian; docs/format.md has the table. Everything but the
// reader slots is written by the writer only.
const (
	controlMagic = "RINGCTL\x00"
	// controlVersion is the layout of new sidecars. Layout 1 differs in the table,
	// see control_table.go; a sidecar keeps the layout that it was made with.
	controlVersion = 2

	offVersion    = 8
	offPolicy     = 12
	offRingSize   = 16
	offDataOffset = 24
	offSlots      = 28
	offObjects    = 32
	offInode      = 40
	offDevice     = 48
	offUID        = 56
	offGeneration = 64
	generationLen = 24
	offOwner      = 88
	ownerLen      = 64
	offHeaderSum  = 152

	offReadersLock = 1 << 9 // only its byte lock is used

	offState   = 1 << 10 // two records
	stateSize  = 64
	offEpoch   = 8
	offNextID  = 16
	offReaders = 20
	offClean   = 24
	offPID     = 28
	offStateID = 60 // the checksum

	offSlotTable = 1 << 12
	slotSize     = 2048
	entrySize    = 64

	maxSlots   = 1 << 12
	maxObjects = 1 << 24
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Policy is how the memory of a segment is managed. The numbers stand in the
// sidecar.
type Policy uint8

const (
	// PolicyFIFO is vLLM's ring: freed in the order of allocation, by counts.
	PolicyFIFO Policy = 1
	// PolicyPool places chunks anywhere; leases say what can go.
	PolicyPool Policy = 2
)

func (p Policy) String() string {
	switch p {
	case PolicyFIFO:
		return "fifo"
	case PolicyPool:
		return "pool"
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// ControlOptions say what a new sidecar holds.
type ControlOptions struct {
	Policy Policy
	// Generation is the vLLM version of the segment's wire, at most 24 bytes.
	Generation string
	// Owner is a label by which Sweep knows whose segments it may remove, at
	// most 64 bytes: a service, not a process.
	Owner string
	// Readers is the number of processes that read every object.
	Readers int
	// Objects is the most objects that are recorded at a time; 64 bytes each.
	Objects int
	// Slots is the most readers of this library at a time; 2 KiB each. 0 is 64.
	Slots int
}

func (o ControlOptions) withDefaults() (ControlOptions, error) {
	if o.Slots == 0 {
		o.Slots = 64
	}
	switch {
	case o.Policy != PolicyFIFO && o.Policy != PolicyPool:
		return o, fmt.Errorf("%w: %v", ErrInvalid, o.Policy)
	case len(o.Generation) > generationLen || len(o.Owner) > ownerLen:
		return o, fmt.Errorf("%w: Generation %q or Owner %q is too long, at most %d and %d bytes", ErrInvalid, o.Generation, o.Owner, generationLen, ownerLen)
	case o.Objects < 0 || o.Objects > maxObjects || o.Slots < 0 || o.Slots > maxSlots:
		return o, fmt.Errorf("%w: %d objects and %d reader slots, at most %d and %d", ErrInvalid, o.Objects, o.Slots, maxObjects, maxSlots)
	}
	return o, nil
}

func (o ControlOptions) bytes() int64 {
	return offSlotTable + int64(o.Slots)*slotSize + int64(o.Objects)*entrySize
}

// ControlState is what changes rarely in a sidecar.
type ControlState struct {
	Epoch   uint64 // number of writers that the segment had
	NextID  uint32 // no id from here on was given out
	Readers int
	Clean   bool // the last writer closed it
	PID     int  // of the last writer, for people
}

// Control is a segment's sidecar, the object <name>.ctl: who owns the segment,
// what it is, which objects are in it, and what readers hold. It belongs to this
// library; vLLM does not know it. A writer holds its lock (flock) for life: there
// is no other sign of life.
//
// Its methods may be called by any goroutine, but for those of the table, which
// need the writer's lock.
type Control struct {
	path    string
	file    *os.File // nil if private
	mem     []byte
	version uint32
	opt     ControlOptions
	ring    uint64
	off     uint32

	mu    sync.Mutex // state, readers' lock
	state ControlState
	seq   uint64
	whole bool // see Whole

	free []int // entries of the table
	lock chan struct{}
}

func le(b []byte) (u32 func(int) uint32, u64 func(int) uint64) {
	return func(o int) uint32 { return binary.LittleEndian.Uint32(b[o:]) },
		func(o int) uint64 { return binary.LittleEndian.Uint64(b[o:]) }
}

// format fills a new sidecar.
func formatControl(m []byte, o ControlOptions, ringSize, dataOffset int, dev, ino uint64) {
	clear(m[:offSlotTable])
	copy(m, controlMagic)
	p32 := func(at int, v uint32) { binary.LittleEndian.PutUint32(m[at:], v) }
	p64 := func(at int, v uint64) { binary.LittleEndian.PutUint64(m[at:], v) }
	p32(offVersion, controlVersion)
	p32(offPolicy, uint32(o.Policy))
	p64(offRingSize, uint64(ringSize))
	p32(offDataOffset, uint32(dataOffset))
	p32(offSlots, uint32(o.Slots))
	p32(offObjects, uint32(o.Objects))
	p64(offInode, ino)
	p64(offDevice, dev)
	p32(offUID, uint32(os.Geteuid()))
	copy(m[offGeneration:offGeneration+generationLen], o.Generation)
	copy(m[offOwner:offOwner+ownerLen], o.Owner)
	p32(offHeaderSum, crc32.Checksum(m[:offHeaderSum], castagnoli))
}

// ControlError says that a file can't be the sidecar of a segment: it is empty, cut
// short or damaged, or a later release made it. [Sweep] removes the former once no
// process holds its lock.
type ControlError struct {
	Path string
	What string
	// Newer says that the layout is one that this release does not know.
	Newer bool
}

func (e *ControlError) Error() string {
	advice := "use the release that made it"
	if !e.Newer {
		advice = "if no process uses it, this removes it: " + sweepCommand(strings.TrimSuffix(filepath.Base(e.Path), ControlSuffix))
	}
	return fmt.Sprintf("shmring: %s is not a usable sidecar: %s; %s", e.Path, e.What, advice)
}

// sweepCommand is what an operator runs to remove a segment, whatever its label.
func sweepCommand(name string) string {
	return "ringcache sweep " + name + " --any-owner --remove"
}

// Unwrap makes errors.Is(err, ErrCorrupt) true.
func (e *ControlError) Unwrap() error { return ErrCorrupt }

func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// parse reads the header of a sidecar of a given size. It believes nothing. Who is
// not the owner can see the state records while they are written.
func (c *Control) parse(m []byte, size int64, owner bool) error {
	bad := func(format string, args ...any) error {
		return &ControlError{Path: c.path, What: fmt.Sprintf(format, args...)}
	}
	if len(m) < offSlotTable || string(m[:len(controlMagic)]) != controlMagic {
		return bad("it does not begin as one")
	}
	u32, u64 := le(m)
	c.version = u32(offVersion)
	if c.version == 0 || c.version > controlVersion {
		return &ControlError{Path: c.path, What: fmt.Sprintf("layout version %d, this library knows 1 to %d", c.version, controlVersion), Newer: c.version > 0}
	}
	if u32(offHeaderSum) != crc32.Checksum(m[:offHeaderSum], castagnoli) {
		return bad("its header's checksum is wrong")
	}
	c.opt = ControlOptions{
		Policy: Policy(u32(offPolicy)), Generation: text(m[offGeneration : offGeneration+generationLen]),
		Owner: text(m[offOwner : offOwner+ownerLen]), Objects: int(u32(offObjects)), Slots: int(u32(offSlots)),
	}
	c.ring, c.off = u64(offRingSize), u32(offDataOffset)
	if _, err := c.opt.withDefaults(); err != nil || c.opt.bytes() != size {
		return bad("%d bytes for %d slots and %d objects", size, c.opt.Slots, c.opt.Objects)
	}
	ok, last := false, uint64(0)
	c.whole = true
	for i := range 2 {
		r := m[offState+i*stateSize : offState+(i+1)*stateSize]
		if binary.LittleEndian.Uint32(r[offStateID:]) != crc32.Checksum(r[:offStateID], castagnoli) {
			c.whole = false
			continue
		}
		seq := binary.LittleEndian.Uint64(r)
		c.whole = c.whole && (!ok || seq-last == 1 || last-seq == 1)
		last = seq
		if !ok || seq > c.seq {
			ok, c.seq = true, seq
			c.state = ControlState{
				Epoch: binary.LittleEndian.Uint64(r[offEpoch:]), NextID: binary.LittleEndian.Uint32(r[offNextID:]) % IDLimit,
				Readers: int(binary.LittleEndian.Uint32(r[offReaders:])), Clean: r[offClean] != 0,
				PID: int(binary.LittleEndian.Uint32(r[offPID:])),
			}
		}
	}
	c.opt.Readers = c.state.Readers
	if !ok && owner {
		return bad("neither of its state records is whole")
	}
	return nil
}

// State returns the state as it was last set.
func (c *Control) State() ControlState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Whole reports whether both state records were valid when the sidecar was opened.
// If one was not, a writer was killed while it set the state, or the newer record is
// damaged: then the state is the one before.
func (c *Control) Whole() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.whole
}

// SetState changes the state in one step: there are two records, the older one is
// written, and becomes valid by its checksum. If the memory is gone, the state is
// as before.
func (c *Control) SetState(s ControlState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seq := c.seq + 1
	at := offState + int(seq%2)*stateSize
	r := c.mem[at : at+stateSize]
	failpoint.Hit("control.state.begin")
	binary.LittleEndian.PutUint32(r[offStateID:], ^binary.LittleEndian.Uint32(r[offStateID:]))
	mem.Fence()
	binary.LittleEndian.PutUint64(r, seq)
	binary.LittleEndian.PutUint64(r[offEpoch:], s.Epoch)
	failpoint.Hit("control.state.half")
	binary.LittleEndian.PutUint32(r[offNextID:], s.NextID)
	binary.LittleEndian.PutUint32(r[offReaders:], uint32(s.Readers))
	r[offClean] = 0
	if s.Clean {
		r[offClean] = 1
	}
	binary.LittleEndian.PutUint32(r[offPID:], uint32(s.PID))
	mem.Fence()
	mem.Store32(r[offStateID:], crc32.Checksum(r[:offStateID], castagnoli))
	c.seq, c.state = seq, s
	failpoint.Hit("control.state.end")
}

// Layout returns the version of the sidecar's layout.
func (c *Control) Layout() int { return int(c.version) }

// Options returns what the sidecar was made with.
func (c *Control) Options() ControlOptions { return c.opt }

// RingSize and DataOffset are those of the segment.
func (c *Control) RingSize() int { return int(c.ring) }

// DataOffset is the bytes in front of the ring.
func (c *Control) DataOffset() int { return int(c.off) }

// createControl makes the sidecar of the segment that f is, and locks it. It
// appears under its name complete and locked.
func createControl(path string, o ControlOptions, so SegmentOptions, seg *os.File) (*Control, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	dev, ino, err := shmfile.Identity(seg)
	if err != nil {
		return nil, err
	}
	f, err := shmfile.CreateUnnamed(dirOf(so.Dir), o.bytes())
	if err != nil {
		return nil, err
	}
	c, err := mapControl(path, f, o.bytes())
	if err != nil {
		return nil, err
	}
	c.start(o, so, dev, ino)
	if _, err := shmfile.TryLock(f); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	failpoint.Hit("control.link")
	if err := shmfile.Link(f, path); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Control) start(o ControlOptions, so SegmentOptions, dev, ino uint64) {
	formatControl(c.mem, o, so.RingSize, so.DataOffset, dev, ino)
	c.version, c.opt, c.ring, c.off = controlVersion, o, uint64(so.RingSize), uint32(so.DataOffset)
	for range 2 { // so that both records are valid
		c.SetState(ControlState{Epoch: 1, Readers: o.Readers, PID: os.Getpid()})
	}
	c.whole = true
	c.free = make([]int, 0, c.opt.Objects)
	for i := c.opt.Objects - 1; i >= 0; i-- {
		mem.Store64(c.entry(i), c.freeMark())
		c.Release(i)
	}
}

func mapControl(path string, f *os.File, size int64) (*Control, error) {
	m, err := shmfile.Map(f, size, true)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Control{path: path, file: f, mem: m, lock: make(chan struct{}, 1)}, nil
}

// privateControl is a sidecar in memory that no other process sees.
func privateControl(o ControlOptions, so SegmentOptions) (*Control, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Control{path: "(private)", mem: make([]byte, o.bytes()), lock: make(chan struct{}, 1)}
	c.start(o, so, 0, 0)
	return c, nil
}

// OpenControl opens the sidecar of the segment name, to look at it or to take a
// reader slot; it does not take the writer's lock. It fails with [ErrForeign] if
// there is none.
func OpenControl(dir, name string) (*Control, error) {
	path, err := shmfile.Path(dir, name+ControlSuffix)
	if err != nil { // also for a name that is too long to have one
		return nil, fmt.Errorf("%w: %w: %w", ErrForeign, ErrInvalid, err)
	}
	return openControl(path)
}

func openControl(path string) (*Control, error) {
	f, size, err := shmfile.Open(path, true)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no %s; the segment was made by something else, it can be read but not adopted or removed", ErrForeign, path)
	}
	if err != nil {
		return nil, fmt.Errorf("shmring: opening sidecar: %w", err)
	}
	if size < offSlotTable || size > offSlotTable+maxSlots*slotSize+maxObjects*entrySize {
		return nil, errors.Join(&ControlError{Path: path, What: fmt.Sprintf("it has %d bytes", size)}, f.Close())
	}
	c, err := mapControl(path, f, size)
	if err != nil {
		return nil, err
	}
	if err := c.guard(func() error { return c.parse(c.mem, size, false) }); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// own takes the writer's lock of an open sidecar. It fails with [ErrOwned].
func (c *Control) own() error {
	ok, err := shmfile.TryLock(c.file)
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("%w: a living process (it said pid %d) holds the lock of %s", ErrOwned, c.state.PID, c.path)
	case !shmfile.Same(c.file, c.path):
		return fmt.Errorf("%w: %s was removed just now", ErrNotExist, c.path)
	}
	// What the last owner wrote between our first look and its end.
	return c.guard(func() error { return c.parse(c.mem, int64(len(c.mem)), true) })
}

// ownSoon is own, which tries for a moment: Sweep holds the lock while it looks, and
// that of a process that was killed just now may not be free yet.
func (c *Control) ownSoon() (err error) {
	for range 40 {
		if err = c.own(); !errors.Is(err, ErrOwned) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return err
}

// describes says whether the sidecar is that of the open segment f.
func (c *Control) describes(f *os.File) bool {
	dev, ino, err := shmfile.Identity(f)
	same := false
	return err == nil && c.guard(func() error {
		_, u64 := le(c.mem)
		same = u64(offInode) == ino && u64(offDevice) == dev
		return nil
	}) == nil && same
}

// Describes says whether the sidecar is that of a segment which this process has
// attached.
func (c *Control) Describes(s *Segment) bool {
	if c.file == nil || s.file == nil {
		return false
	}
	return c.describes(s.file)
}

// Close unmaps the sidecar and gives up its locks. Closing twice is fine.
func (c *Control) Close() error {
	if c.file == nil {
		return nil
	}
	m, f := c.mem, c.file
	c.mem, c.file = nil, nil
	return errors.Join(shmfile.Unmap(m), shmfile.Unlock(f), f.Close())
}

func (c *Control) unlink() error {
	if c.file == nil || !shmfile.Same(c.file, c.path) {
		return nil
	}
	if err := os.Remove(c.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("shmring: unlinking sidecar: %w", err)
	}
	return nil
}

func dirOf(dir string) string {
	if dir == "" {
		return shmfile.DefaultDir
	}
	return dir
}
