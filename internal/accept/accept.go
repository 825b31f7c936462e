// Package accept takes the connections of a listener, as every server here does.
package accept

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// firstPause and lastPause are the times between two tries to accept while the machine lets none in.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 100 * time.Millisecond
)

// Loop calls take with each connection of a listener until somebody closes that. Then it returns nil if ended reports
// that this was meant, and else an error. What passes, such as too many open files, is told to lost, and Loop
// tries again.
func Loop(l net.Listener, ended func() bool, take func(net.Conn), lost func(error)) error {
	for pause := firstPause; ; {
		raw, err := l.Accept()
		switch {
		case err == nil:
			pause = firstPause
			take(raw)
			continue
		case ended():
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("the listener %v was closed: %w", l.Addr(), err)
		}
		lost(err)
		time.Sleep(pause)
		pause = min(2*pause, lastPause)
	}
}
