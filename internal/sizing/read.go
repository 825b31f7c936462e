package sizing

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	maxLine    = 16 << 20 // bytes
	maxLookups = 1 << 26
)

// ReadTrace reads requests, one in each line, without hosts. A line has keys with blanks between them, each of
// which may have =BYTES behind it, once in the file; else the object has the given size. With chain each key is the child of the one in front of
// it. A line may instead be a JSON object with a list hash_ids, as in the public traces of Mooncake: such keys are
// always chains.
func ReadTrace(r io.Reader, bytes int64, chain bool) (*Trace, error) {
	t := &Trace{}
	ids := map[string]int32{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	n := 0
	for lines.Scan() {
		n++
		keys, isJSON, err := keysOf(lines.Text())
		if err == nil {
			err = t.add(ids, keys, bytes, chain || isJSON)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("line %d: it is longer than %d bytes", n+1, maxLine)
	case err != nil:
		return nil, err
	case len(t.Ends) < 2:
		return nil, fmt.Errorf("there are %d requests, and at least 2 are needed: one in each line", len(t.Ends))
	}
	return t, nil
}

// keysOf returns the keys of a line.
func keysOf(line string) (keys []string, isJSON bool, err error) {
	if !strings.HasPrefix(line, "{") {
		return strings.Fields(line), false, nil
	}
	var request struct {
		IDs []json.Number `json:"hash_ids"`
	}
	if err := json.Unmarshal([]byte(line), &request); err != nil {
		return nil, true, fmt.Errorf("it is no JSON object with a list hash_ids: %w", err)
	}
	if request.IDs == nil {
		return nil, true, errors.New("it has no list hash_ids")
	}
	for _, id := range request.IDs {
		keys = append(keys, id.String())
	}
	return keys, true, nil
}

// add adds a request. One without keys is left out.
func (t *Trace) add(ids map[string]int32, keys []string, bytes int64, chain bool) error {
	if len(t.Keys)+len(keys) > maxLookups {
		return fmt.Errorf("there are more than %d look-ups: take a part of the file", maxLookups)
	}
	parent := int32(none)
	for _, key := range keys {
		size := bytes
		key, text, sized := strings.Cut(key, "=")
		if sized {
			var err error
			if size, err = strconv.ParseInt(text, 10, 64); err != nil || size < 1 {
				return fmt.Errorf("%q behind %q is no number of bytes", text, key)
			}
		}
		id, known := ids[key]
		switch {
		case !known && size < 1:
			return fmt.Errorf("%q has no size: write KEY=BYTES, or give one size for all", key)
		case !known:
			id = int32(len(ids))
			ids[key] = id
			t.Bytes = append(t.Bytes, size)
			t.Parents = append(t.Parents, parent)
		case sized && size != t.Bytes[id]:
			return fmt.Errorf("%q has %d bytes, and had %d before", key, size, t.Bytes[id])
		case chain && parent != t.Parents[id]:
			return fmt.Errorf("%q does not stand behind the same key as before: the key of a chunk must differ if anything in front of it does", key)
		}
		t.Keys = append(t.Keys, id)
		if chain {
			parent = id
		}
	}
	if len(keys) > 0 {
		t.Ends = append(t.Ends, int32(len(t.Keys)))
	}
	return nil
}
