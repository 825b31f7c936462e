package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/lrusync"
)

// call is a request of a client until it is answered for good.
type call struct {
	uses   []use
	sent   []recipe
	ticket lrusync.Ticket
	answer chan answer
	want   []lrusync.KeySize // contents after it, if compare
	total  int64
	// compare reports that nothing came between the ticket and the look at want.
	compare bool
	misses  int
}

// submit sends a request, with more data if it must. It reports false if the
// request can't be sent at all.
func (l *load) submit(k *call) (bool, error) {
	k.compare = !l.link.unreliable.Load() && l.turn.Add(1)/1000%4 != 3
	if k.compare {
		l.mu.Lock()
		defer l.mu.Unlock()
	} else {
		l.mu.RLock()
		defer l.mu.RUnlock()
	}
	for {
		err := l.send(k)
		var need *lrusync.NeedDataError
		switch {
		case err == nil:
			if k.compare {
				k.want, k.total = l.sender.Contents()
			}
			return true, nil
		case errors.As(err, &need):
			l.report.count(func(c *counts) { c.Needed++ })
			for i := range k.uses {
				k.uses[i].have = k.uses[i].have || slices.Contains(need.Keys, k.uses[i].key())
			}
		case errors.Is(err, lrusync.ErrTooLarge) && !l.rules.Cache.PutIfFits:
			l.report.count(func(c *counts) { c.RefusedLarge++ })
			return false, nil
		case errors.Is(err, lrusync.ErrHang) && l.rules.Cache.GhostTouch:
			l.report.count(func(c *counts) { c.RefusedGhost++ })
			return false, nil
		default:
			return false, err
		}
	}
}

func (l *load) send(k *call) error {
	order := visitingOrder(k.uses, l.ByModality)
	items := make([]lrusync.Item, len(order))
	k.sent = make([]recipe, len(order))
	var large int64
	for at, i := range order {
		u := k.uses[i]
		r := newRecipe(u.number, l.versions[u.number], l.Capacity)
		size, err := r.size(l.python)
		if err != nil {
			return err
		}
		if float64(size) > l.Capacity {
			large++
		}
		k.sent[i] = r
		items[at] = lrusync.Item{
			Key: u.key(), HasData: u.have, Size: size, Fresh: k.misses > 1,
			Updates: binary.LittleEndian.AppendUint64(nil, uint64(r.Stamp)),
		}
	}
	t, err := l.sender.Send(context.Background(), items, func(t lrusync.Ticket) error {
		fs := make([]item, len(order))
		for at, i := range order {
			u := k.uses[i]
			f := item{Key: u.key(), Identifier: u.key(), Modality: u.modality, Position: u.position}
			if l.rules.FeatureHash && u.number%2 == 0 {
				f.Identifier = "adapter:" + f.Key
			}
			if f.Has = !t.Omit[at]; f.Has {
				f.Recipe = k.sent[i]
			}
			fs[i] = f
		}
		return l.link.post(k, request{Op: opRequest, Order: k.compare, Items: fs})
	})
	if err != nil {
		return err
	}
	k.ticket = t
	for at, i := range order {
		// The prompt updates belong to the data that the model will get.
		if got := int64(binary.LittleEndian.Uint64(t.Updates[at])); got != k.sent[i].Stamp {
			return fmt.Errorf("%s: prompt updates of %d, want %d", items[at].Key, got, k.sent[i].Stamp)
		}
	}
	l.report.count(func(c *counts) {
		c.Items += int64(len(items))
		c.Evicted += int64(len(t.Evicted))
		c.Oversize += large
		for _, omit := range t.Omit {
			if omit {
				c.Hits++
			}
		}
	})
	return nil
}

func (l *load) check(k *call, a answer) {
	l.report.count(func(c *counts) { c.Requests++ })
	if k.compare {
		l.report.count(func(c *counts) { c.Compared++ })
		if text := a.Contents.differ(k.want, k.total); text != "" {
			l.report.differs("request %d: %s", a.ID, text)
		}
	}
	switch {
	case a.Error != "":
		l.report.fails("request %d: %s", a.ID, a.Error)
		return
	case a.Missing != nil:
		l.report.fails("request %d missed %v", a.ID, a.Missing)
		return
	case len(a.Values) != len(k.uses):
		l.report.fails("request %d: %d values for %d items", a.ID, len(a.Values), len(k.uses))
		return
	}
	for i, v := range a.Values {
		want := k.sent[i]
		if !l.rules.Cache.FreshWins {
			// An older version is what such a vLLM keeps, if it has one.
			if version := v.Stamp & (1<<20 - 1); v.Stamp < want.Stamp && v.Stamp>>20 == want.Stamp>>20 {
				want = newRecipe(k.uses[i].number, int(version), l.Capacity)
			}
		}
		if v.Stamp != want.Stamp || v.Words != want.Words {
			l.report.fails("request %d, %s: %d words of %d, want %d of %d", a.ID, k.uses[i].key(), v.Words, v.Stamp,
				want.Words, want.Stamp)
			return
		}
	}
}
