package main

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// runner measures the jobs of a case in turns, so that what else the machine does meets all of them.
type runner struct {
	rounds int
	budget time.Duration // of one job in one round
	most   int           // operations of one job in one round
}

// started is a job that was prepared, with its operations of a round.
type started struct {
	Job
	n      int
	result *Result
}

// measure returns the results of the jobs, in their order, and what was left out.
func (r runner) measure(c Case, jobs []Job) (results []Result, out []LeftOut, err error) {
	var all []*started
	defer func() {
		for _, j := range jobs {
			err = errors.Join(err, j.Close())
		}
	}()
	for _, j := range jobs {
		switch e := j.Prepare(c); {
		case errors.Is(e, errUnavailable):
			out = append(out, LeftOut{c.Job + ": " + j.Peer(), e.Error()})
		case e != nil:
			return nil, out, fmt.Errorf("%s, %s: %w", c.Job, j.Peer(), e)
		default:
			all = append(all, &started{Job: j, result: &Result{Case: c, Peer: j.Peer()}})
		}
	}
	for _, s := range all {
		if err := r.warm(s); err != nil {
			return nil, out, fmt.Errorf("%s, %s: %w", c.Job, s.Peer(), err)
		}
	}
	for round := range r.rounds {
		for _, s := range order(all, round) {
			times, err := s.Run(s.n)
			if err != nil {
				return nil, out, fmt.Errorf("%s, %s: %w", c.Job, s.Peer(), err)
			}
			s.result.add(s.n, times)
		}
	}
	for _, s := range all {
		if n, ok := s.Job.(noter); ok {
			s.result.Notes = n.Notes()
		}
		results = append(results, *s.result)
	}
	return results, out, nil
}

// warm runs a job until it has run for half of its budget, and sets how many operations fit into the budget.
func (r runner) warm(s *started) error {
	for n := 1; ; n *= 2 {
		n = min(n, r.most)
		began := time.Now()
		if _, err := s.Run(n); err != nil {
			return err
		}
		took := max(time.Since(began), time.Nanosecond)
		if took >= r.budget/2 || n == r.most {
			s.n = max(1, min(r.most, int(float64(n)*float64(r.budget)/float64(took))))
			return nil
		}
	}
}

// order is that of a round: every job is the first one in turn, and every second round goes backwards.
func order(all []*started, round int) []*started {
	if len(all) == 0 {
		return nil
	}
	first := round / 2 % len(all)
	turned := slices.Concat(all[first:], all[:first])
	if round%2 == 1 {
		slices.Reverse(turned)
	}
	return turned
}
