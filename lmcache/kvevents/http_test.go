package kvevents

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/kv/directory"
)

// TestHandler: who holds the blocks of a model, by whole hashes and by their ends; what is wrong is refused.
func TestHandler(t *testing.T) {
	d := directory.New(directory.Options{})
	require.NoError(t, d.Register(directory.Worker{ID: directory.ID{Instance: "i"}}))
	require.NoError(t, apply(d, Source{Instance: "i", Model: "m"},
		[]event{{kind: stored, medium: "GPU", hashes: [][8]byte{{7: 1}, {7: 2}}}}))
	for body, want := range map[string]string{
		`{"model_name": "m", "block_hashes": ["0000000000000001", "ff0000000000000002", "0000000000000003"]}`: `
				{"blocks": 3, "instances": [
					{"instance_id": "i", "blocks": 2, "blocks_at": {"GPU": 2}, "stale": false}]}`,
		`{"model_name": "other", "block_hashes": ["0000000000000001"]}`: `{"blocks": 1, "instances": []}`,
		`{"block_hashes": ["01"]}`:                                      "",
		`{"block_hashes": ["x000000000000001"]}`:                        "",
		`{"most": -1}`:                                                  "",
		`[`:                                                             "",
		strings.Repeat(" ", maxBody+1):                                  "",
	} {
		w := httptest.NewRecorder()
		Handler(d).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
		if want == "" {
			require.Equal(t, http.StatusUnprocessableEntity, w.Code, "%.40s", body)
			continue
		}
		require.JSONEq(t, want, w.Body.String())
	}
}
