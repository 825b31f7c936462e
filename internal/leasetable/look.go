package leasetable

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/sidecar"
)

// Looked is a lease that Look found, with the ids of chunks that it has.
type Looked struct {
	Lease
	Pinned   []uint32
	Reserved []sidecar.Record // where reservations are
}

// Look reads the leases of the segment name in dir while its writer goes on, for people: it maps the file to
// read, and changes nothing. A record that changes at that moment is left out. The errors are those of
// [Open].
func Look(dir, name string, generation uint64) (all []*Looked, err error) {
	path, err := Path(dir, name)
	if err != nil {
		return nil, err
	}
	file, size, err := shmfile.Open(path, false)
	if err != nil {
		return nil, fmt.Errorf("leasetable: opening: %w", err)
	}
	defer file.Close()
	if size < pageSize || size > (Options{Leases: maxLeases, Items: maxItems}).bytes() {
		return nil, fmt.Errorf("%w: %s has %d bytes", ErrDamaged, path, size)
	}
	m, err := shmfile.Map(file, size, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, shmfile.Unmap(m)) }()
	t := &Table{path: path, mem: m}
	err = fault.Guard(func() error {
		if err := t.parse(size, generation); err != nil {
			return err
		}
		all = t.look()
		return nil
	})
	if errors.Is(err, fault.ErrFault) {
		err = fmt.Errorf("%w: %s was cut short: %w", ErrDamaged, path, err)
	}
	return all, err
}

// look returns the leases of all valid records, in their order.
func (t *Table) look() (all []*Looked) {
	bySerial := map[uint64]*Looked{}
	for i := range t.opt.Leases {
		// Of two records of one lease the later one counts, and the earlier one goes at once: either is near
		// enough.
		if l, _, state := t.readLease(i); state == recordValid && bySerial[l.Serial] == nil {
			x := &Looked{Lease: l}
			bySerial[l.Serial] = x
			all = append(all, x)
		}
	}
	for i := range t.opt.Items {
		b := t.item(i)
		if binary.LittleEndian.Uint64(b[leaseMark:]) == markFree {
			continue // most are
		}
		x, state := t.readItem(i)
		l := bySerial[x.Serial]
		if state != recordValid || l == nil {
			continue
		}
		if x.Reserved {
			l.Reserved = append(l.Reserved, x.Record)
		} else {
			l.Pinned = append(l.Pinned, x.Record.ID)
		}
	}
	return all
}
