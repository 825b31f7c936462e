// Package wiredoc reads the examples of docs/daemon.md, for tests that execute them.
//
// An example is a fenced block whose language is its kind, such as
//
//	```wire-request
//	{"id": 1, "op": "stat"}
//	0d000000 82 a2 6964 01   # a comment
//	a2 6f70 a4 73746174
//	varies: state.seconds
//	```
//
// First the message as JSON, on one or more lines, then its frame in hexadecimal, and in replies maybe the fields
// that vary between machines, with their paths without the numbers of elements.
package wiredoc

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// The kinds of examples. Requests and replies follow one another, but for what is alone.
const (
	Request = "wire-request"
	Refused = "wire-request-refused" // as a whole
	Reply   = "wire-reply"
	Alone   = "wire-reply-alone" // answers no request of the page
)

// Example is one message.
type Example struct {
	Kind   string
	Line   int    // of the page, from 1
	JSON   string // as on the page
	Frame  []byte
	Varies []string
	// First and Last are the lines of the frame, from 1, Last behind it.
	First, Last int
}

// Parse returns the examples of a page, in order.
func Parse(page string) ([]Example, error) {
	var out []Example
	var e *Example
	begun := false // the frame of e
	for i, line := range strings.Split(page, "\n") {
		n := i + 1
		kind, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && e == nil && strings.HasPrefix(kind, "wire-"):
			if kind != Request && kind != Refused && kind != Reply && kind != Alone {
				return nil, fmt.Errorf("line %d: no kind of example: %s", n, kind)
			}
			e, begun = &Example{Kind: kind, Line: n}, false
		case fence && e != nil:
			if e.Last = n; len(e.Varies) > 0 {
				e.Last--
			}
			if !begun {
				e.First = e.Last
			}
			out = append(out, *e)
			e = nil
		case e == nil:
		case !begun && !json.Valid([]byte(e.JSON)):
			e.JSON += line + "\n"
		case strings.HasPrefix(line, "varies: "):
			e.Varies = strings.Fields(line)[1:]
		default:
			if !begun {
				e.First, begun = n, true
			}
			digits, _, _ := strings.Cut(line, "#")
			b, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			e.Frame = append(e.Frame, b...)
		}
	}
	if e != nil {
		return nil, fmt.Errorf("line %d: the example has no end", e.Line)
	}
	return out, nil
}
