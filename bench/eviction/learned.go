package main

import "github.com/ringcache/ringcache/internal/evict"

// learned is the product's policy.
type learned struct{ *evict.Policy }

func newLearned() learned { return learned{evict.New()} }

func (l learned) Add(it *item) *evict.Entry {
	e := new(evict.Entry)
	l.Policy.Add(e, it.key, it.cost)
	return e
}
