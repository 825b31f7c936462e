package leasetable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/sidecar"
)

var (
	// ErrDamaged reports that a file can't be the table of a segment. It is an ErrCorrupt of package shmring.
	ErrDamaged = sentinel.New(sentinel.Corrupt, "leasetable: damaged")
	// ErrNewer reports that a later release made a table: what it keeps is not known here.
	ErrNewer = errors.New("leasetable: a later release made it")
	// ErrFull reports that no record is free.
	ErrFull    = errors.New("leasetable: no record is free")
	errInvalid = sentinel.New(sentinel.Invalid, "leasetable: invalid argument")
)

// Options say what a table is for.
type Options struct {
	Leases, Items int    // records of each kind
	Generation    uint64 // of the segment
	// Caution, if not zero, is until when nothing may be believed to be free: an earlier table was damaged.
	Caution time.Time
	// Replace makes Create replace a file that is no table: the segment had one, and it was damaged.
	Replace bool
}

// Table is an open table.
type Table struct {
	path   string
	file   *os.File
	mem    []byte
	opt    Options
	leases []uint32 // free records, the next one last
	items  []uint32
	seq    uint64

	// Damaged reports that Open found records that are neither valid nor free. They stay as they are.
	Damaged bool
}

// Options returns the options with which the table was made.
func (t *Table) Options() Options { return t.opt }

// Path returns the file of the table of a segment in dir, /dev/shm if empty.
func Path(dir, name string) (string, error) {
	path, err := shmfile.Path(dir, name+shmfile.LeasesSuffix)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errInvalid, err)
	}
	return path, nil
}

// Create makes the table of the segment name in dir, in place of an earlier one. The caller has the writer's
// lock of the segment. The file is complete when it gets its name. Create fails with fs.ErrExist if something
// else has the name.
func Create(dir, name string, o Options) (*Table, error) {
	path, err := Path(dir, name)
	if err != nil {
		return nil, err
	}
	if o.Leases < 2 || o.Leases > maxLeases || o.Items < 1 || o.Items > maxItems {
		return nil, fmt.Errorf("%w: %d leases, want 2 to %d, and %d objects, want 1 to %d",
			errInvalid, o.Leases, maxLeases, o.Items, maxItems)
	}
	file, err := shmfile.CreateUnnamed(filepath.Dir(path), o.bytes())
	if err != nil {
		return nil, fmt.Errorf("leasetable: %w", err)
	}
	t, err := mapTable(path, file, o.bytes())
	if err != nil {
		return nil, err
	}
	t.opt = o
	t.format()
	if err := mayReplace(path, o.Replace); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("leasetable: %w", err), t.Close())
	}
	if err := shmfile.Link(file, path); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// mayReplace reports that what has the name of a table is something else. A damaged table does not show what
// it was: damaged is that the segment had one.
func mayReplace(path string, damaged bool) error {
	_, err := os.Lstat(path + sidecar.Suffix)
	if err == nil || !damaged && isForeign(path) {
		return fmt.Errorf("leasetable: %s is something else; remove it, or choose another name for the segment: %w",
			path, fs.ErrExist)
	}
	return nil
}

// Check reports, without changing anything, that the segment name in dir can't have a table: by Open if the
// segment is there, and else by Create.
func Check(dir, name string, there bool) error {
	path, err := Path(dir, name)
	if err != nil {
		return err
	}
	if !there {
		return mayReplace(path, false)
	}
	f, _, err := shmfile.Open(path, true)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("leasetable: opening: %w", err)
	}
	m := make([]byte, pageSize)
	if _, err = io.ReadFull(f, m); err == nil {
		err = checkHeader(path, m)
	}
	if !errors.Is(err, ErrNewer) {
		err = nil // a table that is damaged is replaced
	}
	return errors.Join(err, f.Close())
}

func mapTable(path string, file *os.File, size int64) (*Table, error) {
	m, err := shmfile.Map(file, size, true)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Table{path: path, file: file, mem: m}, nil
}

// format writes an empty table.
func (t *Table) format() {
	m := t.mem
	copy(m, magic)
	binary.LittleEndian.PutUint32(m[offVersion:], version)
	binary.LittleEndian.PutUint32(m[offLeases:], uint32(t.opt.Leases))
	binary.LittleEndian.PutUint32(m[offItems:], uint32(t.opt.Items))
	binary.LittleEndian.PutUint64(m[offGeneration:], t.opt.Generation)
	binary.LittleEndian.PutUint64(m[offCaution:], uint64(Nanoseconds(t.opt.Caution)))
	binary.LittleEndian.PutUint32(m[offHeaderSum:], crc32.Checksum(m[:offHeaderSum], castagnoli))
	for i := t.opt.Leases - 1; i >= 0; i-- {
		mem.Store64(t.lease(i), markFree)
		t.leases = append(t.leases, uint32(i))
	}
	for i := t.opt.Items - 1; i >= 0; i-- {
		mem.Store64(t.item(i), markFree)
		t.items = append(t.items, uint32(i))
	}
}

// Nanoseconds returns a time as records have it: 0 is the zero time, and one before 1970 is 1.
func Nanoseconds(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	if at.Before(time.Unix(0, 1)) {
		return 1
	}
	if at.After(lastTime) {
		return lastTime.UnixNano()
	}
	return at.UnixNano()
}

var lastTime = time.Unix(0, 1<<63-1)

// Time is the reverse of Nanoseconds.
func Time(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}

// Open opens the table of a segment of a generation. The caller has the writer's lock of the segment. Open
// fails with fs.ErrNotExist, [ErrDamaged], both for the table of another generation, [ErrNewer], or an error of
// the system; a table of which only records are damaged is opened. The next call must be Load.
func Open(dir, name string, generation uint64) (*Table, error) {
	path, err := Path(dir, name)
	if err != nil {
		return nil, err
	}
	file, size, err := shmfile.Open(path, true)
	if err != nil {
		return nil, fmt.Errorf("leasetable: opening: %w", err)
	}
	if size < pageSize || size > (Options{Leases: maxLeases, Items: maxItems}).bytes() {
		return nil, errors.Join(fmt.Errorf("%w: %s has %d bytes", ErrDamaged, path, size), file.Close())
	}
	t, err := mapTable(path, file, size)
	if err != nil {
		return nil, err
	}
	if err := fault.Guard(func() error { return t.parse(size, generation) }); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// checkHeader looks whether m begins as a table that this release reads. The checksum is looked at first, and has its
// place in every version, so that a version that was damaged is not taken for a later one.
// See docs/decisions.md, "A table of leases of a later release is refused, not replaced".
func checkHeader(path string, m []byte) error {
	v := binary.LittleEndian.Uint32(m[offVersion:])
	switch {
	case string(m[:len(magic)]) != magic:
		return fmt.Errorf("%w: %s: it does not begin as a table of leases", ErrDamaged, path)
	case binary.LittleEndian.Uint32(m[offHeaderSum:]) != crc32.Checksum(m[:offHeaderSum], castagnoli):
		return fmt.Errorf("%w: %s: the checksum of its header is wrong", ErrDamaged, path)
	case v > version:
		return fmt.Errorf("%w: %s has layout version %d, this release reads %d", ErrNewer, path, v, version)
	case v < version:
		return fmt.Errorf("%w: %s: layout version %d, this release reads %d", ErrDamaged, path, v, version)
	}
	return nil
}

func (t *Table) parse(size int64, generation uint64) error {
	m := t.mem
	bad := func(what string, args ...any) error {
		return fmt.Errorf("%w: %s: %s", ErrDamaged, t.path, fmt.Sprintf(what, args...))
	}
	if err := checkHeader(t.path, m); err != nil {
		return err
	}
	t.opt = Options{
		Leases: int(binary.LittleEndian.Uint32(m[offLeases:])), Items: int(binary.LittleEndian.Uint32(m[offItems:])),
		Generation: binary.LittleEndian.Uint64(m[offGeneration:]),
		Caution:    Time(int64(binary.LittleEndian.Uint64(m[offCaution:]))),
	}
	switch {
	case t.opt.Leases < 2 || t.opt.Leases > maxLeases || t.opt.Items < 1 || t.opt.Items > maxItems ||
		t.opt.bytes() != size:
		return bad("%d bytes for %d leases and %d objects", size, t.opt.Leases, t.opt.Items)
	case t.opt.Generation != generation:
		return fmt.Errorf("%w: %w", fs.ErrNotExist, bad("it belongs to generation %#x, the segment is %#x",
			t.opt.Generation, generation))
	}
	return nil
}

// Remove removes the table beside the segment at path, if there is one. A file of that name that is something else,
// such as a segment of its own, is left alone.
func Remove(path string) error {
	if isForeign(path + shmfile.LeasesSuffix) {
		return nil
	}
	if err := os.Remove(path + shmfile.LeasesSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("leasetable: unlinking: %w", err)
	}
	return nil
}

// isForeign reports whether there is a file that is not a table, nor empty.
func isForeign(path string) bool {
	f, size, err := shmfile.Open(path, false)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	var b [len(magic)]byte
	_, err = f.ReadAt(b[:], 0)
	return size > 0 && (err != nil || string(b[:]) != magic)
}

// Close unmaps the table, and leaves the file. Closing twice is fine.
func (t *Table) Close() error {
	if t.file == nil {
		return nil
	}
	m, file := t.mem, t.file
	t.mem, t.file = nil, nil
	return errors.Join(shmfile.Unmap(m), file.Close())
}

// Offset returns the offset in the file of an address in the mapping of t, such as the
// address of a fault; ok is false if the address is outside of the mapping.
func (t *Table) Offset(address uintptr) (offset int, ok bool) { return mem.Offset(t.mem, address) }
