package flow

import (
	"errors"
	"math"
	"slices"
)

// Lookup asks how many tokens of a request are stored, from the first one on, at every worker. tokens have the
// values of media in place of placeholders; options are those of the request. What it finds is to be kept until the
// request is loaded, or finished.
type Lookup func(id string, tokens []int64, options string) (stored int, err error)

// Scheduler is the connector's half beside the engine's scheduler.
type Scheduler struct {
	options  Options
	lookup   Lookup
	found    map[string]int      // by request: look-ups that ended, until the request has blocks
	specs    map[string]LoadSpec // of requests that wait for their step
	requests map[string]Request  // that have blocks; without their tokens
	trackers map[string]*Tracker
}

// NewScheduler returns a Scheduler.
func NewScheduler(o Options, lookup Lookup) (*Scheduler, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if lookup == nil {
		return nil, invalid("there is no look-up")
	}
	return &Scheduler{
		options: o.withDefaults(), lookup: lookup,
		found: map[string]int{}, specs: map[string]LoadSpec{},
		requests: map[string]Request{}, trackers: map[string]*Tracker{},
	}, nil
}

// Matched returns how many tokens of a request can be loaded behind the first computed ones, which the engine
// has itself. If the look-up fails it is 0, with the look-up's error: the engine can compute all.
// [ErrPending] is no answer yet.
func (s *Scheduler) Matched(r Request, computed int) (int, error) {
	if err := r.check(); err != nil {
		return 0, err
	}
	if computed < 0 {
		return 0, invalid("request %.80q: %d computed tokens", r.ID, computed)
	}
	stored, known := s.found[r.ID]
	var failed error
	if !known {
		tokens := r.Tokens
		if len(r.Media) > 0 {
			tokens = r.Named(r.Tokens[:r.PromptTokens])
		}
		tokens = tokens[:len(tokens)-min(s.options.SkipLastTokens, len(tokens))]
		var err error
		switch stored, err = s.lookup(r.ID, tokens, r.Options); {
		case errors.Is(err, ErrPending):
			return 0, err
		case err != nil:
			stored, failed = 0, err
		case stored < 0 || stored > len(tokens):
			stored, failed = 0, invalid(
				"request %.80q: a look-up says that %d of %d tokens are stored",
				r.ID, stored, len(tokens))
		default:
			s.found[r.ID] = stored
		}
	}
	if s.options.DiscardPartialChunks || stored < r.PromptTokens {
		// See docs/decisions.md, "No load is reported that no step makes".
		stored = stored / s.options.ChunkTokens * s.options.ChunkTokens
	}
	n := stored - computed
	if stored == len(r.Tokens) {
		n-- // its logits are needed
	}
	tooFew := s.options.MinRetrieveTokens > 0 && n < s.options.MinRetrieveTokens
	if most := s.options.MaxTokensPerLoad; most > 0 && n > most {
		chunk := s.options.ChunkTokens
		stored = (computed + most/chunk*chunk) / chunk * chunk
		n = stored - computed
	}
	s.specs[r.ID] = LoadSpec{EngineTokens: computed, CacheTokens: stored}
	if tooFew {
		return 0, failed
	}
	return max(n, 0), failed
}

// Allocated says that a request has blocks, with room for external tokens, as many as Matched returned, or
// none if they are not to be loaded.
func (s *Scheduler) Allocated(r Request, external int) error {
	if err := r.check(); err != nil {
		return err
	}
	delete(s.found, r.ID)
	kept := r
	kept.Tokens, kept.Media = nil, slices.Clone(r.Media)
	s.requests[r.ID] = kept
	spec, known := s.specs[r.ID]
	if !known {
		return nil
	}
	spec.CanLoad = external != 0
	last := spec.CacheTokens == len(r.Tokens)
	if spec.CanLoad && external != spec.CacheTokens-spec.EngineTokens-count(last) {
		return invalid(
			"request %.80q: %d tokens are to be loaded; %d are stored, of which the engine has %d",
			r.ID, external, spec.CacheTokens, spec.EngineTokens)
	}
	s.specs[r.ID] = spec
	return nil
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Scheduled is a request in a step.
type Scheduled struct {
	ID       string
	Tokens   []int64 // all that there are
	Computed int     // how many of them are computed, or loaded, before the step
	Count    int     // how many are computed in it
	Blocks   []int64 // that are new
	Resumed  bool    // behind a preemption: Blocks replace those that the request had
}

// Build returns what a step does: for requests that are in a step for the first time, and for those that go
// on. The error names each request that does not fit. What the step does for the others is returned beside
// the error, and is to be done: the engine takes their loads for done, and their saves are not repeated.
func (s *Scheduler) Build(first, running []Scheduled) ([]*Meta, error) {
	var out []*Meta
	var errs []error
	add := func(m *Meta, err error) {
		switch {
		case err != nil:
			errs = append(errs, err)
		case m != nil:
			out = append(out, m)
		}
	}
	for _, q := range first {
		add(s.begin(q))
	}
	for _, q := range running {
		add(s.goOn(q))
	}
	return out, errors.Join(errs...)
}

func (q Scheduled) check() error {
	if q.Computed < 0 || q.Count < 0 || q.Count > math.MaxInt32 || q.Computed > len(q.Tokens) {
		return invalid("request %.80q: %d tokens in a step, behind %d of %d", q.ID, q.Count, q.Computed, len(q.Tokens))
	}
	return nil
}

// take returns the load specification of a request that is in a step now, or nil.
func (s *Scheduler) take(id string) *LoadSpec {
	spec, known := s.specs[id]
	if !known {
		return nil
	}
	delete(s.specs, id)
	return &spec
}

func (s *Scheduler) begin(q Scheduled) (*Meta, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	r, known := s.requests[q.ID]
	if !known {
		return nil, invalid("request %.80q: it has no blocks yet", q.ID)
	}
	load := s.take(q.ID)
	cached := 0
	if load != nil {
		cached = load.CacheTokens
	}
	r.Tokens = q.Tokens
	skip := s.options.NeverSave || s.options.PriorityLimit != nil && r.Priority > *s.options.PriorityLimit
	t, err := NewTracker(r, q.Blocks, q.Computed+q.Count, cached, skip)
	if err != nil {
		return nil, err
	}
	s.trackers[q.ID] = t
	return t.Meta(s.options, load)
}

func (s *Scheduler) goOn(q Scheduled) (*Meta, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	t := s.trackers[q.ID]
	if t == nil {
		return nil, invalid("request %.80q: it was in no step before", q.ID)
	}
	load := s.take(q.ID)
	if q.Resumed {
		if load == nil {
			return nil, invalid("request %.80q: it is resumed, and was not looked up again", q.ID)
		}
		computed := load.EngineTokens
		if load.CanLoad {
			computed = load.CacheTokens - count(load.CacheTokens == len(q.Tokens))
		}
		if q.Computed != computed {
			return nil, invalid(
				"request %.80q: it is resumed behind %d tokens, and %d are stored or with the engine",
				q.ID, q.Computed, computed)
		}
	}
	at := min(q.Computed, len(t.Tokens)) // fewer are known if the model has made tokens since
	added := q.Tokens[at:min(at+q.Count, len(q.Tokens))]
	t.rollBack(q.Tokens, q.Computed, s.options.BlockTokens)
	if q.Resumed {
		t.Resume(q.Tokens, q.Computed, len(added), q.Blocks, load.CacheTokens)
	} else {
		t.Update(added, q.Blocks)
	}
	return t.Meta(s.options, load)
}

// Finish forgets a request that has ended or was aborted, and returns how many tokens of it were stored when it began.
func (s *Scheduler) Finish(id string) (stored int) {
	if t := s.trackers[id]; t != nil {
		stored = t.CacheTokens
	}
	delete(s.found, id)
	delete(s.specs, id)
	delete(s.requests, id)
	delete(s.trackers, id)
	return stored
}
