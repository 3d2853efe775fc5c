package proxy

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
)

// framing finds the ends of events in a watch that the proxy passes on without parsing.
type framing interface {
	// next returns the number of bytes of the chunk up to the end of the current event: all
	// bytes if the event does not end in the chunk. A chunk is not empty.
	next(chunk []byte) int
	// between reports whether the last event is complete.
	between() bool
}

// lines is the framing of JSON. Each event ends with a newline.
type lines struct{ within bool }

func (l *lines) next(chunk []byte) int {
	if end := bytes.IndexByte(chunk, '\n'); end >= 0 {
		l.within = false
		return end + 1
	}
	l.within = true
	return len(chunk)
}

func (l *lines) between() bool { return !l.within }

// lengths is the framing of protobuf. Four bytes before each event hold its length.
type lengths struct {
	header [4]byte
	read   int    // bytes of the header
	left   uint32 // bytes of the event
}

func (l *lengths) next(chunk []byte) int {
	used := 0
	for l.read < len(l.header) && used < len(chunk) {
		l.header[l.read] = chunk[used]
		l.read++
		used++
		if l.read == len(l.header) {
			l.left = binary.BigEndian.Uint32(l.header[:])
		}
	}
	if l.read < len(l.header) {
		return used
	}
	rest := min(uint64(l.left), uint64(len(chunk)-used))
	l.left -= uint32(rest)
	used += int(rest)
	if l.left == 0 {
		l.read = 0
	}
	return used
}

func (l *lengths) between() bool { return l.read == 0 }

// framingOf returns the framing of a watch with a content type, and the event that ends the
// watch: a Status 410, after which clients list again. It returns nil for an unknown type.
func framingOf(contentType string) (framing, []byte) {
	name, _, _ := mime.ParseMediaType(contentType)
	var frames framing
	switch name {
	case runtime.ContentTypeJSON:
		frames = &lines{}
	case runtime.ContentTypeProtobuf:
		frames = &lengths{}
	default:
		return nil, nil
	}
	event, err := expiredEvent(name)
	if err != nil {
		return nil, nil
	}
	return frames, event
}

// changedMessage is the message to clients that have to list again.
const changedMessage = "what you may see has changed: list again"

// expiredEvent returns the ERROR event with changedMessage, as the API server encodes it.
func expiredEvent(mediaType string) ([]byte, error) {
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	status := apierrors.NewResourceExpired(changedMessage).Status()
	raw, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, metav1.SchemeGroupVersion), &status)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := streaming.NewEncoder(info.StreamSerializer.NewFrameWriter(&out), codecs.EncoderForVersion(info.StreamSerializer.Serializer, metav1.SchemeGroupVersion))
	err = encoder.Encode(&metav1.WatchEvent{Type: string(watch.Error), Object: runtime.RawExtension{Raw: json.RawMessage(raw)}})
	return out.Bytes(), err
}

// errEnded reports that the proxy has ended a stream.
var errEnded = errors.New("the watch has been ended")

// stream passes a watch on and can end it between two events.
type stream struct {
	to     http.ResponseWriter
	frames framing
	// stop ends the request from which the stream reads.
	stop func()

	mu     sync.Mutex
	ending bool
	last   []byte // written at the end
	ended  bool
}

// end ends the stream after the current event, and writes last after it.
func (s *stream) end(last []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return
	}
	s.ending, s.last = true, last
	if s.frames.between() {
		s.finish()
	}
}

func (s *stream) finish() {
	s.ended = true
	if len(s.last) > 0 {
		_, _ = s.to.Write(s.last)
	}
	s.flush()
	s.stop()
}

func (s *stream) flush() { _ = http.NewResponseController(s.to).Flush() }

// Write passes a chunk on. It fails with errEnded when the stream has ended.
func (s *stream) Write(chunk []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return 0, errEnded
	}
	whole := 0
	for whole < len(chunk) && (!s.ending || whole == 0) {
		whole += s.frames.next(chunk[whole:])
	}
	if _, err := s.to.Write(chunk[:whole]); err != nil {
		return 0, err
	}
	if s.ending && s.frames.between() {
		s.finish()
		return whole, errEnded
	}
	s.flush()
	return whole, nil
}

// copyFrom passes a watch on until either side ends it.
func (s *stream) copyFrom(body io.Reader) {
	// Not io.Copy, which takes 32 KiB for each watch.
	buffer := make([]byte, 4<<10)
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			if _, err := s.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
