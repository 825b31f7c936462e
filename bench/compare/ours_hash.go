package main

import "github.com/ringcache/ringcache/mmhash"

// hashJob makes the key of an image from the bytes of its file.
type hashJob struct {
	hasher *mmhash.Hasher
	id     mmhash.Identity
}

func ourHash() Job { return &hashJob{} }

func (*hashJob) Peer() string { return "mmhash" }

func (j *hashJob) Prepare(c Case) (err error) {
	data := make([]byte, c.Size)
	for i := range data {
		data[i] = byte(i * 7)
	}
	j.id = mmhash.Identity{ModelID: "Qwen/Qwen2-VL-7B-Instruct", Modality: "image",
		Item: &mmhash.EncodedImage{Data: data}}
	j.hasher, err = mmhash.NewHasher(mmhash.Options{})
	return err
}

func (j *hashJob) Run(n int) ([]float64, error) {
	return timed(n, func() error {
		_, err := j.hasher.Key(j.id)
		return err
	}, func() error { return nil })
}

func (*hashJob) Close() error { return nil }
