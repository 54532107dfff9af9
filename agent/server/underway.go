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
	// maxUnderWay is how many bytes all answers have together that are being sent.
	maxUnderWay = 64 << 20
	// piece is how much of an answer is written at once, and pieceTimeout how long its client may take
	// over that: one that does not read holds the answer in memory.
	piece        = 64 << 10
	pieceTimeout = 10 * time.Second
)

// underWay are the answers that are being sent. If they are too much together, those go over which
// nothing has gone for the longest time.
type underWay struct {
	most int

	mu    sync.Mutex // guards what follows
	texts map[*text]int
	total int // of the texts that are not cut
}

func newUnderWay(most int) *underWay { return &underWay{most: most, texts: map[*text]int{}} }

// add takes in a text that so many readers get, each of whom calls release.
func (u *underWay) add(t *text, readers int) {
	t.went()
	for _, old := range u.take(t, readers) {
		old.interrupt()
	}
}

// take returns the texts that have to go for this one.
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

// text is an answer that is made. Only its readers change.
type text struct {
	code   int
	header http.Header
	body   []byte

	moved atomic.Int64 // when something of it was last written, in nanoseconds
	over  atomic.Bool  // it is sent no further

	mu      sync.Mutex // guards readers
	readers map[*http.ResponseController]bool
}

func (t *text) went() { t.moved.Store(time.Now().UnixNano()) }

// send writes the text as an answer, as long as the client takes it.
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
			return // the client is gone, or has not read
		}
		rest = rest[len(next):]
		t.went()
	}
}

// extend gives a reader the time for another piece; false: it gets no more.
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
	_ = reader.SetWriteDeadline(time.Now().Add(pieceTimeout)) // our connections have deadlines
	return true
}

func (t *text) leave(reader *http.ResponseController) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.readers, reader)
}

// interrupt has all writes of the text fail, those too that wait for their clients.
func (t *text) interrupt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for reader := range t.readers {
		_ = reader.SetWriteDeadline(time.Now())
	}
}
