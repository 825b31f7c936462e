package system

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringcache/ringcache/fuzz"
)

// Differential performs generated sequences on two systems and compares the replies.
type Differential struct {
	Family Family
	Case   Case
	// Lead and Follower start the systems. The lead performs each operation with what its own
	// earlier replies contained, the follower then the same operations. A system that broke is
	// started again. Run closes what it started.
	Lead, Follower func(context.Context) (fuzz.System, error)
	// LeadName and FollowerName are what failures call the two; "the first system" and "the second
	// system" if empty.
	LeadName, FollowerName string

	Seed   uint64    // of the first sequence; the next one has Seed+1
	Ops    int       // about so many operations are performed, 10000 if 0
	Length int       // of a sequence, 200 if 0
	Until  time.Time // no sequence begins later; the zero time is never
	// Repeat returns the command that generates the sequence of a seed again; may be nil.
	Repeat func(seed uint64) string
	// Progress, if not nil, is called now and then.
	Progress func(Result)
}

// Result is what a run did.
type Result struct {
	Ops, Sequences int // that both systems performed, and whose replies were compared
	// Parted are the numbers of sequences of which the end was not compared, since the systems part
	// there by right, by the reason: "vLLM would hang".
	Parted      map[string]int
	First, Last uint64 // seeds
	// Failure is the first difference, or what broke a system; nil if there was none.
	Failure *fuzz.Failure
}

// batchOps is about how many operations go to the follower at once: enough that neither process
// waits for the other, and few enough for progress.
const batchOps = 4000

// sequence is one that the lead has performed.
type sequence struct {
	seed          uint64
	ops, resolved []fuzz.Op
	want, got     []fuzz.Reply
	err           error // the lead or the follower broke
}

// Run compares until there is a difference, or until enough was compared. The error is that of a system that
// can't be started, or of ctx.
func (d Differential) Run(ctx context.Context) (Result, error) {
	if d.Ops == 0 {
		d.Ops = 10000
	}
	if d.Length == 0 {
		d.Length = 200
	}
	lead, follower := &restarting{start: d.Lead}, &restarting{start: d.Follower}
	r, err := d.run(ctx, lead, follower)
	closing := errors.Join(lead.Close(), follower.Close())
	if r.Failure != nil {
		closing = nil // a system that fails may well end badly, and the failure explains why
	}
	return r, errors.Join(err, closing)
}

func (d Differential) run(ctx context.Context, lead, follower *restarting) (Result, error) {
	r := Result{First: d.Seed, Last: d.Seed, Parted: map[string]int{}}
	if err := errors.Join(lead.ready(ctx), follower.ready(ctx)); err != nil {
		return r, err
	}
	performing, stop := context.WithCancel(ctx)
	defer stop()
	generated, performed := make(chan []sequence, 2), make(chan []sequence, 2)
	go func() { defer close(generated); d.generate(performing, lead, generated) }()
	go func() { defer close(performed); follow(performing, follower, generated, performed) }()
	var failed *sequence
	for batch := range performed {
		for i := 0; i < len(batch) && failed == nil; i++ {
			if s := &batch[i]; d.fails(s, &r) {
				failed = s
				stop() // and receive until both are done
			}
		}
		if failed == nil && d.Progress != nil {
			d.Progress(r)
		}
	}
	if err := errors.Join(lead.startErr, follower.startErr, ctx.Err()); err != nil {
		return r, err
	}
	if failed != nil {
		r.Failure = d.minimize(ctx, lead, follower, failed)
	}
	return r, errors.Join(lead.startErr, follower.startErr, ctx.Err())
}

// generate lets the lead perform sequences, and sends them in batches until there are enough.
func (d Differential) generate(ctx context.Context, lead *restarting, to chan<- []sequence) {
	generator := d.Family.Generate(d.Case)
	for seed, done := d.Seed, 0; done < d.Ops && (d.Until.IsZero() || time.Now().Before(d.Until)); {
		var batch []sequence
		for n := 0; n < batchOps && done < d.Ops; seed++ {
			s := sequence{seed: seed, ops: observe(generator(fuzz.FromSeed(seed), d.Length))}
			d.Case.lead(lead, &s)
			n, done = n+len(s.ops), done+len(s.ops)
			batch = append(batch, s)
			if s.err != nil {
				break
			}
		}
		select {
		case to <- batch:
		case <-ctx.Done():
			return
		}
		if batch[len(batch)-1].err != nil {
			return
		}
	}
}

// lead lets the lead perform a sequence, and takes out what is withheld from the follower.
func (c Case) lead(lead fuzz.System, s *sequence) {
	s.resolved, s.want, s.err = perform(lead, s.ops)
	if s.err != nil {
		return
	}
	kept := 0
	for i, op := range s.resolved {
		if !c.withholds(op, s.want[i]) {
			s.resolved[kept], s.want[kept] = op, s.want[i]
			kept++
		}
	}
	s.resolved, s.want = s.resolved[:kept], s.want[:kept]
}

// perform is fuzz.Run with as many operations at a time as there are without a reference to one
// another.
func perform(s fuzz.System, ops []fuzz.Op) (resolved []fuzz.Op, replies []fuzz.Reply, err error) {
	byID := map[int]fuzz.Reply{}
	for len(ops) > 0 {
		n, pending := 0, map[int]bool{}
		for n < len(ops) && !refersTo(ops[n].Args, pending) {
			if id := ops[n].ID; id != 0 {
				pending[id] = true
			}
			n++
		}
		from := len(resolved)
		for _, op := range ops[:n] {
			resolved = append(resolved, op.Resolve(byID))
		}
		got, err := s.Do(resolved[from:])
		replies = append(replies, got...)
		if err != nil {
			return resolved[:min(len(replies)+1, len(resolved))], replies, err
		}
		if len(got) != n {
			return resolved, replies, fmt.Errorf("%d replies to %d operations", len(got), n)
		}
		for i, op := range ops[:n] {
			if op.ID != 0 {
				byID[op.ID] = got[i]
			}
		}
		ops = ops[n:]
	}
	return resolved, replies, nil
}

func refersTo(v any, pending map[int]bool) bool {
	switch v := v.(type) {
	case fuzz.Ref:
		return pending[v.Op] || refersTo(v.Else, pending)
	case []any:
		for _, x := range v {
			if refersTo(x, pending) {
				return true
			}
		}
	case map[string]any:
		for _, x := range v {
			if refersTo(x, pending) {
				return true
			}
		}
	}
	return false
}

// follow lets the follower perform what the lead has performed.
func follow(ctx context.Context, follower *restarting, from <-chan []sequence, to chan<- []sequence) {
	for batch := range from {
		var ops []fuzz.Op
		for _, s := range batch {
			if s.err == nil {
				ops = append(ops, s.resolved...)
			}
		}
		if ctx.Err() != nil {
			continue // until the lead has seen it, too
		}
		got, err := follower.Do(ops)
		for i := range batch {
			s := &batch[i]
			if s.err != nil {
				continue
			}
			n := min(len(s.resolved), len(got))
			s.got, got = got[:n], got[n:]
			if n < len(s.resolved) {
				s.err = err
				if err == nil {
					s.err = errors.New("there are fewer replies than operations")
				}
				batch = batch[:i+1]
				break
			}
		}
		select {
		case to <- batch:
		case <-ctx.Done():
		}
	}
}

// fails compares a sequence.
func (d Differential) fails(s *sequence, r *Result) bool {
	r.Last = s.seed
	if s.err != nil {
		return true
	}
	difference, n, why := d.Case.difference(s.resolved, s.want, s.got)
	r.Sequences++
	r.Ops += n
	if why != "" {
		r.Parted[why]++
	}
	return difference != nil
}

// minimize repeats a sequence alone, and makes it as short as it can be.
func (d Differential) minimize(ctx context.Context, lead, follower *restarting, s *sequence) *fuzz.Failure {
	test := func(ops []fuzz.Op) *fuzz.Failure { return d.test(ctx, lead, follower, ops) }
	first := test(s.ops)
	if first == nil {
		// It needs what came before it: objects that an earlier sequence left, for example.
		first = d.failure(s)
		first.Err = fmt.Errorf("%w\n  it did not happen again when this sequence was performed alone", first.Err)
	} else if !errors.Is(first.Err, ErrHangs) { // each try would take the limit
		first = fuzz.Shrink(s.ops, first, test)
	}
	first.Seed, first.Seeded, first.Found = s.seed, true, len(s.ops)
	if d.Repeat != nil {
		first.Repeat = d.Repeat(s.seed)
	}
	return first
}

// maxRestarts bounds the systems that are started for one sequence to be minimized.
const maxRestarts = 200

// test performs a sequence on both systems, which a system that broke does not see again.
func (d Differential) test(ctx context.Context, lead, follower *restarting, ops []fuzz.Op) *fuzz.Failure {
	if lead.started+follower.started > maxRestarts || lead.ready(ctx) != nil || follower.ready(ctx) != nil {
		return nil
	}
	s := &sequence{ops: ops}
	if d.Case.lead(lead, s); s.err == nil {
		s.got, s.err = follower.Do(s.resolved)
	}
	f := d.failure(s)
	if f != nil && s.err != nil {
		return f
	}
	// Leave nothing to the next try, whatever was left out of this one.
	clean := closings(s.resolved)
	if _, err := lead.Do(clean); err == nil {
		_, _ = follower.Do(clean)
	}
	return f
}

// closings are operations that end all that a sequence made.
func closings(ops []fuzz.Op) []fuzz.Op {
	var out []fuzz.Op
	var done []object
	for _, op := range ops {
		o := objectOf(op)
		if o.name == "" || slices.Contains(done, o) {
			continue
		}
		done = append(done, o)
		out = append(out, o.op("close"))
	}
	slices.Reverse(out) // readers before their writer
	return out
}

// failure compares a sequence that was performed alone, nil if there is no difference.
func (d Differential) failure(s *sequence) *fuzz.Failure {
	if s.err != nil {
		answered := len(s.want)
		who, _ := d.names()
		if len(s.want) == len(s.resolved) {
			answered = len(s.got)
			_, who = d.names()
		}
		ops := s.resolved[:min(answered+1, len(s.resolved))]
		return &fuzz.Failure{Invariant: "broken",
			Err: fmt.Errorf("%s broke at the last of these operations: %w", who, s.err), Ops: ops}
	}
	if difference, _, _ := d.Case.difference(s.resolved, s.want, s.got); difference != nil {
		// With these words in its name, a shorter sequence that shows another difference is not taken
		// for this one.
		name := fmt.Sprintf("difference in %s (%s)", difference.Op.Name, difference.What)
		lead, follower := d.names()
		return &fuzz.Failure{Invariant: name, Err: &shown{difference, lead, follower},
			Ops: s.resolved[:difference.Index+1]}
	}
	return nil
}

func (d Differential) names() (lead, follower string) {
	return cmp.Or(d.LeadName, "the first system"), cmp.Or(d.FollowerName, "the second system")
}

// shown is a difference with the names of the systems. What differs is in the name of its failure.
type shown struct {
	*fuzz.Difference
	lead, follower string
}

func (d *shown) Error() string {
	width := max(len(d.lead), len(d.follower)) + 1
	return fmt.Sprintf("operation %d\n  %-*s %s\n  %-*s %s", d.Index, width, d.lead+":", d.Want, width,
		d.follower+":", d.Got)
}

func (d *shown) Unwrap() error { return d.Difference }

// restarting is a system that is started again after it broke.
type restarting struct {
	start    func(context.Context) (fuzz.System, error)
	system   fuzz.System
	started  int
	startErr error
}

// ready starts the system if it doesn't run.
func (r *restarting) ready(ctx context.Context) error {
	if r.system != nil || r.startErr != nil {
		return r.startErr
	}
	r.started++
	s, err := r.start(ctx)
	if err != nil {
		r.startErr = err
		return err
	}
	r.system = withNames(s)
	return nil
}

func (r *restarting) Do(ops []fuzz.Op) ([]fuzz.Reply, error) {
	if r.system == nil {
		return nil, errors.New("the system broke before")
	}
	replies, err := r.system.Do(ops)
	if err != nil {
		_ = r.Close() // it is broken already
	}
	return replies, err
}

func (r *restarting) Close() error {
	if r.system == nil {
		return nil
	}
	s := r.system
	r.system = nil
	return s.Close()
}
