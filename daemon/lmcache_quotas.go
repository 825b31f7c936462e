package daemon

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/ringcache/ringcache/daemon/internal/lmcache"
	"github.com/ringcache/ringcache/tier"
)

// noSalt is how LMCache writes the salt of requests without one in a path.
const noSalt = "_default"

// gigabyte is what LMCache calls a GB.
const gigabyte = 1 << 30

// handleQuotas answers the paths of quotas by salt. See docs/operations.md, "In place of lmcache server".
func (r *runner) handleQuotas(mux *http.ServeMux) {
	for pattern, answer := range map[string]func(salt string, q *http.Request) (int, map[string]any){
		"GET /quota":           r.listQuotas,
		"GET /quota/{salt}":    r.getQuota,
		"PUT /quota/{salt}":    r.putQuota,
		"DELETE /quota/{salt}": r.deleteQuota,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, q *http.Request) {
			if err := r.serving(); err != nil {
				replyJSON(w, http.StatusServiceUnavailable, map[string]any{"error": err.Error()})
				return
			}
			salt := q.PathValue("salt")
			if salt == noSalt {
				salt = ""
			}
			status, v := answer(salt, q)
			replyJSON(w, status, v)
		})
	}
}

// quotaRefused is an error as LMCache's server words it.
func quotaRefused(status int, text string) (int, map[string]any) {
	return status, map[string]any{"error": text}
}

// inGB is a quota in an answer: null is no bound, where 0 would be nothing for a tool of LMCache.
func inGB(bytes int64) any {
	if bytes == 0 {
		return nil
	}
	return float64(bytes) / gigabyte
}

func (r *runner) listQuotas(string, *http.Request) (int, map[string]any) {
	_, configured, byHTTP := r.levels.boundedQuotas()
	used := r.levels.bounded().Usage().Tenants
	users := map[string]any{}
	for _, quotas := range []map[string]int64{configured, byHTTP} {
		for salt, n := range quotas {
			users[salt] = map[string]any{"limit_gb": inGB(n), "current_usage_gb": float64(used[salt]) / gigabyte}
		}
	}
	return http.StatusOK, map[string]any{"users": users}
}

func (r *runner) getQuota(salt string, _ *http.Request) (int, map[string]any) {
	each, configured, byHTTP := r.levels.boundedQuotas()
	n, exists := byHTTP[salt]
	if !exists {
		n, exists = configured[salt]
	}
	if !exists && salt != "" {
		n = each
	}
	level := r.levels.bounded()
	return http.StatusOK, map[string]any{
		"cache_salt": inPath(salt), "limit_gb": inGB(n), "exists": exists,
		"current_usage_gb": float64(level.Usage().Tenants[salt]) / gigabyte, "level": level.Name(),
	}
}

// inPath is a salt as paths have it.
func inPath(salt string) string {
	if salt == "" {
		return noSalt
	}
	return salt
}

func (r *runner) putQuota(salt string, q *http.Request) (int, map[string]any) {
	var body struct {
		Limit *float64 `json:"limit_gb"`
	}
	text, err := io.ReadAll(io.LimitReader(q.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	switch {
	case err != nil:
		return quotaRefused(http.StatusBadRequest, `the body is not {"limit_gb": NUMBER}: `+err.Error())
	case body.Limit == nil:
		return quotaRefused(http.StatusBadRequest, `the body has no limit_gb: it is to be {"limit_gb": NUMBER}`)
	case *body.Limit < 0 || *body.Limit >= math.MaxInt64/gigabyte:
		return quotaRefused(http.StatusBadRequest, "limit_gb is below 0, or more than there can be")
	case *body.Limit*gigabyte < 1:
		return quotaRefused(http.StatusBadRequest, "a quota of nothing is not supported: `ringcache kv clear --salt` deletes what a salt has")
	case salt == "":
		return quotaRefused(http.StatusBadRequest, "requests without a salt have no quota here")
	case len(salt) > tier.MaxTenant || strings.ContainsRune(salt, 0) || !utf8.ValidString(salt): // as JSON can keep it
		return quotaRefused(http.StatusBadRequest, "quotas are of salts in UTF-8, of at most 255 bytes, without zero bytes")
	}
	err = r.lmcache.server.SetQuota(r.levels.bounded().Name(), salt, int64(*body.Limit*gigabyte))
	if errors.Is(err, lmcache.ErrQuotas) {
		return quotaRefused(http.StatusBadRequest, err.Error())
	}
	r.levels.setByHTTP(r.lmcache.server.Quotas)
	if err != nil {
		return quotaNotKept(err)
	}
	return http.StatusOK, map[string]any{"cache_salt": inPath(salt), "limit_gb": *body.Limit, "status": "ok"}
}

// quotaNotKept is the answer when the file can't be written.
func quotaNotKept(err error) (int, map[string]any) {
	return quotaRefused(http.StatusInternalServerError,
		"this is in force, and after a restart the quota is as before, since it can't be written: "+err.Error())
}

func (r *runner) deleteQuota(salt string, _ *http.Request) (int, map[string]any) {
	removed, err := r.lmcache.server.RemoveQuota(r.levels.bounded().Name(), salt)
	if removed {
		r.levels.setByHTTP(r.lmcache.server.Quotas)
	}
	_, configured, _ := r.levels.boundedQuotas()
	status := "not_found"
	switch {
	case err != nil:
		return quotaNotKept(err)
	case removed:
		status = "removed"
	case has(configured, salt):
		return quotaRefused(http.StatusConflict, "this quota is of the daemon's settings: change quotas or disk-quotas there, and reload")
	}
	return http.StatusOK, map[string]any{"cache_salt": inPath(salt), "status": status}
}

func has(quotas map[string]int64, salt string) bool {
	_, ok := quotas[salt]
	return ok
}
