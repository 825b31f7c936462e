package system

import (
	"strings"

	"github.com/ringcache/ringcache/fuzz"
)

// stateEvery is the number of operations on an object after which its state is compared.
const stateEvery = 6

// observe adds operations to a sequence: the state of an object after every few operations on it,
// and at the end the states of all and their ends, so that the next sequence finds none.
func observe(ops []fuzz.Op) []fuzz.Op {
	out := make([]fuzz.Op, 0, len(ops)+len(ops)/stateEvery+4)
	var alive []object
	since := map[string]int{} // operations since the last state, by name
	for _, op := range ops {
		out = append(out, op)
		o := objectOf(op)
		if o.name == "" {
			continue
		}
		since[o.name]++
		switch verb := op.Name[len(o.family)+1:]; verb {
		case "new", "create", "open", "adopt":
			o.reads = verb == "open"
			alive = append(alive, o)
		case "state":
			since[o.name] = 0
		}
		if since[o.name] >= stateEvery && !reads(alive, o.name) {
			since[o.name] = 0
			out = append(out, o.op("state"))
		}
	}
	for _, o := range alive {
		if !o.reads {
			out = append(out, o.op("state"))
		}
	}
	for _, o := range alive {
		out = append(out, o.op("close"))
	}
	return out
}

// object is what an operation is on.
type object struct {
	family, name string
	reads        bool // a reader of a store has no state
}

func (o object) op(verb string) fuzz.Op {
	return fuzz.Op{Name: o.family + "." + verb, Args: map[string]any{o.family: o.name}}
}

func objectOf(op fuzz.Op) object {
	family, _, _ := strings.Cut(op.Name, ".")
	name, _ := op.Args[family].(string)
	return object{family: family, name: name}
}

func reads(alive []object, name string) bool {
	for i := len(alive) - 1; i >= 0; i-- {
		if alive[i].name == name {
			return alive[i].reads
		}
	}
	return true // it was not made
}
