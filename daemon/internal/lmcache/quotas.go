package lmcache

import (
	"fmt"
	"io/fs"
	"maps"

	"github.com/ringcache/ringcache/tier"
)

// maxQuotas bounds the quotas of salts that are kept: a disk counts the bytes of as many tenants.
const maxQuotas = 4096

// ErrQuotas reports that there are as many quotas as are kept.
var ErrQuotas = fmt.Errorf("lmcache: %d salts have a quota, which is the most: %w", maxQuotas, fs.ErrInvalid)

// Quotas returns the bytes that salts may have, as SetQuota has set them, here or in an earlier server. They are
// only kept here: levels are told by the caller.
func (s *Server) Quotas() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.state.Quotas)
}

// SetQuota keeps the bytes that a salt may have. If the error is not ErrQuotas, it does so only until this server ends.
func (s *Server) SetQuota(salt string, bytes int64) error {
	s.mu.Lock()
	if _, ok := s.state.Quotas[salt]; !ok && len(s.state.Quotas) >= maxQuotas {
		s.mu.Unlock()
		return ErrQuotas
	}
	if s.state.Quotas == nil {
		s.state.Quotas = map[string]int64{}
	}
	s.state.Quotas[salt] = bytes
	s.dirty = true
	return s.unlockSaved()
}

// RemoveQuota reports whether there was one. After an error the next server may have it again.
func (s *Server) RemoveQuota(salt string) (removed bool, err error) {
	s.mu.Lock()
	_, removed = s.state.Quotas[salt]
	delete(s.state.Quotas, salt)
	s.dirty = true // the file may have one that an earlier call has removed here
	return removed, s.unlockSaved()
}

// forgetInvalid forgets quotas that nobody can have set.
func (st *state) forgetInvalid() {
	maps.DeleteFunc(st.Quotas, func(salt string, n int64) bool { return salt == "" || len(salt) > tier.MaxTenant || n < 1 })
}
