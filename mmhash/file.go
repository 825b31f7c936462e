package mmhash

// EncodedImage is an image with the file that it came from (MediaWithBytes of
// an image; vllm/multimodal/base.py, since 0.15.0 media/base.py). vLLM's own
// loader makes these of every image that a request names by a URL.
type EncodedImage struct {
	// Data are the bytes of the file. Releases from 0.13.0 on hash them, with
	// the exception at [Identity].HasUUIDs.
	Data []byte
	// Reader is used in place of Data unless it is nil.
	Reader *Reader
	// IOConfig is how the image was converted on loading. Releases from 0.27.0
	// on hash it beside the data unless it is empty. Their loader sets
	// image_mode and rgba_background_color, in this order, and only if the
	// conversion made a new image.
	IOConfig []Entry
	// Pixels is the image as it was loaded and converted. Releases that do not
	// hash the data hash this; others don't need it.
	Pixels *Image
	// ID is as in Image.
	ID *[16]byte
}

// EncodedVideo is a video with the file that it came from (MediaWithBytes of
// frames). Where the model asks for metadata vLLM hashes a list of the video and a
// dict of them.
type EncodedVideo struct {
	// Data are the bytes of the file.
	Data []byte
	// Reader is used in place of Data unless it is nil.
	Reader *Reader
	// Frames is an *Array or, from 0.30.0 on, a *Tensor. Releases from 0.27.0 on
	// hash Frames if they are fewer bytes than Data, else Data, and so need
	// both. Before, videos had no file any more when they were hashed, and
	// Frames is hashed.
	Frames any
}

func (s *stream) encodedImage(m *EncodedImage) {
	if m == nil {
		s.fail(errInvalid, "it is a nil *EncodedImage")
		return
	}
	if id := m.id(); id != nil {
		s.leafBytes(id[:])
		return
	}
	if !s.rules.OriginalBytes {
		image, err := m.decoded()
		if err != nil {
			s.err = err
			return
		}
		s.image(image)
		return
	}
	s.leaf()
	outer := s.enter("image")
	if s.rules.IOConfig && len(m.IOConfig) > 0 {
		s.mapping(2)
		mark := s.key("io_config")
		s.value(m.IOConfig)
		s.up(mark)
		mark = s.key("data")
		s.leafData(m.Data, m.Reader)
		s.up(mark)
	} else {
		s.leafData(m.Data, m.Reader)
	}
	s.leave(outer)
}

func (m *EncodedImage) id() *[16]byte {
	if m.ID == nil && m.Pixels != nil {
		return m.Pixels.ID
	}
	return m.ID
}

// decoded is the image without its file.
func (m *EncodedImage) decoded() (*Image, error) {
	if id := m.id(); id != nil {
		return &Image{ID: id}, nil
	}
	if m.Pixels == nil {
		return nil, &ValueError{Problem: "this release of vLLM hashes the pixels of an image here, not its file: " +
			"give EncodedImage.Pixels", sentinel: ErrUnsupported}
	}
	return m.Pixels, nil
}

const framesProblem = "the frames of a video are an *Array or a *Tensor, not %s"

func (s *stream) encodedVideo(m *EncodedVideo) {
	if m == nil {
		s.fail(errInvalid, "it is a nil *EncodedVideo")
		return
	}
	frames := 0
	switch f := m.Frames.(type) {
	case *Array:
		if f != nil {
			frames = len(f.Data)
		}
	case *Tensor:
		if f != nil {
			frames = len(f.Data)
		}
		if !s.rules.TorchVideo {
			s.fail(ErrUnsupported, "this release of vLLM has no reproducible hash of a video file whose frames are a torch tensor; give an *Array")
			return
		}
	default:
		s.fail(errInvalid, framesProblem, typeName(m.Frames))
		return
	}
	if !s.rules.VideoBytes {
		s.value(m.Frames)
		return
	}
	size := int64(len(m.Data))
	if m.Reader != nil {
		size = m.Reader.N
	}
	s.leaf()
	outer := s.enter("video")
	if int64(frames) < size {
		s.value(m.Frames)
	} else {
		s.leafData(m.Data, m.Reader)
	}
	s.leave(outer)
}
