package registry

// share is what one process may have of something that there is a total of: connections, sessions, leases,
// records, bytes.
//
// Alone it may have limit. The more others have, the less: always the same part of what they leave. So
// whoever comes finds some, however much those before have taken; and what was granted is never taken back
// for it.
// See docs/decisions.md, "A process has a share of what others leave".
type share struct {
	limit int64 // 0 is no limit
	total int64 // 0 is as much as anybody wants
}

// quarter is the share of what can't be configured.
func quarter(total int64) share {
	if total <= 0 {
		return share{}
	}
	return share{limit: max(1, total/4), total: total}
}

// allows reports whether a process that has mine may have n more, after which free would be left for all. The
// first one of anything is allowed as long as there is any.
func (s share) allows(mine, n, free int64) bool {
	mine += n
	switch {
	case n == 0 || s.limit == 0:
		return true
	case mine > s.limit:
		return false
	case s.total == 0:
		return true
	case free < 0:
		return false
	case mine <= 1 || s.limit >= s.total:
		return true
	}
	return float64(mine)*float64(s.total-s.limit) <= float64(s.limit)*float64(free)
}
