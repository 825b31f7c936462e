package serde

import (
	"fmt"

	"github.com/ringcache/ringcache/pycompat"
)

// pooling returns the values in wire order.
func (p Params) pooling(g *pycompat.Generation) ([]any, error) {
	if err := p.unknown(g.Params.Pooling, g.Version); err != nil {
		return nil, err
	}
	var out []any
	for _, name := range g.Params.Pooling {
		v, given := p[name]
		var w any
		var err error
		if given {
			if w, err = poolingTable[name].check(name, v, g); err != nil {
				return nil, err
			}
		}
		if w == nil {
			w = poolingDefault(name, g)
		}
		out = append(out, w)
	}
	return out, nil
}

func poolingDefault(name string, g *pycompat.Generation) any {
	switch {
	case name == "output_kind":
		return int64(finalOnly)
	case name == "requires_token_ids":
		return false
	case name == "skip_reading_prefix_cache" && g.Params.PoolingSkip:
		return false // which is what None means to the engine
	}
	return nil
}

func (e *encoder) pooling(r *EngineCoreRequest) {
	if r.PoolingParams == nil {
		e.null()
		return
	}
	values, err := r.PoolingParams.pooling(e.gen)
	if err != nil {
		e.keep(err)
		return
	}
	e.value(values)
}

// pooling leaves out what is None.
func (d *decoder) pooling() (Params, error) {
	const what = "pooling_params"
	n, err := d.array(what)
	if err != nil {
		return nil, err
	}
	p := Params{}
	names := d.gen.Params.Pooling
	for i := range n {
		if i >= len(names) {
			if err := d.skip(what); err != nil {
				return nil, err
			}
			continue
		}
		v, err := d.anything(fmt.Sprintf("parameter %s", names[i]), false)
		if err != nil {
			return nil, err
		}
		if v != nil {
			p[names[i]] = v
		}
	}
	return p, nil
}
