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
	// maxMaking is how many answers of one route are made at the same time, for requests that differ.
	maxMaking = 4
	// makingTimeout is how long a request waits for that at most.
	makingTimeout = 30 * time.Second
)

// whole has a route's answers made in memory and sent from there. However many clients ask for the
// same at the same time, one answer is made for all of them, and held once. A request never has an
// answer that had begun to be made before it came.
type whole struct {
	handler http.Handler
	under   *underWay
	making  chan struct{} // has a value for each answer that is being made

	mu    sync.Mutex // guards lines and their flights
	lines map[string]*line
}

// line is what is made for alike requests.
type line struct {
	now  *flight
	next *flight // for those who came since now began; nil: nobody did
}

// flight is an answer that is made by the first who wanted it.
type flight struct {
	done    chan struct{}
	text    *text // nil until done
	readers int   // who get it
	wanted  int   // whose requests are not over; 0: the handler may end
	giveUp  context.CancelFunc
}

func newWhole(handler http.Handler, under *underWay) *whole {
	return &whole{handler: handler, under: under, making: make(chan struct{}, maxMaking),
		lines: map[string]*line{}}
}

// ServeHTTP answers.
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

// alike is the same for requests that have the same answer.
func alike(r *http.Request) string {
	return strings.Join([]string{r.Method, r.URL.RequestURI(),
		strings.Join(r.Header.Values("Accept"), ","),
		strings.Join(r.Header.Values("Accept-Encoding"), ",")}, "\x00")
}

// shared is an answer that is made for all who ask for the same, and that each of them releases; nil:
// the client is gone.
func (o *whole) shared(r *http.Request) *text {
	key := alike(r)
	f, before := o.join(key)
	if before == nil { // another one makes it
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
	defer func() { o.finish(key, f, t) }() // also if the handler panics
	defer context.AfterFunc(r.Context(), func() { o.unwanted(f) })()
	if ctx := o.begin(r.Context(), f); ctx.Err() == nil {
		t = o.make(r.WithContext(ctx))
	}
	return t
}

// begin is what the answer is made under: it ends when all who want it are gone, or the agent stops.
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

// lessWanted takes that a request is over. It is called with the lock.
func (f *flight) lessWanted() {
	if f.wanted--; f.wanted == 0 && f.giveUp != nil {
		f.giveUp()
	}
}

// join takes part in the next flight. Who gets a channel makes it, and begins when that is closed.
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

// leave takes that one who took part does not want the answer.
func (o *whole) leave(f *flight) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if f.text != nil {
		o.under.release(f.text)
	}
	f.readers--
	f.lessWanted()
}

// finish gives all who took part the answer.
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

// givenUp answers a request that is over: its client is gone, or the agent stops.
func givenUp(w http.ResponseWriter) {
	http.Error(w, "the request was given up before it was answered", http.StatusServiceUnavailable)
}

// make has the handler answer into memory.
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

// recorder takes an answer into memory.
type recorder struct {
	header http.Header
	code   int // 0: none was written
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(code int) { r.code = cmp.Or(r.code, code) }

func (r *recorder) Write(p []byte) (int, error) {
	r.code = cmp.Or(r.code, http.StatusOK)
	return r.body.Write(p)
}
