package page

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/ringcache/ringcache/inspect"
)

const (
	mapColumns = 64
	mapCells   = mapColumns * 8
	mapRest    = 5 * time.Second // at least, between two looks
	mapShare   = 100             // a look may take this part of the time
)

// segmentMap is the segment as it was drawn last.
type segmentMap struct {
	drawn *inspect.Map
	err   error
	next  time.Time // when it may be looked at again
}

// look looks at the segment, if that is due.
func (m *segmentMap) look(name, dir string) {
	began := time.Now()
	if began.Before(m.next) {
		return
	}
	m.drawn, m.err = drawn(name, dir)
	end := time.Now()
	m.next = end.Add(max(mapRest, (mapShare-1)*end.Sub(began)))
}

func drawn(name, dir string) (*inspect.Map, error) {
	x, err := inspect.Open(name, inspect.Options{Dir: dir, Brief: true})
	if err != nil {
		return nil, err
	}
	m, err := x.Map(mapCells)
	return m, errors.Join(err, x.Close())
}

const (
	mostFound   = 50               // objects that a search shows
	searchTime  = 20 * time.Second // of a search
	searchPiece = 256              // objects that are looked at before a rest
)

// search finds objects in memory that have a text in their key, in the order of the table. It rests as long as it
// works. more reports that there are more than are shown, or that its time was over.
func search(ctx context.Context, name, dir, text string) (found []inspect.Object, looked int, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	x, err := inspect.Open(name, inspect.Options{Dir: dir})
	if err != nil {
		return nil, 0, false, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	began := time.Now()
	for o := range x.Objects() {
		if looked++; looked%searchPiece == 0 {
			rest := time.NewTimer(time.Since(began))
			select {
			case <-rest.C:
			case <-ctx.Done():
				rest.Stop()
				return found, looked, true, nil
			}
			began = time.Now()
		}
		if !strings.Contains(o.Key, text) {
			continue
		}
		if len(found) == mostFound {
			return found, looked, true, nil
		}
		found = append(found, o)
	}
	return found, looked, false, nil
}
