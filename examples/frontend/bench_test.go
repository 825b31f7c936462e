package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkRead is the body of a request of 2000 tokens.
func BenchmarkRead(b *testing.B) {
	prompt := make([]uint32, 2000)
	for i := range prompt {
		prompt[i] = uint32(i * 61)
	}
	body, err := json.Marshal(map[string]any{"prompt_token_ids": prompt, "params": map[string]any{"max_tokens": 8, "temperature": 0.5}})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		q, err := read(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(body))))
		if err != nil || len(q.Prompt) != len(prompt) {
			b.Fatal(len(q.Prompt), err)
		}
	}
}
