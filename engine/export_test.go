package engine

import "time"

// Remembered is the number of items whose tokens are remembered.
func Remembered(c *Client) int {
	s, err := c.running()
	if err != nil {
		return 0
	}
	s.sent.mu.Lock()
	defer s.sent.mu.Unlock()
	return len(s.sent.items)
}

// SendRaw sends frames to the engine as they are.
func SendRaw(c *Client, frames ...string) error {
	s, err := c.running()
	if err != nil {
		return err
	}
	var b [][]byte
	for _, f := range frames {
		b = append(b, []byte(f))
	}
	return s.input.Send(s.peer, b...)
}

// Greeted says whether an engine waits for its addresses.
func Greeted(c *Client) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, answered := range c.hellos {
		if !answered {
			return true
		}
	}
	return false
}

// Pid is the number of the engine's process.
func Pid(c *Client) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.s.process.cmd.Process.Pid
}

// Idle makes the engine's last word be that long ago.
func Idle(c *Client, d time.Duration) { c.s.heard.Store(time.Now().Add(-d).UnixNano()) }

// Silent is how long ago it is.
func Silent(c *Client) time.Duration { return time.Since(time.Unix(0, c.s.heard.Load())) }

// Watch asks the engine whether it is there after so much silence, besides what the options say.
func Watch(c *Client, silence time.Duration) { c.s.wait.Go(func() { c.s.watch(silence) }) }
