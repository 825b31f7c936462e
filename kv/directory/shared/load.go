package shared

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"github.com/ringcache/ringcache/kv/directory"
)

// load makes the directory know what the records say; the log goes on behind entry number count. Records may change
// meanwhile: the entries about them are applied later, once more. lost says that records may be missing: workers of
// other directories stay without them, and are dropped if nobody tells of them.
func (s *State) load(ctx context.Context, count int64, lost bool) error {
	s.counts.loads.Add(1)
	seen := map[directory.ID]bool{}
	err := s.members(ctx, s.prefix+"workers", func(text string) error {
		id, err := decodeID(text)
		if err != nil {
			s.unreadable(err)
			return nil
		}
		if len(seen) >= maxWorkers {
			return fmt.Errorf("%w: more than %d workers", errRead, maxWorkers)
		}
		if seen[id] {
			return nil
		}
		seen[id] = true
		return s.skip(s.loadOne(ctx, id))
	})
	if err != nil {
		return err
	}
	for id, r := range s.records {
		if !seen[id] {
			s.missing(id, r, lost)
		}
	}
	s.last = count
	return nil
}

// missing is about a worker that has no record.
func (s *State) missing(id directory.ID, r *record, lost bool) {
	switch r.at = 0; {
	case r.by == s.me:
		s.o.Directory.Again(id)
	case lost:
		r.by = ""
	default:
		_ = s.take(directory.Change{Worker: directory.Worker{ID: id}, Gone: true}, 0, r.by) // it can't be refused
	}
}

// loadOne makes the directory know what the record of a worker says.
func (s *State) loadOne(ctx context.Context, id directory.ID) error {
	name := encodeID(id)
	fields, err := s.client.HMGet(ctx, s.prefix+"worker:"+name, "at", "by", "state").Result()
	if err != nil {
		return fmt.Errorf("shared: a record: %w", err)
	}
	r := s.records[id]
	texts := make([]string, 3)
	for i := range min(len(fields), len(texts)) {
		texts[i], _ = fields[i].(string)
	}
	if texts[0] == "" { // it has gone meanwhile
		if r != nil {
			s.missing(id, r, false)
		}
		return nil
	}
	at, err := strconv.ParseInt(texts[0], 10, 64)
	switch by := texts[1]; {
	case err != nil || at <= 0 || by == "":
		return fmt.Errorf("%w: a record at %.40q by %.40q", errRead, texts[0], by)
	case by == s.me:
		s.records[id] = &record{at: at, by: by}
		return nil
	case r != nil && r.at == at && r.by == by:
		return nil
	}
	c, err := decodeState(id, []byte(texts[2]))
	if err != nil {
		return err
	}
	c.Reset = true
	room := s.o.Directory.Room()
	for i := range c.Places {
		p := &c.Places[i]
		err := s.members(ctx, fmt.Sprintf("%schunks:%d:%s", s.prefix, i, name), func(text string) error {
			k, ok := keyOf([]byte(text))
			switch {
			case !ok:
				s.unreadable(fmt.Errorf("%w: a chunk of %d bytes", errRead, len(text)))
			case len(p.Held) >= room:
				return fmt.Errorf("%w: by what Redis has", directory.ErrFull)
			default:
				p.Held = append(p.Held, k)
			}
			return nil
		})
		if errors.Is(err, directory.ErrFull) {
			break // the directory refuses what is too much, and says so
		}
		if err != nil {
			return err
		}
		room -= len(p.Held)
	}
	return s.take(c, at, texts[1])
}

// members calls do with the members of a set, some of them more than once.
func (s *State) members(ctx context.Context, key string, do func(text string) error) error {
	cursor := uint64(0)
	for range maxPages {
		page, next, err := s.client.SScan(ctx, key, cursor, "", pageSize).Result()
		if err != nil && !errors.Is(err, goredis.Nil) {
			return fmt.Errorf("shared: a set: %w", err)
		}
		for _, text := range page {
			if err := do(text); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
	return fmt.Errorf("%w: a set without an end", errRead)
}
