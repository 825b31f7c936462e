package objstore

import (
	"errors"

	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmstore"
)

type poolSteps struct{ p *Pool }

func (s poolSteps) unnamedRequest() (stepRequest, error) {
	return s.p.begin(unnamed(s.p.unnamed.Add(1)))
}

func (s poolSteps) touch(key string) (bool, error) { return s.p.Pin(key) }

func (s poolSteps) untouch(key string) { s.p.Unpin(key) }

func (s poolSteps) untouchAll() { s.p.bytesStore.Unpin() }

func (s poolSteps) freeUnused() ([]uint32, error) { return s.p.bytesStore.Evict() }

func (s poolSteps) current(key string) (serde.Address, bool, error) { return s.p.current(key) }

func (s poolSteps) hold(h serde.Address) (release func(), err error) {
	r, err := s.p.begin(unnamed(s.p.unnamed.Add(1)))
	if err != nil {
		return nil, err
	}
	_, err = r.HoldID(h.ID)
	if err != nil && !errors.Is(err, shmstore.ErrStale) {
		r.Rollback()
		return nil, err
	}
	return r.Rollback, nil
}
