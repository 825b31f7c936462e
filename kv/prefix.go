package kv

import "fmt"

// Exists reports which chunks one worker has of one group: found[i] is whether chunk first+i is there. found is all
// false when it is called. For a group without a window, what follows the first miss does not matter.
type Exists func(group, worker, first int, found []bool) error

// LongestPrefix returns how many chunks from 0 on can be loaded, of a request with end chunks whose first
// start ones the engine has itself. It is an absolute number, as LMCache 0.5.7 wants it: start if nothing is
// there, and nothing is asked about the chunks in front of start. A start behind the end is the end.
//
// A prefix can be loaded if every worker has, of every group, the last chunks of it that the group's window
// needs: windows has one number for each group, and 0 is all of them. So a prefix may fit though a shorter
// one does not.
//
// Exists is called once for each group and worker, groups without a window first, and only for chunks up to
// the longest prefix that is still possible.
func LongestPrefix(windows []int, workers, start, end int, exists Exists) (int, error) {
	if len(windows) < 1 || len(windows) > maxGroups || workers < 1 || workers > maxWorld || start < 0 || end < 0 {
		return 0, invalid(fmt.Errorf("look-up: %d groups, %d workers, chunks %d to %d", len(windows), workers, start, end))
	}
	for _, w := range windows {
		if w < 0 {
			return 0, invalid(fmt.Errorf("look-up: a window of %d chunks", w))
		}
	}
	p := prefix{exists: exists, start: min(start, end), end: end}
	p.found, p.refused = make([]bool, p.end-p.start), make([]bool, p.end-p.start+1)
	for _, windowed := range []bool{false, true} {
		for group, window := range windows {
			for worker := 0; worker < workers && windowed == (window > 0) && p.end > p.start; worker++ {
				if err := p.narrow(group, worker, window); err != nil {
					return 0, err
				}
			}
		}
	}
	return p.end, nil
}

// prefix is a look-up in progress: the answer is at most end, and not start+i where refused[i].
type prefix struct {
	exists         Exists
	start, end     int
	found, refused []bool
}

// narrow lowers the end to what one worker has of one group.
func (p *prefix) narrow(group, worker, window int) error {
	found := p.found[:p.end-p.start]
	clear(found)
	if err := p.exists(group, worker, p.start, found); err != nil {
		return err
	}
	run := 0 // how many chunks at the end of the first i+1 are there
	for i, here := range found {
		run++
		if !here {
			run = 0
		}
		if needed := i + 1; run < needed && (window == 0 || run < min(window, needed)) {
			p.refused[i+1] = true
		}
	}
	for p.refused[p.end-p.start] { // 0 chunks are never refused
		p.end--
	}
	return nil
}
