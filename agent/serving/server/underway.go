package server

import (
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxUnderWay bounds the total size in bytes of all answers that are being sent.
	maxUnderWay = 64 << 20
	// piece is the part of an answer that is written at once. pieceTimeout bounds how long the client
	// may take to read it: an answer that is not read stays in memory.
	piece        = 64 << 10
	pieceTimeout = 10 * time.Second
)

// underWay holds the answers that are being sent. If they exceed the bound, the ones that have been
// idle longest are cut off.
type underWay struct {
	most int

	mu    sync.Mutex // guards the fields below
	texts map[*text]int
	total int // size of the texts that are not cut off
}

func newUnderWay(most int) *underWay { return &underWay{most: most, texts: map[*text]int{}} }

// add registers a text for that many readers; each of them calls release.
func (u *underWay) add(t *text, readers int) {
	t.went()
	for _, old := range u.take(t, readers) {
		old.interrupt()
	}
}

// take registers the text, and returns the texts to cut off for it.
func (u *underWay) take(t *text, readers int) (cut []*text) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.texts[t] = readers
	u.total += len(t.body)
	for u.total > u.most {
		var oldest *text
		for other := range u.texts {
			if other != t && !other.over.Load() &&
				(oldest == nil || other.moved.Load() < oldest.moved.Load()) {
				oldest = other
			}
		}
		if oldest == nil {
			break
		}
		oldest.over.Store(true)
		u.total -= len(oldest.body)
		cut = append(cut, oldest)
	}
	return cut
}

func (u *underWay) release(t *text) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.texts[t]--; u.texts[t] > 0 {
		return
	}
	delete(u.texts, t)
	if !t.over.Load() {
		u.total -= len(t.body)
	}
}

// text is a finished answer. Only its readers change.
type text struct {
	code   int
	header http.Header
	body   []byte

	moved atomic.Int64 // time of the last write, in nanoseconds
	over  atomic.Bool  // it is cut off

	mu      sync.Mutex // guards readers
	readers map[*http.ResponseController]bool
}

func (t *text) went() { t.moved.Store(time.Now().UnixNano()) }

// send writes the text as an answer, as long as the client reads it.
func (t *text) send(w http.ResponseWriter, r *http.Request) {
	maps.Copy(w.Header(), t.header)
	if t.code != http.StatusNoContent && t.code != http.StatusNotModified {
		w.Header().Set("Content-Length", strconv.Itoa(len(t.body)))
	}
	w.WriteHeader(t.code)
	if r.Method == http.MethodHead {
		return
	}
	control := http.NewResponseController(w)
	defer t.leave(control)
	for rest := t.body; len(rest) > 0 && t.extend(control); {
		next := rest[:min(len(rest), piece)]
		if _, err := w.Write(next); err != nil {
			return // the client has gone, or does not read
		}
		rest = rest[len(next):]
		t.went()
	}
}

// extend gives a reader time for another piece; false: the text is cut off.
func (t *text) extend(reader *http.ResponseController) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over.Load() {
		return false
	}
	if t.readers == nil {
		t.readers = map[*http.ResponseController]bool{}
	}
	t.readers[reader] = true
	_ = reader.SetWriteDeadline(time.Now().Add(pieceTimeout)) // our connections support deadlines
	return true
}

func (t *text) leave(reader *http.ResponseController) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.readers, reader)
}

// interrupt makes all writes of the text fail, including those that wait for their clients.
func (t *text) interrupt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for reader := range t.readers {
		_ = reader.SetWriteDeadline(time.Now())
	}
}
