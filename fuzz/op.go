package fuzz

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Op is one operation of the agent's protocol.
type Op struct {
	// ID names the operation in its sequence, so that a [Ref] still means the same after
	// operations in front were left out. 0 if nothing refers to it.
	ID   int
	Name string // "ring.alloc"
	// Args are the fields besides op: values that encoding/json writes, and Refs, at any
	// depth of []any and map[string]any.
	Args map[string]any
}

// Ref stands for a field of the reply to an earlier operation.
type Ref struct {
	Op    int    // its ID
	Field string // of its reply
	// Else is the value if that operation was refused or is not in the sequence. In a list, an
	// element whose value is nil is left out.
	Else any
}

// Resolve returns the operation with a value for every Ref, from the replies by ID.
func (op Op) Resolve(replies map[int]Reply) Op {
	args := make(map[string]any, len(op.Args))
	for name, v := range op.Args {
		args[name] = resolve(v, replies)
	}
	return Op{ID: op.ID, Name: op.Name, Args: args}
}

func resolve(v any, replies map[int]Reply) any {
	switch v := v.(type) {
	case Ref:
		if r, ok := replies[v.Op]; ok && r.Kind == "" {
			if x, ok := r.Fields[v.Field]; ok {
				return x
			}
		}
		return v.Else
	case []any:
		out := make([]any, 0, len(v))
		for _, x := range v {
			if r := resolve(x, replies); r != nil || x == nil {
				out = append(out, r)
			}
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, x := range v {
			out[name] = resolve(x, replies)
		}
		return out
	}
	return v
}

// Line returns the operation as a line of the agent's protocol, without the line end. A Ref
// that was not resolved is written as an object {"ref": [ID, field, else]}, and an ID as the
// field seq; [Parse] reads both.
func (op Op) Line() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"op":%q`, op.Name)
	if op.ID != 0 {
		fmt.Fprintf(&b, `,"seq":%d`, op.ID)
	}
	for _, name := range slices.Sorted(maps.Keys(op.Args)) {
		value, err := marshal(op.Args[name])
		if err != nil {
			panic(fmt.Sprintf("fuzz: field %s of %s can't be written as JSON: %v", name, op.Name, err))
		}
		fmt.Fprintf(&b, `,%q:%s`, name, value)
	}
	b.WriteByte('}')
	return b.String()
}

// MarshalJSON writes a reference that was not resolved.
func (r Ref) MarshalJSON() ([]byte, error) {
	return marshal(map[string]any{"ref": []any{r.Op, r.Field, r.Else}})
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// Format returns operations as lines, each with its end.
func Format(ops []Op) string {
	var b strings.Builder
	for _, op := range ops {
		b.WriteString(op.Line())
		b.WriteByte('\n')
	}
	return b.String()
}

// Parse reads what Format wrote, or lines that people wrote. Empty lines, and those that begin
// with #, are skipped.
func Parse(text string) ([]Op, error) {
	var ops []Op
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		var args map[string]any
		if err := decode([]byte(line), &args); err != nil {
			return nil, fmt.Errorf("fuzz: line %d is no operation: %w", n+1, err)
		}
		op := Op{Args: args}
		var ok bool
		if op.Name, ok = args["op"].(string); !ok {
			return nil, fmt.Errorf("fuzz: line %d: the field op is missing or no string", n+1)
		}
		if id, there := args["seq"]; there {
			number, ok := id.(int64)
			if !ok || number <= 0 || number != int64(int(number)) {
				return nil, fmt.Errorf("fuzz: line %d: seq %v is not a number above 0", n+1, id)
			}
			op.ID = int(number)
		}
		delete(args, "op")
		delete(args, "seq")
		for name, v := range args {
			args[name] = references(v)
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// references turns what Ref.MarshalJSON wrote into a Ref again.
func references(v any) any {
	switch v := v.(type) {
	case []any:
		for i, x := range v {
			v[i] = references(x)
		}
	case map[string]any:
		if parts, ok := v["ref"].([]any); ok && len(v) == 1 && len(parts) == 3 {
			id, isNumber := parts[0].(int64)
			field, isText := parts[1].(string)
			if isNumber && isText {
				return Ref{Op: int(id), Field: field, Else: references(parts[2])}
			}
		}
		for name, x := range v {
			v[name] = references(x)
		}
	}
	return v
}

// decode reads JSON, integers as int64.
func decode(text []byte, to *map[string]any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(to); err != nil {
		return err
	}
	if d.More() {
		return fmt.Errorf("more than one value")
	}
	for name, v := range *to {
		(*to)[name] = numbers(v)
	}
	return nil
}

func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i, x := range v {
			v[i] = numbers(x)
		}
	case map[string]any:
		for name, x := range v {
			v[name] = numbers(x)
		}
	}
	return v
}
