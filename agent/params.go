package agent

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
)

// params are the fields of one request. What is wrong with one ends the request: the getters panic with a
// refusal, which answer recovers. So an operation reads its fields first, and changes nothing before.
type params struct {
	fields map[string]rawJSON
	known  []string // names that the fields may have
	budget int      // bytes that the tensors of this request may still ask for
}

// refusal is the error of a request with a wrong field.
type refusal struct{ error }

func parseParams(line []byte) (*params, error) {
	p := &params{}
	if err := json.Unmarshal(line, &p.fields); err != nil {
		return nil, invalidf("not a JSON object: %w", err)
	}
	if p.fields == nil {
		return nil, invalidf("not a JSON object: null")
	}
	return p, nil
}

func (p *params) fail(format string, args ...any) { panic(refusal{invalidf(format, args...)}) }

// allow fails for the first field whose name is none of known.
func (p *params) allow(known ...string) {
	p.known = append(known, "op", "seq")
	for _, name := range sortedNames(p.fields) {
		if !slices.Contains(p.known, name) {
			p.fail("%w", unknownName(name, known))
		}
	}
}

// has reports whether a field is there and not null.
func (p *params) has(name string) bool {
	if !slices.Contains(p.known, name) {
		panic("the field " + name + " is missing in the table of fields")
	}
	raw, ok := p.fields[name]
	return ok && !bytes.Equal(raw, []byte("null"))
}

// required decodes a field that must be there.
func required[T any](p *params, name string) (v T) {
	if !p.has(name) {
		p.fail("field %q is missing", name)
	}
	return optional(p, name, v)
}

// optional decodes a field, or returns what holds if it is absent or null.
func optional[T any](p *params, name string, absent T) T {
	if !p.has(name) {
		return absent
	}
	var v T
	if err := unmarshal(p.fields[name], &v); err != nil {
		p.fail("field %q: %w", name, err)
	}
	return v
}

func (p *params) str(name string) string { return required[string](p, name) }
func (p *params) int(name string) int    { return required[int](p, name) }
func (p *params) address() (uint64, uint32) {
	return required[uint64](p, "address"), required[uint32](p, "id")
}

func (p *params) hex(name string) []byte {
	return required[hexBytes](p, name)
}

func (p *params) unhex(name, s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		p.fail("field %q: %w", name, err)
	}
	return b
}

// generation is the field of that name, the newest known if absent. The field
// treat_as names the release that one which is not known is like.
func (p *params) generation() *pycompat.Generation {
	v, as := optional(p, "generation", ""), optional(p, "treat_as", "")
	if v == "" {
		if as != "" {
			p.fail("field \"treat_as\" needs \"generation\", the version that is not known")
		}
		return pycompat.Newest()
	}
	g, err := pycompat.Lookup(v)
	if as != "" && err == nil {
		p.fail("vLLM %s is known: leave \"treat_as\" out", v)
	} else if as != "" {
		g, err = pycompat.TreatAs(v, as)
	}
	if err != nil {
		panic(refusal{err})
	}
	return g
}

// threshold is the field of that name as serde.Options has it, where 0 is the
// default and nothing inline is negative.
func (p *params) threshold() int {
	n := optional(p, "threshold", 0)
	if p.has("threshold") && n == 0 {
		return -1
	}
	return n
}

// handle is the address, the id and the signature of a request. A signature
// that is not of 32 bytes becomes one that can't be right, so that the
// library gives its verdict.
func (p *params) handle() serde.Address {
	var h serde.Address
	h.Address, h.ID = p.address()
	if !p.has("signature") {
		return h
	}
	var s string
	var list []byteNumber
	var b []byte
	switch raw := p.fields["signature"]; {
	case json.Unmarshal(raw, &s) == nil:
		b, _ = hex.DecodeString(s)
	case json.Unmarshal(raw, &list) == nil:
		for _, n := range list {
			b = append(b, byte(n))
		}
	}
	h.Signature = wrongSignature
	if len(b) == len(h.Signature) && !serde.Signature(b).IsZero() {
		h.Signature = serde.Signature(b)
	}
	return h
}

// wrongSignature is one that no handle has: it is right with the probability of any
// other guess, 2^-256.
var wrongSignature = serde.Signature([]byte("thirty-two bytes that don't sign"))

// byteNumber is an integer of 0 to 255 in a JSON list.
type byteNumber uint8

func (b *byteNumber) UnmarshalJSON(raw []byte) error {
	if bytes.Equal(raw, []byte("null")) {
		return errors.New("null is no byte")
	}
	return json.Unmarshal(raw, (*uint8)(b))
}
