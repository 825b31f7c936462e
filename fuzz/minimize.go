package fuzz

import (
	"maps"
	"slices"
)

// minimizeTries bounds the sequences that Minimize tries.
const minimizeTries = 5000

// Minimize returns a sequence for which fails reports true and in which, as far as
// a bounded number of tries shows, no operation can be left out and no number lowered. fails
// must report true for ops, and give the same answer to the same sequence. The last sequence for
// which it reports true is the one that Minimize returns.
func Minimize(ops []Op, fails func(ops []Op) bool) []Op {
	tries := 0
	try := func(candidate []Op) bool {
		tries++
		return tries <= minimizeTries && fails(candidate)
	}
	for again := true; again && tries < minimizeTries; {
		before := Format(ops)
		ops = leaveOut(ops, try)
		ops = lower(ops, try)
		ops = lowerTogether(ops, try)
		again = Format(ops) != before
	}
	return ops
}

// leaveOut removes runs of operations, of half the sequence at first and of one at last, from
// the end to the front.
func leaveOut(ops []Op, try func([]Op) bool) []Op {
	for n := max(len(ops)/2, 1); ; n /= 2 {
		for end := len(ops); end > 0; end -= n {
			begin := max(end-n, 0)
			if candidate := slices.Concat(ops[:begin], ops[end:]); try(candidate) {
				ops = candidate
			}
		}
		if n <= 1 {
			return ops
		}
	}
}

// lower makes numbers of the operations smaller: 0, 1, half, or one less; and lists shorter.
func lower(ops []Op, try func([]Op) bool) []Op {
	ops = slices.Clone(ops)
	for i := range ops {
		for _, name := range slices.Sorted(maps.Keys(ops[i].Args)) {
			for changed := true; changed; {
				changed = false
				for _, smaller := range smallerValues(ops[i].Args[name]) {
					was := ops[i]
					ops[i] = Op{ID: was.ID, Name: was.Name, Args: maps.Clone(was.Args)}
					ops[i].Args[name] = smaller
					if changed = try(slices.Clone(ops)); changed {
						break
					}
					ops[i] = was
				}
			}
		}
	}
	return ops
}

// lowerTogether makes two numbers smaller by the same amount, as it takes where one has to fit
// into the other: the bytes of a ring and of a chunk.
func lowerTogether(ops []Op, try func([]Op) bool) []Op {
	type place struct {
		op   int
		name string
	}
	var places []place
	for i, op := range ops {
		for _, name := range slices.Sorted(maps.Keys(op.Args)) {
			if n, ok := number(op.Args[name]); ok && n > 0 {
				places = append(places, place{i, name})
			}
		}
	}
	ops = slices.Clone(ops)
	less := func(p place, by int) bool {
		n, _ := number(ops[p.op].Args[p.name])
		if n < by {
			return false
		}
		args := maps.Clone(ops[p.op].Args)
		args[p.name] = n - by
		ops[p.op] = Op{ID: ops[p.op].ID, Name: ops[p.op].Name, Args: args}
		return true
	}
	for i, a := range places {
		for _, b := range places[:i] {
			n, _ := number(ops[a.op].Args[a.name])
			for by := n; by > 0; by /= 2 {
				wasA, wasB := ops[a.op], ops[b.op]
				for less(a, by) && less(b, by) && try(slices.Clone(ops)) {
					wasA, wasB = ops[a.op], ops[b.op]
				}
				ops[a.op], ops[b.op] = wasA, wasB
			}
		}
	}
	return ops
}

func number(v any) (int, bool) {
	switch v := v.(type) {
	case int:
		return v, true
	case int64:
		return int(v), true
	}
	return 0, false
}

func smallerValues(v any) []any {
	if n, ok := number(v); ok {
		return smallerNumbers(n)
	}
	if v, ok := v.([]any); ok {
		var out []any
		for i := range v {
			out = append(out, slices.Concat(v[:i], v[i+1:]))
		}
		return out
	}
	return nil
}

func smallerNumbers(n int) []any {
	var out []any
	for _, m := range []int{0, 1, n / 2, n - n/8, n - 1} {
		if m >= 0 && m < n && !slices.Contains(out, any(m)) {
			out = append(out, m)
		}
	}
	return out
}
