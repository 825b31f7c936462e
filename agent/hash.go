package agent

import (
	"encoding/json"
	"errors"
	"strconv"

	"github.com/ringcache/ringcache/mmhash"
)

func hashOps() map[string]operation {
	return map[string]operation{"hash": {"kwargs algorithm generation treat_as", hashKwargs}}
}

// The JSON form of a value to be hashed: exactly one of the fields.
type (
	hashJSON struct {
		Str     rawJSON    `json:"str"`
		Bytes   *hexBytes  `json:"bytes"`
		Int     *string    `json:"int"`
		Float   *string    `json:"float"`
		Bool    *bool      `json:"bool"`
		None    *bool      `json:"none"`
		List    []rawJSON  `json:"list"`
		Map     []rawJSON  `json:"map"`
		NDArray *denseJSON `json:"ndarray"`
		Tensor  *denseJSON `json:"tensor"`
		Image   *imageJSON `json:"image"`
		Media   *mediaJSON `json:"media"`
	}
	denseJSON struct {
		DType string   `json:"dtype"`
		Shape []int    `json:"shape"`
		Hex   hexBytes `json:"hex"`
	}
	imageJSON struct {
		Mode    string    `json:"mode"`
		Size    []int     `json:"size"`
		Hex     hexBytes  `json:"hex"`
		Palette *hexBytes `json:"palette"`
	}
	mediaJSON struct {
		Kind     string    `json:"kind"`
		Bytes    *hexBytes `json:"bytes"`
		IOConfig rawJSON   `json:"io_config"`
		EXIFUUID *string   `json:"exif_uuid"`
		Frames   rawJSON   `json:"frames"`
	}
)

func hashKwargs(p *params) (reply, error) {
	algorithm := optional(p, "algorithm", "blake3")
	if algorithm == "" {
		p.fail("unknown hash algorithm \"\", want blake3, sha256 or sha512")
	}
	d := hashDecoder{p}
	pairs := required[[]rawJSON](p, "kwargs")
	o := mmhash.Options{Generation: p.generation(), Algorithm: algorithm}
	args := d.entries("kwargs", pairs, 0)
	h, err := mmhash.NewHasher(o)
	if err != nil {
		return nil, err
	}
	hex, err := h.Hex(args...)
	return reply{"hex": hex}, err
}

type hashDecoder struct{ *params }

// entries decodes pairs of a name and a value.
func (d hashDecoder) entries(what string, pairs []rawJSON, depth int) []mmhash.Entry {
	out := []mmhash.Entry{}
	for _, raw := range pairs {
		var pair []rawJSON
		if err := unmarshal(raw, &pair); err != nil || len(pair) != 2 {
			d.fail("%s: %.80s, want a pair of a name and a value", what, raw)
		}
		out = append(out, mmhash.Entry{Key: d.text(pair[0]), Value: d.value(pair[1], depth)})
	}
	return out
}

func (d hashDecoder) text(raw rawJSON) string {
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		d.fail("%.80s: want a string", raw)
	}
	return *s
}

func (d hashDecoder) value(raw rawJSON, depth int) any {
	if depth > maxDepth {
		d.fail("value: nested more than %d deep", maxDepth)
	}
	var j hashJSON
	if err := unmarshal(raw, &j); err != nil {
		d.fail("value %.80s: %w", raw, err)
	}
	var found []any
	if j.Str != nil {
		found = append(found, d.text(j.Str))
	}
	if j.Bytes != nil {
		found = append(found, []byte(*j.Bytes))
	}
	if j.Int != nil {
		found = append(found, d.integer(*j.Int))
	}
	if j.Float != nil {
		found = append(found, d.float(*j.Float))
	}
	if j.Bool != nil {
		found = append(found, *j.Bool)
	}
	if j.None != nil {
		found = append(found, nil)
	}
	if j.List != nil {
		list := []any{}
		for _, part := range j.List {
			list = append(list, d.value(part, depth+1))
		}
		found = append(found, list)
	}
	if j.Map != nil {
		found = append(found, d.entries("map", j.Map, depth+1))
	}
	if a := j.NDArray; a != nil {
		found = append(found, &mmhash.Array{DType: a.DType, Shape: a.Shape, Data: d.dense(a)})
	}
	if a := j.Tensor; a != nil {
		found = append(found, &mmhash.Tensor{DType: a.DType, Shape: a.Shape, Data: d.dense(a)})
	}
	if j.Image != nil {
		found = append(found, d.image(j.Image))
	}
	if j.Media != nil {
		found = append(found, d.media(j.Media, depth))
	}
	if len(found) != 1 {
		d.fail("value %.80s: want an object with exactly one of str, bytes, int, float, bool, none, list, map, ndarray, tensor, image and media", raw)
	}
	return found[0]
}

func (d hashDecoder) dense(a *denseJSON) []byte {
	if a.Shape == nil {
		d.fail("array of %.20q: field \"shape\" is missing", a.DType)
	}
	return a.Hex
}

func (d hashDecoder) integer(s string) any {
	n := integer(s)
	if n != nil {
		return n
	}
	// invalid, as all numbers that are too large
	if _, err := strconv.ParseInt(s, 10, 64); errors.Is(err, strconv.ErrRange) {
		d.fail("the integer %.40s does not fit 64 bits; of such a number vLLM hashes a pointer, which never matches: pass it as text", s)
	}
	d.fail("%.40q is no decimal integer", s)
	return nil
}

// float reads what Python's float.hex writes, or its nan, inf and -inf.
func (d hashDecoder) float(s string) any {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		d.fail("float %.40q: want a number such as 0x1.8p+0, nan, inf or -inf", s)
	}
	return f
}
