package policy

// Oracle goes by the next use of each object, which no rule can: it shows what
// there is to gain. It is a heuristic (cost per byte and time), not the optimum.
type Oracle struct {
	next []int // by use
	now  int
}

// Foreseen is an object of an Oracle.
type Foreseen struct {
	next int
	cost float64
}

// NewOracle makes one for the uses of a trace, each of which has to be a Hit, an Add or a Skip.
func NewOracle(uses []*Item) *Oracle {
	o := &Oracle{next: make([]int, len(uses)), now: -1}
	seen := map[*Item]int{}
	for i := len(uses) - 1; i >= 0; i-- {
		o.next[i] = seen[uses[i]] // 0: never
		seen[uses[i]] = i
	}
	return o
}

// Add is called when an object is put.
func (o *Oracle) Add(it *Item) *Foreseen {
	o.now++
	return &Foreseen{o.next[o.now], it.Cost}
}

// Hit is called when an object is used.
func (o *Oracle) Hit(f *Foreseen) {
	o.now++
	f.next = o.next[o.now]
}

// Skip is called in place of Add when an object is not put.
func (o *Oracle) Skip() { o.now++ }

// Evict is called when an object goes.
func (o *Oracle) Evict(*Foreseen) {}

// Value is what an object is worth now.
func (o *Oracle) Value(f *Foreseen) float64 {
	if f.next == 0 {
		return 0
	}
	return f.cost / float64(f.next-o.now)
}
