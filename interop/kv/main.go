// Command kv is the Go half of the interop test of package kv: each line of JSON on its input is a case with
// what LMCache made of it. It writes how many cases were equal and how many both refused, and the first that
// differ, and ends with status 1 if any does.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/ringcache/ringcache/internal/flowreplay"
	"github.com/ringcache/ringcache/kv"
)

type tested struct {
	Kind string // chain, database, flow, object, engine, or a text to parse: parse_file, parse_engine
	// A chain, which grows from the first Cut tokens to all.
	Algorithm kv.Algorithm
	Chunk     int
	Legacy    bool
	Tail      bool
	Tokens    []int64
	Cut       int
	Hashes    []string
	// A request of a token database, of worker 1 of 2. Hashes are the chunks: start, end and key. nil is a refusal.
	MLA       bool
	Separator []int64
	Skip      int
	Options   string
	// Calls of a scheduler.
	Flow json.RawMessage
	// A key. Text is empty if LMCache refuses it, or can't read its own text again.
	Hash, Model, Salt, Text, File string
	Rank, Group                   uint32
	World, Worker                 int
	DType                         string
	Layer                         *int
	Tags                          []kv.Tag
	// A text to parse. Text is what LMCache writes for the key that it reads.
	Input string
}

func main() {
	equal, refused, differ := map[string]int{}, map[string]int{}, 0
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		var c tested
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			fmt.Fprintln(os.Stderr, "kv:", err)
			os.Exit(2)
		}
		got, want, err := c.run()
		switch {
		case slices.Equal(got, want) && want == nil:
			refused[c.Kind]++
		case slices.Equal(got, want):
			equal[c.Kind]++
		default:
			if differ++; differ <= 5 {
				fmt.Printf("differs: %s: here %q (%v), LMCache %q\n", in.Text(), got, err, want)
			}
		}
	}
	if err := in.Err(); err != nil {
		fmt.Fprintln(os.Stderr, "kv:", err)
		os.Exit(2)
	}
	fmt.Println("equal", equal, "refused by both", refused, "different", differ)
	if differ > 0 {
		os.Exit(1)
	}
}

// run returns what is here and what is LMCache's. nil is a refusal.
func (c tested) run() (got, want []string, err error) {
	switch c.Kind {
	case "chain":
		got, err = c.chain()
		return got, c.Hashes, err
	case "database":
		got, err = c.database()
		return got, c.Hashes, err
	case "flow":
		if _, err := flowreplay.Check(c.Flow); err != nil {
			return nil, []string{"as replayed"}, err
		}
		return []string{"equal"}, []string{"equal"}, nil
	case "object":
		hash, err := hex.DecodeString(c.Hash)
		if err != nil {
			return nil, nil, err
		}
		k := kv.ObjectKey{Hash: hash, Model: c.Model, Rank: kv.Rank(c.Rank), Group: c.Group, Salt: c.Salt}
		text, err := k.AppendText(nil)
		if err != nil {
			return nil, wanted(c.Text, c.File), err
		}
		name, err := k.FileName()
		if err != nil {
			return []string{string(text)}, wanted(c.Text, c.File), err
		}
		return []string{string(text), name}, wanted(c.Text, c.File), nil
	case "engine":
		k := kv.EngineKey{Model: c.Model, World: c.World, Worker: c.Worker, Hash: c.Hash, DType: c.DType, Tags: c.Tags}
		if c.Layer != nil {
			k.Layered, k.Layer = true, *c.Layer
		}
		text, err := k.AppendText(nil)
		return given(string(text), err), wanted(c.Text), err
	case "parse_file":
		k, err := kv.ParseFileName(c.Input)
		if err != nil {
			return nil, wanted(c.Text), err
		}
		text, err := k.FileName()
		return given(text, err), wanted(c.Text), err
	case "parse_engine":
		k, err := kv.ParseEngineKey(c.Input)
		if err != nil {
			return nil, wanted(c.Text), err
		}
		text, err := k.AppendText(nil)
		return given(string(text), err), wanted(c.Text), err
	}
	return nil, nil, fmt.Errorf("no kind %q", c.Kind)
}

func (c tested) database() ([]string, error) {
	h, err := kv.NewHasher(kv.Scheme{
		Algorithm: c.Algorithm, ChunkTokens: c.Chunk, Seed: "0", Legacy: true, KeepTail: c.Tail,
	})
	if err != nil {
		return nil, err
	}
	worker := kv.EngineKey{Model: "org/m", World: 2, Worker: 1, DType: "bfloat16"}
	if c.MLA {
		worker.World = 1
	}
	d, err := kv.NewTokenDatabase(h, worker)
	if len(c.Separator) > 0 {
		d, err = kv.NewSegmentDatabase(h, worker, c.Separator)
	}
	if err != nil {
		return nil, err
	}
	tags, err := kv.ParseTags([]byte(c.Options))
	if err != nil {
		return nil, err
	}
	chunks, err := d.Chunks(c.Tokens, c.Skip, tags)
	if err != nil {
		return nil, err
	}
	out := []string{}
	for _, chunk := range chunks {
		text, err := chunk.Key.AppendText(nil)
		if err != nil {
			return nil, err
		}
		out = append(out, fmt.Sprint(chunk.Start, " ", chunk.End, " ", string(text)))
	}
	return out, nil
}

func (c tested) chain() ([]string, error) {
	s := kv.Scheme{Algorithm: c.Algorithm, ChunkTokens: c.Chunk, Legacy: c.Legacy, KeepTail: c.Tail}
	if c.Algorithm != kv.BLAKE3 {
		s.Seed = "0"
	}
	h, err := kv.NewHasher(s)
	if err != nil {
		return nil, err
	}
	packed, err := kv.AppendTokens(nil, c.Tokens)
	if err != nil {
		return nil, err
	}
	chain := h.NewChain()
	if err := chain.SetTokens(c.Tokens[:c.Cut]); err != nil {
		return nil, err
	}
	if err := chain.Set(packed); err != nil {
		return nil, err
	}
	out := make([]string, chain.Len())
	for i := range out {
		out[i] = h.Text(chain.Hash(i))
	}
	return out, nil
}

func given(text string, err error) []string {
	if err != nil {
		return nil
	}
	return []string{text}
}

// wanted leaves out what is empty.
func wanted(texts ...string) (out []string) {
	for _, t := range texts {
		if t != "" {
			out = append(out, t)
		}
	}
	return out
}
