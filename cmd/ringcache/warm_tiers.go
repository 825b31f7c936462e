package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// warmStatTime is the longest wait for the daemon, which answers without input and output.
const warmStatTime = 10 * time.Second

// tiers asks the daemon what it has. It returns nil if no socket is given.
func (c warmCommand) tiers(ctx context.Context) (*status, error) {
	if c.Socket == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, warmStatTime)
	defer cancel()
	s, err := askStatus(ctx, c.Socket)
	if err != nil {
		return nil, explainStatus(c.Socket, err)
	}
	return s, nil
}

// show prints what the tiers have, and how much of it is new. That nothing is new although images were sent is most likely an engine
// without a connector, and an error.
func (c warmCommand) show(ctx context.Context, to io.Writer, before *status, sent int) error {
	after, err := c.tiers(ctx)
	if err != nil || after == nil {
		return err
	}
	objects := map[string]int64{}
	for _, l := range before.Levels {
		objects[l.Name] = l.Objects
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nTIER\tSTATE\tOBJECTS\tNEW\tBYTES\tCAPACITY\tOWED")
	stored := false
	for _, l := range after.Levels {
		state, added, capacity := "up", "?", "-"
		if l.Away {
			state = "away"
		}
		old, known := objects[l.Name]
		if known && old >= 0 && l.Objects >= 0 {
			added = fmt.Sprintf("%+d", l.Objects-old)
		}
		if l.Capacity > 0 {
			capacity = size(l.Capacity)
		}
		// A full tier evicts as much as it takes.
		stored = stored || added != "+0" && known || l.Owed > 0 || l.Capacity > 0 && l.Bytes > l.Capacity/2
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\n", printable(l.Name), state, count(l.Objects), added, size(l.Bytes), capacity, l.Owed)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if after.Owed > 0 {
		fmt.Fprintf(to, "%d objects are still on their way to lower tiers\n", after.Owed)
	}
	if sent > 0 && !stored {
		return fmt.Errorf("nothing is new at %s: does the engine run with the connector and this socket? What it has in its own caches, it does not store again; start it anew then", c.Socket)
	}
	return nil
}
