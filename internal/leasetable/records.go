package leasetable

import (
	"encoding/binary"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/sidecar"
)

// Lease is what a record has of a lease.
type Lease struct {
	Serial    uint64 // of the table, unique
	ID, Owner string // at most 255 bytes each
	Until     int64  // see Nanoseconds
}

// Item is what a record has of an object of a lease.
type Item struct {
	Serial   uint64 // of the lease
	Reserved bool   // else it is pinned
	// Record is where a reservation is; of a pinned object only its id counts.
	Record sidecar.Record
}

func (t *Table) lease(i int) []byte {
	at := pageSize + i*leaseSize
	return t.mem[at : at+leaseSize : at+leaseSize]
}

func (t *Table) item(i int) []byte {
	at := pageSize + t.opt.Leases*leaseSize + i*itemSize
	return t.mem[at : at+itemSize : at+itemSize]
}

// PutLease records a new lease, and returns the number of the record. It fails with [ErrFull]: one
// record stays free for ReplaceLease.
func (t *Table) PutLease(l Lease) (int, error) {
	if len(t.leases) < 2 {
		return 0, ErrFull
	}
	return t.putLease(l), nil
}

func (t *Table) putLease(l Lease) int {
	i := int(t.leases[len(t.leases)-1])
	b := t.lease(i)
	clear(b[bodyBegin:leaseEnd])
	binary.LittleEndian.PutUint64(b[leaseSerial:], l.Serial)
	binary.LittleEndian.PutUint64(b[leaseSeq:], t.seq+1)
	binary.LittleEndian.PutUint64(b[leaseUntil:], uint64(l.Until))
	b[leaseIDLen], b[leaseOwnLen] = byte(len(l.ID)), byte(len(l.Owner))
	copy(b[leaseTexts:], l.ID)
	copy(b[leaseTexts+len(l.ID):], l.Owner)
	mark := validMark(b[bodyBegin:leaseEnd])
	failpoint.Hit("tier.lease.written")
	mem.Fence()
	mem.Store64(b[leaseMark:], mark)
	failpoint.Hit("tier.lease.valid")
	t.leases = t.leases[:len(t.leases)-1]
	t.seq++
	return i
}

// ReplaceLease records a lease anew, in one step, and returns the number of the new record.
func (t *Table) ReplaceLease(i int, l Lease) int {
	next := t.putLease(l)
	t.DropLease(i)
	return next
}

// DropLease frees the record of a lease: it has ended.
func (t *Table) DropLease(i int) {
	mem.Fence()
	mem.Store64(t.lease(i)[leaseMark:], markFree)
	failpoint.Hit("tier.lease.free")
	t.leases = append(t.leases, uint32(i))
}

// PutItem records an object of a lease, and returns the number of the record. It fails with [ErrFull].
func (t *Table) PutItem(x Item) (int, error) {
	if len(t.items) == 0 {
		return 0, ErrFull
	}
	i := int(t.items[len(t.items)-1])
	b := t.item(i)
	binary.LittleEndian.PutUint64(b[itemSerial:], x.Serial)
	binary.LittleEndian.PutUint64(b[itemAddress:], x.Record.Address)
	binary.LittleEndian.PutUint32(b[itemID:], x.Record.ID)
	binary.LittleEndian.PutUint32(b[itemLength:], uint32(x.Record.Size))
	binary.LittleEndian.PutUint32(b[itemDescription:], uint32(x.Record.DescriptionOffset))
	binary.LittleEndian.PutUint32(b[itemDescLength:], uint32(x.Record.DescriptionLength))
	binary.LittleEndian.PutUint32(b[itemDescSum:], x.Record.Sum)
	binary.LittleEndian.PutUint32(b[itemDescSum+4:], 0)
	state := uint64(statePinned)
	if x.Reserved {
		state = stateReserved
	}
	mem.Store64(b[itemState:], state)
	mark := validMark(b[bodyBegin:itemEnd])
	failpoint.Hit("tier.item.written")
	mem.Fence()
	mem.Store64(b[leaseMark:], mark)
	failpoint.Hit("tier.item.valid")
	t.items = t.items[:len(t.items)-1]
	return i, nil
}

// SetPinned records that a reservation was committed, by one store.
func (t *Table) SetPinned(i int) {
	mem.Fence()
	mem.Store64(t.item(i)[itemState:], statePinned)
	failpoint.Hit("tier.item.pinned")
}

// DropItem frees the record of an object.
func (t *Table) DropItem(i int) {
	mem.Fence()
	mem.Store64(t.item(i)[leaseMark:], markFree)
	failpoint.Hit("tier.item.free")
	t.items = append(t.items, uint32(i))
}

// Save records leases that Load of another table returned, and sets the numbers of their records.
func (t *Table) Save(all []*Loaded) error {
	for _, l := range all {
		var err error
		if l.Record, err = t.PutLease(l.Lease); err != nil {
			return err
		}
		items := map[int]Item{}
		for _, x := range l.Items {
			i, err := t.PutItem(x)
			if err != nil {
				return err
			}
			items[i] = x
		}
		l.Items = items
	}
	return nil
}

// Free returns the numbers of free records.
func (t *Table) Free() (leases, items int) { return len(t.leases), len(t.items) }

// LeaseAt returns the lease of a record; ok is false if the record is not valid.
func (t *Table) LeaseAt(i int) (l Lease, ok bool) {
	l, _, state := t.readLease(i)
	return l, state == recordValid
}

// ItemAt is LeaseAt for objects.
func (t *Table) ItemAt(i int) (x Item, ok bool) {
	x, state := t.readItem(i)
	return x, state == recordValid
}

// Loaded is a lease that Load found.
type Loaded struct {
	Lease
	Record int
	Items  map[int]Item // by the numbers of their records
}

// Load returns the leases of a table that was opened. It frees what is left of leases that have ended, and of
// changes that were under way, and sets Damaged.
func (t *Table) Load() []*Loaded {
	type found struct {
		*Loaded
		seq uint64
	}
	bySerial := map[uint64]found{}
	var leases, items []uint32
	var old []int
	for i := t.opt.Leases - 1; i >= 0; i-- {
		l, seq, state := t.readLease(i)
		switch state {
		case recordFree:
			leases = append(leases, uint32(i))
		case recordDamaged:
			t.Damaged = true
		case recordValid:
			t.seq = max(t.seq, seq)
			was, twice := bySerial[l.Serial]
			if twice && was.seq > seq {
				old = append(old, i)
				continue
			}
			if twice {
				old = append(old, was.Record)
			}
			bySerial[l.Serial] = found{&Loaded{Lease: l, Record: i, Items: map[int]Item{}}, seq}
		}
	}
	byID := map[string]found{}
	for _, l := range bySerial {
		was, twice := byID[l.ID]
		if twice { // which no order of changes leaves
			t.Damaged = true
			if was.seq > l.seq {
				was, l = l, was
			}
			old = append(old, was.Record)
			delete(bySerial, was.Serial)
		}
		byID[l.ID] = l
	}
	var orphans []int
	for i := t.opt.Items - 1; i >= 0; i-- {
		x, state := t.readItem(i)
		switch l, ok := bySerial[x.Serial]; {
		case state == recordFree:
			items = append(items, uint32(i))
		case state == recordDamaged:
			t.Damaged = true
		case !ok:
			orphans = append(orphans, i)
		default:
			l.Items[i] = x
		}
	}
	t.leases, t.items = leases, items
	for _, i := range old {
		t.DropLease(i)
	}
	for _, i := range orphans {
		t.DropItem(i)
	}
	all := make([]*Loaded, 0, len(bySerial))
	for _, l := range bySerial {
		all = append(all, l.Loaded)
	}
	return all
}

type recordState int

const (
	recordFree recordState = iota
	recordValid
	recordDamaged
)

// stateOf compares the mark of a record with its body.
func stateOf(mark uint64, body []byte) recordState {
	switch mark {
	case markFree:
		return recordFree
	case validMark(body):
		return recordValid
	}
	return recordDamaged
}

func (t *Table) readLease(i int) (l Lease, seq uint64, state recordState) {
	b := t.lease(i)
	if state = stateOf(mem.Load64(b[leaseMark:]), b[bodyBegin:leaseEnd]); state != recordValid {
		return l, 0, state
	}
	id, owner := int(b[leaseIDLen]), int(b[leaseOwnLen])
	texts := b[leaseTexts:leaseEnd]
	l = Lease{
		Serial: binary.LittleEndian.Uint64(b[leaseSerial:]), Until: int64(binary.LittleEndian.Uint64(b[leaseUntil:])),
		ID: string(texts[:id]), Owner: string(texts[id : id+owner]),
	}
	if id == 0 || l.Until < 0 {
		return l, 0, recordDamaged
	}
	return l, binary.LittleEndian.Uint64(b[leaseSeq:]), recordValid
}

func (t *Table) readItem(i int) (x Item, state recordState) {
	b := t.item(i)
	if state = stateOf(mem.Load64(b[leaseMark:]), b[bodyBegin:itemEnd]); state != recordValid {
		return x, state
	}
	switch mem.Load64(b[itemState:]) {
	case stateReserved:
		x.Reserved = true
	case statePinned:
	default:
		return x, recordDamaged
	}
	x.Serial = binary.LittleEndian.Uint64(b[itemSerial:])
	x.Record = sidecar.Record{
		Address: binary.LittleEndian.Uint64(b[itemAddress:]), ID: binary.LittleEndian.Uint32(b[itemID:]),
		Size:              int(binary.LittleEndian.Uint32(b[itemLength:])),
		DescriptionOffset: int(binary.LittleEndian.Uint32(b[itemDescription:])),
		DescriptionLength: int(binary.LittleEndian.Uint32(b[itemDescLength:])),
		Sum:               binary.LittleEndian.Uint32(b[itemDescSum:]),
	}
	return x, recordValid
}
