package system

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/fuzz"
)

// FamilyOf returns the family of an operation.
func FamilyOf(op fuzz.Op) (Family, error) {
	family := objectOf(op).family
	if op.Name == "size_of" {
		family = "pair"
	}
	for _, f := range Families() {
		if f.Name == family {
			return f, nil
		}
	}
	return Family{}, fmt.Errorf("system: %s is in no family that can be compared", op.Name)
}

// Replay performs operations on both systems, and calls show for each: what names a difference,
// and is empty if there is none. After the systems part by right it is always empty.
func (d Differential) Replay(ctx context.Context, ops []fuzz.Op,
	show func(op fuzz.Op, want, got fuzz.Reply, what string)) (err error) {
	leadName, followerName := d.names()
	lead, follower := &restarting{start: d.Lead}, &restarting{start: d.Follower}
	defer func() { err = errors.Join(err, lead.Close(), follower.Close()) }()
	if err := errors.Join(lead.ready(ctx), follower.ready(ctx)); err != nil {
		return err
	}
	s := sequence{ops: ops}
	if d.Case.lead(lead, &s); s.err != nil {
		return fmt.Errorf("%s broke after %d operations: %w", leadName, len(s.want), s.err)
	}
	got, err := follower.Do(s.resolved)
	parted := false
	for i, r := range got {
		op, want := s.resolved[i], s.want[i]
		parted = parted || d.Case.parts(op, want, r) != ""
		what := ""
		if !parted {
			what = same(op, want, r)
		}
		show(op, want, r, what)
	}
	if err != nil {
		return fmt.Errorf("%s broke after %d operations: %w", followerName, len(got), err)
	}
	return nil
}
