package page

import (
	"fmt"
	"log/slog"
)

// An eviction storm is a minute in which a level evicts a quarter of the objects that it has: what it evicts is not
// what nobody wants.
const (
	stormPart  = 4
	stormLeast = 100 // objects
)

// watch adds the events that the log does not have: refusals, damage, and storms of evictions. before is the look
// before now, and past the one of a minute ago. storms are the levels in one. It returns those that are now.
func (e *Events) watch(past, before, now Now, storms map[string]bool) map[string]bool {
	for i, r := range now.Refused {
		if i >= len(before.Refused) || r.Count <= before.Refused[i].Count {
			continue
		}
		e.count(now.At, "refused "+r.What+" "+r.Reason, r.Count-before.Refused[i].Count, func(n uint64) string {
			return fmt.Sprintf("%s refused: %s, %d within a minute", r.What, r.Reason, n)
		})
	}
	still := map[string]bool{}
	for i, l := range now.Levels {
		if i >= len(before.Levels) || i >= len(past.Levels) {
			continue // the levels have just been opened
		}
		if n := l.Usage.Corrupt - before.Levels[i].Usage.Corrupt; n > 0 {
			e.count(now.At, "damage "+l.Name, uint64(n), func(n uint64) string {
				return fmt.Sprintf("damaged objects of level %s went: %d within a minute; ringcache tier verify reads all of them", l.Name, n)
			})
		}
		evicted := l.Usage.Evicted - past.Levels[i].Usage.Evicted
		least := max(stormLeast, l.Usage.Objects/stormPart)
		if storms[l.Name] {
			least /= 2 // it does not end and begin all the time
		}
		if l.Usage.Evicted < 0 || evicted < least {
			continue
		}
		still[l.Name] = true
		if !storms[l.Name] {
			e.add(event{At: now.At, Level: slog.LevelWarn, Text: fmt.Sprintf("an eviction storm: level %s has evicted %d objects within a minute, and has %d; "+
				"if hit rates fall, it is too small for what is asked for, or a tenant needs a quota", l.Name, evicted, l.Usage.Objects)})
		}
	}
	for _, l := range now.Levels {
		if storms[l.Name] && !still[l.Name] {
			e.add(event{At: now.At, Level: slog.LevelInfo, Text: "the eviction storm of level " + l.Name + " is over"})
		}
	}
	return still
}
