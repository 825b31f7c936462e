package main

import (
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// putFinished puts an item for a request that ends at once.
func putFinished(s objstore.Store, key, id string, it *serde.Item) (serde.Address, error) {
	request, err := s.Begin(id)
	if err != nil {
		return serde.Address{}, err
	}
	defer request.Rollback()
	h, err := request.Put(key, it, objstore.PutOptions{})
	if err != nil {
		return serde.Address{}, err
	}
	if err := request.Commit(); err != nil {
		return serde.Address{}, err
	}
	request.Finish()
	return h, nil
}
