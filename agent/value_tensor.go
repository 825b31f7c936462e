package agent

import (
	"bytes"
	"crypto/sha256"
	"fmt"

	"github.com/zeebo/blake3"

	"github.com/ringcache/ringcache/serde"
)

// tensor returns a any, not a *serde.Tensor, so that nil is nil.
func (d valueDecoder) tensor(raw rawJSON) any {
	var j tensorJSON
	if err := unmarshal(raw, &j); err != nil {
		d.fail("tensor: %w", err)
	}
	if j.Float != nil {
		f, ok := specialFloats[*j.Float]
		if !ok {
			d.fail("data: float %.40q, want nan, inf or -inf", *j.Float)
		}
		return f
	}
	if j.DType == nil || j.Shape == nil {
		d.fail("tensor: \"dtype\" and \"shape\" are needed")
	}
	dtype, ok := serde.ParseDType(*j.DType)
	if !ok {
		d.fail("tensor: unknown dtype %.40q", *j.DType)
	}
	t := &serde.Tensor{DType: dtype, Shape: j.Shape}
	n, err := t.NBytes()
	if err == nil && (!d.layout || j.XOF != nil) {
		if n > d.budget {
			err = invalidf("tensor of %d bytes, at most %d are left for this request", n, d.budget)
		}
		d.budget -= n
	}
	if err != nil {
		panic(refusal{err})
	}
	switch {
	case j.Hex != nil:
		t.Data = *j.Hex
		if len(t.Data) != n {
			d.fail("tensor: %d bytes of data, its shape needs %d", len(t.Data), n)
		}
	case j.XOF != nil:
		t.Data = xof(*j.XOF, n, dtype == "bool")
	case d.layout:
	default:
		d.fail("tensor: \"hex\" or \"xof\" is needed")
	}
	if t.Data != nil {
		if err := checkSum(t.Data, j.SHA256); err != nil {
			d.fail("tensor: %w", err)
		}
	}
	return t
}

// checkSum compares data with its sum in a request, if there is one.
func checkSum(data, want []byte) error {
	if want == nil {
		return nil
	}
	if sum := sha256.Sum256(data); !bytes.Equal(sum[:], want) {
		return fmt.Errorf("the data have the sha256 %x, not %x", sum, want)
	}
	return nil
}

// xof returns n bytes that depend on s only.
func xof(s string, n int, boolean bool) []byte {
	h := blake3.New()
	_, _ = h.WriteString(s)
	b := make([]byte, n)
	_, _ = h.Digest().Read(b) // a digest never fails or ends
	if boolean {
		for i := range b {
			b[i] &= 1
		}
	}
	return b
}
