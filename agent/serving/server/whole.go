package server

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// maxMaking bounds the answers of one route that are made concurrently, for different requests.
	maxMaking = 4
	// makingTimeout bounds how long a request waits for its turn.
	makingTimeout = 30 * time.Second
)

// whole makes a route's answers in memory and sends them from there. Concurrent requests of the
// same kind share one answer, which is made and held once. A request never gets an answer whose
// making began before the request arrived.
type whole struct {
	handler http.Handler
	under   *underWay
	making  chan struct{} // holds an element for each answer being made

	mu    sync.Mutex // guards lines and their flights
	lines map[string]*line
}

// line holds the flights for requests of one kind.
type line struct {
	now  *flight
	next *flight // for requests that arrived after now began; nil: none
}

// flight is an answer that the first of its requests makes.
type flight struct {
	done    chan struct{}
	text    *text // nil until done
	readers int   // number of requests that get it
	wanted  int   // number of requests that are not cancelled; 0: the handler may stop
	giveUp  context.CancelFunc
}

func newWhole(handler http.Handler, under *underWay) *whole {
	return &whole{handler: handler, under: under, making: make(chan struct{}, maxMaking),
		lines: map[string]*line{}}
}

// ServeHTTP answers a request.
func (o *whole) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var t *text
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		t = o.shared(r)
	} else {
		t = o.make(r)
		o.under.add(t, 1)
	}
	if t == nil {
		givenUp(w)
		return
	}
	defer o.under.release(t)
	t.send(w, r)
}

// alike returns the key of all requests with the same answer.
func alike(r *http.Request) string {
	return strings.Join([]string{r.Method, r.URL.RequestURI(),
		strings.Join(r.Header.Values("Accept"), ","),
		strings.Join(r.Header.Values("Accept-Encoding"), ",")}, "\x00")
}

// shared returns an answer that is made for all requests of the same kind; each of them must
// release it. It returns nil if the client has gone.
func (o *whole) shared(r *http.Request) *text {
	key := alike(r)
	f, before := o.join(key)
	if before == nil { // another request makes it
		select {
		case <-f.done:
			return f.text
		case <-r.Context().Done():
			o.leave(f)
			return nil
		}
	}
	<-before
	var t *text
	defer func() { o.finish(key, f, t) }() // even if the handler panics
	defer context.AfterFunc(r.Context(), func() { o.unwanted(f) })()
	if ctx := o.begin(r.Context(), f); ctx.Err() == nil {
		t = o.make(r.WithContext(ctx))
	}
	return t
}

// begin returns the context of an answer. It ends after requestTimeout, when all clients have gone,
// or when the agent stops.
func (o *whole) begin(ctx context.Context, f *flight) context.Context {
	o.mu.Lock()
	defer o.mu.Unlock()
	made, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	if f.giveUp = cancel; f.wanted <= 0 || f.wanted == 1 && ctx.Err() != nil {
		cancel()
	}
	return made
}

func (o *whole) unwanted(f *flight) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f.lessWanted()
}

// lessWanted records that a request is over. The caller holds the lock.
func (f *flight) lessWanted() {
	if f.wanted--; f.wanted == 0 && f.giveUp != nil {
		f.giveUp()
	}
}

// join joins the next flight. A caller that gets a channel makes the answer once that is closed.
func (o *whole) join(key string) (f *flight, before <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.lines[key]
	switch {
	case l == nil:
		ready := make(chan struct{})
		close(ready)
		f, before = newFlight(), ready
		o.lines[key] = &line{now: f}
	case l.next == nil:
		f, before = newFlight(), l.now.done
		l.next = f
	default:
		f = l.next
	}
	f.readers++
	f.wanted++
	return f, before
}

func newFlight() *flight { return &flight{done: make(chan struct{})} }

// leave records that a joined request no longer wants the answer.
func (o *whole) leave(f *flight) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if f.text != nil {
		o.under.release(f.text)
	}
	f.readers--
	f.lessWanted()
}

// finish hands the answer to all requests that joined.
func (o *whole) finish(key string, f *flight, t *text) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f.giveUp()
	if f.text = t; t != nil {
		o.under.add(t, f.readers)
	}
	l := o.lines[key]
	if l.now, l.next = l.next, nil; l.now == nil {
		delete(o.lines, key)
	}
	close(f.done)
}

// givenUp answers a cancelled request: its client has gone, or the agent stops.
func givenUp(w http.ResponseWriter) {
	http.Error(w, "the request was given up before it was answered", http.StatusServiceUnavailable)
}

// make runs the handler and returns its answer.
func (o *whole) make(r *http.Request) *text {
	limit := time.NewTimer(makingTimeout)
	defer limit.Stop()
	select {
	case o.making <- struct{}{}:
		defer func() { <-o.making }()
	case <-limit.C:
		return &text{code: http.StatusServiceUnavailable, header: http.Header{"Retry-After": {"1"}},
			body: []byte("too many different requests are under way; ask again\n")}
	}
	into := &recorder{header: http.Header{}}
	o.handler.ServeHTTP(into, r)
	if into.body.Len() > 0 && into.header.Get("Content-Type") == "" { // as net/http does, for HEAD too
		into.header.Set("Content-Type", http.DetectContentType(into.body.Bytes()))
	}
	return &text{code: cmp.Or(into.code, http.StatusOK), header: into.header, body: into.body.Bytes()}
}

// recorder stores an answer in memory.
type recorder struct {
	header http.Header
	code   int // 0: not set
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(code int) { r.code = cmp.Or(r.code, code) }

func (r *recorder) Write(p []byte) (int, error) {
	r.code = cmp.Or(r.code, http.StatusOK)
	return r.body.Write(p)
}
