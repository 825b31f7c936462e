package daemon

import (
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/lmcache"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/tier"
)

// handleLMCache answers the paths of LMCache's own server that mean the same here.
// See docs/operations.md, "In place of lmcache server".
func (r *runner) handleLMCache(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", toPage(func(w http.ResponseWriter, _ *http.Request) {
		replyJSON(w, http.StatusOK, map[string]any{"status": "ok", "service": "ringcache"})
	}))
	mux.HandleFunc("GET /healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := r.ready(); err != nil {
			replyJSON(w, http.StatusServiceUnavailable, map[string]any{"status": "unhealthy", "reason": err.Error()})
			return
		}
		replyJSON(w, http.StatusOK, map[string]any{"status": "healthy"})
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		if err := r.serving(); err != nil {
			replyJSON(w, http.StatusServiceUnavailable, map[string]any{"error": err.Error()})
			return
		}
		replyJSON(w, http.StatusOK, r.lmcacheStatus())
	})
	mux.HandleFunc("POST /cache/clear", r.clearKV)
	r.handleQuotas(mux)
}

// lmcacheStatus is what /status answers.
func (r *runner) lmcacheStatus() map[string]any {
	n, workers := r.lmcache.server.Counts(), r.lmcache.server.Workers()
	ids, meta := []int64{}, map[string]any{}
	for _, w := range workers {
		ids = append(ids, w.ID)
		meta[w.Name()] = map[string]any{
			"model_name": w.Model, "world_size": w.World, "block_size": w.Block, "use_mla": w.MLA,
		}
	}
	_, err := r.ready()
	storage := map[string]any{}
	lower := []any{}
	all := err == nil
	for i, l := range r.levels.store.State().Levels {
		u := l.Usage
		if i == 0 {
			storage["l1_manager"] = map[string]any{
				"is_healthy": err == nil, "total_object_count": u.Objects, "memory_used_bytes": u.Bytes,
				"memory_total_bytes":      u.Capacity,
				"memory_configured_bytes": u.Capacity, "memory_usage_ratio": ratio(u),
				"read_ttl_seconds":  lmcache.LockTime.Seconds(),
				"write_ttl_seconds": (lmcache.LockTime + tier.WriteTime).Seconds(),
			}
			storage["l1_usage"] = []int64{u.Bytes, u.Capacity}
			continue
		}
		all = all && !l.Away
		level := map[string]any{"is_healthy": !l.Away, "type": l.Name}
		if u.Bytes >= 0 {
			level["current_size_bytes"] = u.Bytes
		}
		if u.Capacity > 0 {
			level["max_capacity_bytes"] = u.Capacity
		}
		lower = append(lower, level)
	}
	storage["is_healthy"], storage["l2_adapters"], storage["num_l2_adapters"] = all, lower, len(lower)
	return map[string]any{
		"is_healthy": all, "engine_type": "ringcache", "chunk_size": r.lmcache.server.ChunkSize(),
		"hash_algorithm":  "blake3",
		"active_sessions": n.Requests, "active_prefetch_jobs": n.Pending, "storage_manager": storage,
		"kv_events":                        map[string]any{"enabled": true, "log_depth": n.Events},
		"registered_non_cuda_instance_ids": ids, "non_cuda_context_meta": meta,
	}
}

const (
	maxBody   = 64 << 10
	clearTime = 20 * time.Second
)

// clearKV deletes all KV but what engines have locked, and waits until that is done, for some time.
func (r *runner) clearKV(w http.ResponseWriter, q *http.Request) {
	refuse := func(status int, text string) { replyJSON(w, status, map[string]any{"detail": text}) }
	if err := r.serving(); err != nil {
		refuse(http.StatusServiceUnavailable, err.Error())
		return
	}
	body := struct {
		Tier  string `json:"tier"`
		Force bool   `json:"force"`
	}{Tier: "l1"}
	text, err := io.ReadAll(io.LimitReader(q.Body, maxBody))
	if err == nil && len(text) > 0 {
		err = json.Unmarshal(text, &body)
	}
	lower := len(r.levels.store.State().Levels) > 1
	switch {
	case err != nil:
		refuse(http.StatusUnprocessableEntity, "the body is no JSON of tier and force: "+err.Error())
		return
	case body.Force:
		refuse(http.StatusBadRequest, "force is not supported: what engines have locked stays")
		return
	case body.Tier == "l1" && lower:
		refuse(http.StatusBadRequest, `KV is deleted from memory and from all levels below it: ask for that by {"tier": "all"}`)
		return
	case body.Tier != "l1" && body.Tier != "all":
		refuse(http.StatusBadRequest, `the tier is not "all", and not "l1", which is the same without lower levels`)
		return
	}
	if err := r.registry.ClearPrefix(kv.SpacePrefix); err != nil {
		refuse(http.StatusServiceUnavailable, err.Error())
		return
	}
	end := time.NewTimer(clearTime)
	defer end.Stop()
	for r.registry.Counts().Clearing {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-q.Context().Done():
			return
		case <-end.C:
			replyJSON(w, http.StatusAccepted, map[string]any{
				"status": "clearing", "cleared": map[string]any{"tier": body.Tier},
			})
			return
		}
	}
	replyJSON(w, http.StatusOK, map[string]any{"status": "ok", "cleared": map[string]any{"tier": body.Tier}})
}

// replyJSON answers with an object.
func replyJSON(w http.ResponseWriter, status int, v map[string]any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"detail": "the answer can't be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // to memory
}
