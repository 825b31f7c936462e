package main

import (
	"context"
	"fmt"
	"sync/atomic"
)

type pairCounts struct{}

type pairTotals struct{ requests atomic.Int64 }

func (t *pairTotals) String() string { return fmt.Sprint(t.requests.Load()) }

func runPair(ctx, stopping context.Context, s *supervisor) error { return nil }

func runSender(childCommand, <-chan message) error { return nil }

func runReceiver(string, <-chan message) error { return nil }
