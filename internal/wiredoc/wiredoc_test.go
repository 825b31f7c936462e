package wiredoc

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	page := strings.ReplaceAll(`# A page
'''sh
wire-request
'''
'''wire-request
{"id": 1,
 "op": "stat"}
0d000000 82    # a comment
a2 6964 01
'''
'''wire-reply
{"id": 1}
05000000
81a2696401
varies: state.seconds items.offset
'''
'''wire-reply-alone
{"id": 2}
'''
`, "'''", "```")
	got, err := Parse(page)
	require.NoError(t, err)
	require.Equal(t, []Example{
		{Kind: Request, Line: 5, JSON: "{\"id\": 1,\n \"op\": \"stat\"}\n", Frame: []byte("\x0d\x00\x00\x00\x82\xa2id\x01"), First: 8, Last: 10},
		{Kind: Reply, Line: 11, JSON: "{\"id\": 1}\n", Frame: []byte("\x05\x00\x00\x00\x81\xa2id\x01"), Varies: []string{"state.seconds", "items.offset"}, First: 13, Last: 15},
		{Kind: Alone, Line: 17, JSON: "{\"id\": 2}\n", First: 19, Last: 19},
	}, got)
	for text, want := range map[string]string{
		"```wire-replay\n{}\n00\n```\n":       "line 1: no kind of example: wire-replay",
		"```wire-reply\n{}\n0x\n```\n":        "line 3: ",
		"\n```wire-reply\n{}\n00\n":           "line 2: the example has no end",
		"```wire-reply\n{}\n0\n```\n":         "line 3: ",
		"```wire-reply\n{}\n00 # x\n1\n```\n": "line 4: ",
	} {
		_, err := Parse(text)
		require.ErrorContains(t, err, want)
	}
}
