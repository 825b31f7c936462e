package daemon

import (
	"fmt"
	"log/slog"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
)

// notifier reports to the service manager what the daemon is doing, if there is one: Type=notify, or
// notify-reload.
type notifier struct{ log *slog.Logger }

func (n notifier) send(state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		n.log.Warn("the service manager does not take messages, and may believe that this never starts: use Type=notify or Type=notify-reload in its unit", "error", err)
	}
}

func (n notifier) status(text string)  { n.send("STATUS=" + text) }
func (n notifier) ready(status string) { n.send(sd.SdNotifyReady + "\nSTATUS=" + status) }

// reloading begins a reload, which ready ends.
func (n notifier) reloading() {
	n.send(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", sd.SdNotifyReloading, monotonic().Microseconds()))
}

// stopping begins the end, which may take so long.
func (n notifier) stopping(limit time.Duration) {
	n.send(fmt.Sprintf("%s\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=%d",
		sd.SdNotifyStopping, (limit + 30*time.Second).Microseconds()))
}

// watchdog returns a channel that asks for a sign of life, nil if nobody wants one.
func (n notifier) watchdog() (c <-chan time.Time, stop func()) {
	d, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		n.log.Warn("the watchdog's settings can't be read, so it gets no sign of life: correct WatchdogSec in the unit", "error", err)
	}
	if d <= 0 {
		return nil, func() {}
	}
	t := time.NewTicker(max(d/3, time.Millisecond))
	return t.C, t.Stop
}

func (n notifier) alive() { n.send(sd.SdNotifyWatchdog) }
