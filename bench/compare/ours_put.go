package main

import (
	"errors"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// putSent puts an item for a request that was sent: the object stays until the request ends.
func putSent(s objstore.Store, key, id string, it *serde.Item) (objstore.Request, serde.Address, error) {
	request, err := s.Begin(id)
	if err != nil {
		return nil, serde.Address{}, err
	}
	defer request.Rollback() // does nothing after Commit
	h, err := request.Put(key, it, objstore.PutOptions{})
	if err != nil {
		return nil, h, err
	}
	return request, h, request.Commit()
}

// putFinished puts an item for a request that ends at once.
func putFinished(s objstore.Store, key, id string, it *serde.Item) (serde.Address, error) {
	request, h, err := putSent(s, key, id, it)
	if err != nil {
		return h, err
	}
	request.Finish()
	return h, nil
}

// lookFinished looks a key up for a request that ends at once.
func lookFinished(s objstore.Store, key, id string) error {
	request, err := s.Begin(id)
	if err != nil {
		return err
	}
	_, err = request.Lookup(key)
	if err := errors.Join(err, request.Commit()); err != nil {
		return err
	}
	request.Finish()
	return nil
}
