package lmcache

import (
	"fmt"
	"io/fs"
	"maps"

	"github.com/ringcache/ringcache/tier"
)

// maxQuotas bounds the quotas of salts that are kept of a level: a disk counts the bytes of as many tenants.
const maxQuotas = 4096

// ErrQuotas reports that there are as many quotas as are kept.
var ErrQuotas = fmt.Errorf("lmcache: %d salts have a quota, which is the most: %w", maxQuotas, fs.ErrInvalid)

// Quotas returns the bytes that salts may have of a level, as SetQuota has set them, here or in an earlier
// server. They are only kept here: levels are told by the caller.
func (s *Server) Quotas(level string) map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.state.Quotas[level])
}

// KeptQuotas returns what Quotas of a server with this file will return: levels go on with what is pending
// before there is a server. Of a file that can't be read it has none; NewServer reports that.
func KeptQuotas(file, level string) map[string]int64 {
	found, err := readState(file)
	if err != nil {
		return nil
	}
	found.forgetInvalid()
	return found.Quotas[level]
}

// SetQuota keeps the bytes that a salt may have of a level. If the error is not ErrQuotas, it does so only
// until this server ends.
func (s *Server) SetQuota(level, salt string, bytes int64) error {
	s.mu.Lock()
	quotas := s.state.Quotas[level]
	if _, ok := quotas[salt]; !ok && len(quotas) >= maxQuotas {
		s.mu.Unlock()
		return ErrQuotas
	}
	if s.state.Quotas == nil {
		s.state.Quotas = map[string]map[string]int64{}
	}
	if quotas == nil {
		quotas = map[string]int64{}
		s.state.Quotas[level] = quotas
	}
	quotas[salt] = bytes
	s.dirty = true
	return s.unlockSaved()
}

// RemoveQuota reports whether there was one. After an error the next server may have it again.
func (s *Server) RemoveQuota(level, salt string) (removed bool, err error) {
	s.mu.Lock()
	_, removed = s.state.Quotas[level][salt]
	delete(s.state.Quotas[level], salt)
	s.dirty = true // the file may have one that an earlier call has removed here
	return removed, s.unlockSaved()
}

// forgetInvalid forgets quotas that nobody can have set.
func (st *state) forgetInvalid() {
	for _, quotas := range st.Quotas {
		maps.DeleteFunc(quotas, func(salt string, n int64) bool { return salt == "" || len(salt) > tier.MaxTenant || n < 1 })
	}
}
