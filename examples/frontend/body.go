package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"
)

// What a body may have is bounded while it is read: decoded at once, three bytes of
// JSON can become a hundred in memory.
const (
	maxBody   = 64 << 20
	maxImages = 16
	maxTokens = 1 << 20 // of the prompt; the engine has a smaller limit of its own
	maxValues = 1 << 16 // in the parameters, at all depths
	maxDepth  = 16
	// maxSequences is what "n" may be: each of them is a request of its own for the engine.
	maxSequences = 16
	// bodyCost is what a byte of a body takes while it is decoded: an image is in the
	// decoder's buffer, which doubles as it grows, and decoded from base64.
	bodyCost = 4
	// bodyWait is how long a request waits for the memory of its body.
	bodyWait = 10 * time.Second
)

// acquireBody waits until there is memory for the body of a request. The caller calls
// release when nothing uses the body any more.
func (s *server) acquireBody(r *http.Request) (release func(), err error) {
	length := r.ContentLength
	if length < 0 || length > maxBody { // unknown, or too long: reading stops there
		length = maxBody
	}
	ctx, cancel := context.WithTimeout(r.Context(), bodyWait)
	defer cancel()
	if err := s.bodies.Acquire(ctx, bodyCost*length); err != nil {
		return nil, fmt.Errorf("the server is busy: waiting for memory for the body: %w", err)
	}
	return func() { s.bodies.Release(bodyCost * length) }, nil
}

// read decodes the body of a request, element by element but for the tokens.
func read(w http.ResponseWriter, r *http.Request) (ask, error) {
	d := bodyDecoder{Decoder: json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))}
	d.UseNumber()
	q, err := d.ask()
	if n, ok := q.Params["n"].(int64); err == nil && ok && n > maxSequences {
		err = fmt.Errorf("n is %d, at most %d", n, maxSequences)
	}
	if err != nil {
		return ask{}, badRequest{err}
	}
	return q, nil
}

type bodyDecoder struct {
	*json.Decoder
	values int // of the parameters
}

func (d *bodyDecoder) ask() (q ask, err error) {
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return q, errors.Join(errors.New("want a JSON object"), err)
	}
	err = d.members(func(name string) error {
		switch name {
		case "prompt_token_ids":
			return d.Decode((*tokenIDs)(&q.Prompt))
		case "images":
			return d.list(func() error {
				if len(q.Images) == maxImages {
					return fmt.Errorf("more than %d images", maxImages)
				}
				file, err := element[[]byte](d)
				q.Images = append(q.Images, file)
				return err
			})
		case "eos_token_id":
			return d.Decode(&q.EOS)
		case "params":
			v, err := d.value(0)
			if params, ok := v.(map[string]any); ok {
				q.Params = params
			} else if v != nil && err == nil {
				return errors.New("want an object")
			}
			return err
		}
		return errors.New("unknown field; known are prompt_token_ids, images, params and eos_token_id")
	})
	if err != nil {
		return q, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return q, errors.Join(errors.New("there is more behind the object"), err)
	}
	return q, nil
}

// tokenIDs are decoded at one go, since there are thousands: one at a time, encoding/json
// takes six pieces of memory for each.
type tokenIDs []uint32

// UnmarshalJSON is called by encoding/json, with one value that is valid JSON.
func (t *tokenIDs) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	if b[0] != '[' {
		return errors.New("want a list")
	}
	list := make([]uint32, 0, min(bytes.Count(b, []byte(","))+1, maxTokens))
	for b = space(b[1:]); b[0] != ']'; b = space(b) {
		if len(list) == maxTokens {
			return fmt.Errorf("more than %d tokens", maxTokens)
		}
		n, digits := uint64(0), 0
		for ; '0' <= b[digits] && b[digits] <= '9' && n <= math.MaxUint32; digits++ {
			n = 10*n + uint64(b[digits]-'0')
		}
		b = space(b[digits:])
		if digits == 0 || n > math.MaxUint32 || b[0] != ',' && b[0] != ']' {
			return fmt.Errorf("element %d is no token: want an integer of 0 to %d", len(list), uint32(math.MaxUint32))
		}
		list = append(list, uint32(n))
		if b[0] == ',' {
			b = b[1:]
		}
	}
	*t = list
	return nil
}

// space returns what is behind the white space of JSON.
func space(b []byte) []byte {
	for b[0] == ' ' || b[0] == '\n' || b[0] == '\t' || b[0] == '\r' {
		b = b[1:]
	}
	return b
}

// members reads an object whose beginning was read. each reads the value of a name.
func (d *bodyDecoder) members(each func(name string) error) error {
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string) // the decoder allows nothing else
		if seen[name] {
			return fmt.Errorf("%.40q: the field is there twice", name)
		}
		seen[name] = true
		if err := each(name); err != nil {
			return fmt.Errorf("%.40q: %w", name, err)
		}
	}
	_, err := d.Token() // the end, or what is wrong
	return err
}

// list reads a list, or null. each reads an element.
func (d *bodyDecoder) list(each func() error) error {
	t, err := d.Token()
	switch {
	case err != nil || t == nil:
		return err
	case t != json.Delim('['):
		return errors.New("want a list")
	}
	for d.More() {
		if err := each(); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// element reads a value that is not null.
func element[T any](d *bodyDecoder) (v T, err error) {
	var p *T
	if err := d.Decode(&p); err != nil {
		return v, err
	}
	if p == nil {
		return v, errors.New("null in a list")
	}
	return *p, nil
}

// value reads any value of the parameters.
func (d *bodyDecoder) value(depth int) (any, error) {
	if d.values++; d.values > maxValues {
		return nil, fmt.Errorf("more than %d values", maxValues)
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxDepth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Number:
		return number(t)
	case json.Delim:
		if t == '[' {
			list := []any{}
			for d.More() {
				v, err := d.value(depth + 1)
				if err != nil {
					return nil, err
				}
				list = append(list, v)
			}
			_, err := d.Token()
			return list, err
		}
		object := map[string]any{}
		return object, d.members(func(name string) (err error) {
			object[name], err = d.value(depth + 1)
			return err
		})
	}
	return t, nil
}

// params are parameters in a file, decoded as those of a body.
type params map[string]any

// UnmarshalJSON is called by encoding/json.
func (p *params) UnmarshalJSON(b []byte) error {
	d := bodyDecoder{Decoder: json.NewDecoder(bytes.NewReader(b))}
	d.UseNumber()
	v, err := d.value(0)
	if m, ok := v.(map[string]any); ok {
		*p = m
	}
	return err
}

// number makes a number of what JSON had: a whole one where it is whole, since vLLM
// distinguishes them.
func number(n json.Number) (any, error) {
	if i, err := n.Int64(); err == nil {
		return i, nil
	}
	return n.Float64()
}
