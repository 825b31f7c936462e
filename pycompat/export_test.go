package pycompat

// ErrBusy is the error of a semaphore that is in use.
var ErrBusy = errBusy

// Name is the name that the semaphore was opened by.
func (s *Semaphore) Name() string { return s.name }
