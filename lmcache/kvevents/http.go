package kvevents

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"

	"github.com/ringcache/ringcache/kv/directory"
)

// Bounds of a question.
const (
	maxBody   = 4 << 20
	maxBlocks = 1 << 17 // as many as the directory takes
)

type question struct {
	Model  string   `json:"model_name"`
	Hashes []string `json:"block_hashes"`
	Most   int      `json:"most"`
}

type reply struct {
	Blocks    int      `json:"blocks"`
	Instances []holder `json:"instances"`
}

type holder struct {
	Instance string         `json:"instance_id"`
	Blocks   int            `json:"blocks"`
	Places   map[string]int `json:"blocks_at"`
	Stale    bool           `json:"stale"`
}

// Handler answers, by POST, which instances hold the longest prefixes of blocks of a model. The hashes are in
// hexadecimal, whole or their last 8 bytes, as the engine has them: a router that has no Go computes them itself.
func Handler(d *directory.Directory) http.Handler {
	turns := make(chan struct{}, 8) // questions in memory
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		case <-q.Context().Done():
			return
		}
		var asked question
		body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxBody))
		if err == nil {
			err = json.Unmarshal(body, &asked)
		}
		var chain []directory.Key
		if err == nil {
			chain, err = asked.chain()
		}
		var b []byte
		status := http.StatusOK
		if err == nil {
			b, err = json.Marshal(answer(d, chain, asked.Most))
		}
		if err != nil {
			status = http.StatusUnprocessableEntity
			b, _ = json.Marshal(map[string]string{"detail": err.Error()}) // texts can be encoded
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(b) // a client that went away
	})
}

func (q question) chain() ([]directory.Key, error) {
	if len(q.Hashes) > maxBlocks || q.Most < 0 {
		return nil, invalid("%d hashes, and most is %d", len(q.Hashes), q.Most)
	}
	chain := make([]directory.Key, len(q.Hashes))
	for i, text := range q.Hashes {
		h, err := hex.DecodeString(text)
		if err != nil || len(h) < 8 {
			return nil, invalid("hash %d has no 8 bytes of hexadecimal", i)
		}
		chain[i] = keyOf(q.Model, 0, h[len(h)-8:])
	}
	return chain, nil
}

func answer(d *directory.Directory, chain []directory.Key, most int) reply {
	r := reply{Blocks: len(chain), Instances: []holder{}}
	for _, p := range d.Find(chain, directory.Query{Most: most}) {
		h := holder{Instance: p.Instance, Blocks: p.Chunks, Places: map[string]int{}, Stale: p.Stale}
		for _, at := range p.Places {
			h.Places[at.Location] = at.Chunks
		}
		r.Instances = append(r.Instances, h)
	}
	return r
}
