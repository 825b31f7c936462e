package tier

import (
	"context"
	"sync"
	"time"
)

// tasks are the goroutines of a store. Close waits for them. Go is called by calls of the store and by other tasks,
// for which Close waits, too.
type tasks struct {
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	sync.WaitGroup
}

func newTasks() *tasks {
	t := &tasks{}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// sleep reports false if the store is closed before d is over.
func (t *tasks) sleep(d time.Duration) bool {
	select {
	case <-t.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
