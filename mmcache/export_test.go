package mmcache

// ID returns the id with which the request was begun.
func (r *Request) ID() string { return r.id }
