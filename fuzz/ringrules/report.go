package ringrules

import "github.com/ringcache/ringcache/fuzz"

// performed is an operation as it becomes a line.
type performed struct {
	name  string
	size  int
	first uint32
	ids   []uint32
}

func (t *tester) failure(name, why string, err error) *fuzz.Failure {
	return &fuzz.Failure{Invariant: name, Why: why, Err: err, Ops: t.lines()}
}

// lines returns what was performed as operations.
func (t *tester) lines() []fuzz.Op {
	var out []fuzz.Op
	for _, p := range t.performed {
		args := map[string]any{"ring": "r"}
		switch p.name {
		case "ring.new":
			args["size"] = p.size
			if p.first != 0 {
				args["first_id"] = int64(p.first)
			}
			if t.Release != "" {
				args["generation"] = t.Release
			}
		case "ring.alloc":
			args["size"] = p.size
		case "ring.free":
			ids := []any{}
			for _, id := range p.ids {
				ids = append(ids, int64(id))
			}
			args["ids"] = ids
		}
		out = append(out, fuzz.Op{Name: p.name, Args: args})
	}
	return out
}
