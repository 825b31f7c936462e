package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/leasetable"
	"github.com/ringcache/ringcache/tier/memory"
)

// String names the holder as [Object].HeldBy does.
func (h Holder) String() string { return h.Kind + " " + h.Name }

// Holders lists the readers that have a slot, and the leases, those with the most bytes first. An error is
// about the leases alone: their table is damaged, or was made by another segment.
func (x *Segment) Holders() ([]Holder, error) {
	all := x.holders()
	sizes := map[uint32]int64{}
	for _, h := range all {
		for _, id := range h.ids {
			sizes[id] = 0
		}
	}
	if len(sizes) > 0 {
		_ = fault.Guard(func() error { // what is gone has no size
			for i := range x.control.Options().Objects {
				e := x.control.LookAtEntry(i)
				if _, wanted := sizes[e.ID]; wanted && !e.Free && !e.Damaged && x.fits(e.Record) {
					sizes[e.ID] = x.extent(e.Record)
				}
			}
			return nil
		})
	}
	for i := range all {
		for _, id := range all[i].ids {
			all[i].Bytes += sizes[id]
		}
	}
	slices.SortStableFunc(all, func(a, b Holder) int { return cmp.Compare(b.Bytes, a.Bytes) })
	_, err := x.leases()
	return all, err
}

// holders lists readers and leases, with the ids of what they keep.
func (x *Segment) holders() (all []Holder) {
	if x.control == nil || x.pool == nil {
		return nil
	}
	_ = fault.Guard(func() error { // what was read until then counts
		for _, r := range x.control.Readers() {
			all = append(all, Holder{
				Kind: "reader", Name: strconv.Itoa(r.PID), PID: r.PID, Dead: !r.Alive,
				Pinned: len(r.Holds), ids: r.Holds,
			})
		}
		return nil
	})
	leases, _ := x.leases()
	for _, l := range leases {
		h := Holder{
			Kind: "lease", Name: l.ID, Client: l.Owner, Pinned: len(l.Pinned), Reserved: len(l.Reserved),
			ids: l.Pinned,
		}
		for _, r := range l.Reserved {
			h.Bytes += x.extent(r)
		}
		if l.Until != 0 {
			h.Until = time.Unix(0, l.Until)
		}
		h.PID, h.Client = clientOf(l.Owner)
		all = append(all, h)
	}
	return all
}

// leases reads the table beside the segment, if there is one.
func (x *Segment) leases() ([]*leasetable.Looked, error) {
	if x.file == nil || x.pool == nil || x.base < 8 {
		return nil, nil
	}
	var begin [8]byte
	if _, err := x.file.ReadAt(begin[:], 0); err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	all, err := leasetable.Look(x.dir, x.name, memory.GenerationOf(begin[:]))
	if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, leasetable.ErrDamaged) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	return all, nil
}

// clientOf reads the owner of a lease of the daemon: pid, start of the process, and the name of the client.
// Other owners are names alone.
func clientOf(owner string) (pid int, client string) {
	parts := strings.SplitN(owner, " ", 3)
	if len(parts) == 3 {
		if n, err := strconv.Atoi(parts[0]); err == nil && n >= 0 {
			return n, parts[2]
		}
	}
	return 0, owner
}
