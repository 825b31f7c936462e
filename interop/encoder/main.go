// Command encoder is the Go half of the interop tests of encoder outputs: it does what the lines
// of JSON on its input ask for, with packages encoder, encoder/safetensors and tier/disk, and
// writes an answer for each. Bytes are in base64.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/ringcache/ringcache/encoder"
	"github.com/ringcache/ringcache/encoder/safetensors"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
)

type request struct {
	Op       string            `json:"op"`
	Files    [][]byte          `json:"files"`    // parse
	Metadata map[string]string `json:"metadata"` // header
	Tensors  []tensor          `json:"tensors"`  // header, save
	Level    string            `json:"level"`    // the name of an open level
	Folder   string            `json:"folder"`
	Tree     bool              `json:"tree"` // open: vLLM's tree, not the native layout
	Plain    bool              `json:"plain"`
	Names    []string          `json:"names"` // load
}

type tensor struct {
	Name   string `json:"name"`
	DType  string `json:"dtype"`
	Shape  []int  `json:"shape"`
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
	Data   []byte `json:"data,omitempty"`
	Error  string `json:"error,omitempty"`
}

type reply struct {
	Error    string            `json:"error,omitempty"`
	Files    []parsed          `json:"files,omitempty"`
	Head     []byte            `json:"head,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Tensors  []tensor          `json:"tensors,omitempty"`
}

type parsed struct {
	Error    string            `json:"error,omitempty"`
	Metadata map[string]string `json:"metadata"`
	Tensors  []tensor          `json:"tensors"`
}

// space is that of all keys.
const space = "interop"

type program struct{ levels map[string]*disk.Level }

func main() {
	p := program{levels: make(map[string]*disk.Level)}
	if err := p.run(bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, "encoder:", err)
		os.Exit(1)
	}
}

func (p program) run(in io.Reader, out *json.Encoder) error {
	for requests := json.NewDecoder(in); ; {
		var r request
		if err := requests.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		answer, err := p.do(context.Background(), r)
		if err != nil {
			answer.Error = err.Error()
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
}

func (p program) do(ctx context.Context, r request) (reply, error) {
	switch r.Op {
	case "parse":
		return reply{Files: parse(r.Files)}, nil
	case "header":
		return header(r)
	case "open":
		return reply{}, p.open(ctx, r)
	}
	l, ok := p.levels[r.Level]
	if !ok {
		return reply{}, fmt.Errorf("no level %q", r.Level)
	}
	tree := encoder.Tree{Plain: r.Plain}
	switch r.Op {
	case "close":
		delete(p.levels, r.Level)
		return reply{}, l.Close()
	case "save":
		return save(ctx, l, r.Tensors), nil
	case "load":
		return load(ctx, l, r.Names), nil
	case "list":
		return list(ctx, l)
	case "import":
		return copied(tree.Import(ctx, r.Folder, space, l)), nil
	case "export":
		return copied(tree.Export(ctx, l, space, r.Folder)), nil
	}
	return reply{}, fmt.Errorf("no operation %q", r.Op)
}

func parse(files [][]byte) []parsed {
	out := make([]parsed, len(files))
	for i, b := range files {
		h, err := safetensors.Parse(b)
		if err != nil {
			out[i].Error = err.Error()
			continue
		}
		out[i].Metadata, out[i].Tensors = h.Metadata, describe(h.Tensors)
	}
	return out
}

func describe(tensors []safetensors.Tensor) []tensor {
	out := make([]tensor, len(tensors))
	for i, t := range tensors {
		out[i] = tensor{Name: t.Name, DType: string(t.DType), Shape: t.Shape, Offset: t.Offset, Size: t.Size}
	}
	return out
}

func header(r request) (reply, error) {
	tensors := make([]safetensors.Tensor, len(r.Tensors))
	for i, t := range r.Tensors {
		tensors[i] = safetensors.Tensor{Name: t.Name, DType: safetensors.DType(t.DType), Shape: t.Shape}
	}
	head, err := safetensors.AppendHeader(nil, r.Metadata, tensors)
	return reply{Head: head, Tensors: describe(tensors)}, err
}

func (p program) open(ctx context.Context, r request) error {
	o := disk.Options{Space: space}
	if r.Tree {
		o.Layout, o.Shared = encoder.Tree{Plain: r.Plain}, true
	}
	l, err := disk.Open(r.Folder, o)
	if err != nil {
		return err
	}
	p.levels[r.Level] = l
	return l.WaitIndex(ctx)
}

func save(ctx context.Context, l tier.Level, tensors []tensor) (out reply) {
	for _, t := range tensors {
		o := tier.Object{Key: tier.Key{Space: space, Name: t.Name}, Tenant: "interop", Cost: 1}
		err := encoder.Save(ctx, l, o, &serde.Tensor{DType: serde.DType(t.DType), Shape: t.Shape, Data: t.Data})
		out.Tensors = append(out.Tensors, tensor{Name: t.Name, Error: text(err)})
	}
	return out
}

func load(ctx context.Context, l tier.Level, names []string) (out reply) {
	for _, name := range names {
		answer := tensor{Name: name}
		t, err := encoder.Load(ctx, l, tier.Key{Space: space, Name: name})
		if answer.Error = text(err); err == nil {
			answer.DType, answer.Shape, answer.Data = string(t.DType), t.Shape, t.Data
		}
		out.Tensors = append(out.Tensors, answer)
	}
	return out
}

func list(ctx context.Context, l tier.Level) (out reply, err error) {
	for o, err := range l.List(ctx, space) {
		if err != nil {
			return out, err
		}
		out.Tensors = append(out.Tensors, tensor{Name: o.Name, DType: string(o.Note), Size: o.Size})
	}
	return out, nil
}

func copied(seq func(func(tier.Object, error) bool)) (out reply) {
	for o, err := range seq {
		out.Tensors = append(out.Tensors, tensor{Name: o.Name, Error: text(err)})
	}
	return out
}

// text names the errors that tests ask for.
func text(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, tier.ErrExists):
		return "exists"
	case errors.Is(err, tier.ErrCorrupt):
		return "corrupt"
	case errors.Is(err, tier.ErrNotFound):
		return "not found"
	case errors.Is(err, fs.ErrInvalid):
		return "invalid"
	}
	return err.Error()
}
