package enginecore

import (
	"cmp"
	"math"
	"slices"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/pyvalue"
)

// Message is an encoded request. It is immutable.
type Message struct {
	doc       []byte
	aux       [][]byte
	params    *Params
	requestID string
	// The places in doc of what differs between children; empty where there is none.
	id, header, n, seed span
	entries             int // of the map behind header
}

type span struct{ from, to int }

func (s span) empty() bool { return s.from == s.to }

// Frames returns the frames of the request as it was encoded, its type first. They
// alias the request's tensors.
func (m *Message) Frames() [][]byte {
	return m.frames(m.doc)
}

func (m *Message) frames(doc []byte) [][]byte {
	return append(append(make([][]byte, 0, 2+len(m.aux)), []byte{typeAdd}, doc), m.aux...)
}

// Child returns the frames of child i of the sequences that parameter n asks for,
// each of which is a request of its own under its own id: EngineCore runs one sequence
// for each request. Nothing is encoded again but the id, and the seed, which is i higher
// than the request's if there are several children; n is left out
// (vllm/v1/engine/parallel_sampling.py). A child that does not differ from the request as it was
// encoded has its frames. The error wraps [fs.ErrInvalid].
func (m *Message) Child(i int, id string) ([][]byte, error) {
	if id == m.requestID && m.n.empty() {
		return m.Frames(), nil
	}
	text, err := encoded(func(e *codec.Encoder) { e.Text(id) })
	if err != nil {
		return nil, err
	}
	edits := []edit{{m.id, text}}
	if !m.n.empty() {
		header, _ := encoded(func(e *codec.Encoder) { e.Map16(m.entries - 1) })
		edits = append(edits, edit{m.header, header}, edit{m.n, nil})
	}
	if !m.seed.empty() && m.params.N() > 1 {
		seed, _ := encoded(func(e *codec.Encoder) { pyvalue.WriteCanonical(e, childSeed(m.params.Get("seed"), i)) })
		edits = append(edits, edit{m.seed, seed})
	}
	return m.frames(apply(m.doc, edits)), nil
}

func encoded(write func(*codec.Encoder)) ([]byte, error) {
	e := codec.NewEncoder(codec.DefaultThreshold)
	write(e)
	return e.Document()
}

// edit replaces a part of a document.
type edit struct {
	at   span
	with []byte
}

func apply(doc []byte, edits []edit) []byte {
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(a.at.from, b.at.from) })
	size := len(doc)
	for _, e := range edits {
		size += len(e.with)
	}
	out := make([]byte, 0, size)
	from := 0
	for _, e := range edits {
		out = append(append(out, doc[from:e.at.from]...), e.with...)
		from = e.at.to
	}
	return append(out, doc[from:]...)
}

// childSeed returns the seed of a child; -1 is none for vLLM.
func childSeed(seed any, i int) any {
	switch s := seed.(type) {
	case int64:
		switch {
		case s == -1:
			return s
		case s > math.MaxInt64-int64(i): // as Python's integers do
			return uint64(s) + uint64(i)
		}
		return s + int64(i)
	case uint64:
		return s + uint64(i)
	}
	return seed
}
