package objstore

import "github.com/ringcache/ringcache/serde"

type fifoSteps struct{ f *FIFO }

func (s fifoSteps) unnamedRequest() (stepRequest, error) {
	return s.f.begin(unnamed(s.f.unnamed.Add(1)))
}

func (s fifoSteps) touch(key string) (bool, error) {
	if err := s.f.lock(); err != nil {
		return false, err
	}
	defer s.f.unlock()
	o, ok := s.f.index[key]
	if ok {
		s.f.fifoTable.touch(o)
		s.f.wakeFirst()
	}
	return ok, nil
}

func (s fifoSteps) untouch(key string) {
	if s.f.lock() != nil {
		return
	}
	defer s.f.unlock()
	if o, ok := s.f.index[key]; ok {
		s.f.untouch(o)
	}
}

func (s fifoSteps) untouchAll() {
	if s.f.lock() != nil {
		return
	}
	defer s.f.unlock()
	for o := range s.f.touched {
		s.f.untouch(o)
	}
}

func (s fifoSteps) freeUnused() ([]uint32, error) {
	if err := s.f.lock(); err != nil {
		return nil, err
	}
	defer s.f.unlock()
	return s.f.freeUnused()
}

func (s fifoSteps) current(key string) (serde.Address, bool, error) { return s.f.current(key) }

// hold: a view of a FIFO keeps nothing, as vLLM's.
func (s fifoSteps) hold(serde.Address) (release func(), err error) { return func() {}, nil }
