package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/numalet/numalet/internal/bounded"
	"github.com/numalet/numalet/internal/route"
)

// get sends a request to a handler, without a network.
func get(ctx context.Context, h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
	return w
}

// Requests that arrive while an answer is made share the next one: none gets an answer that was
// begun before it arrived, and no two of the same kind are made at once.
func TestAlikeRequestsShareAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made, now atomic.Int32
		under := newUnderWay(maxUnderWay)
		h := newWhole(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if now.Add(1) > 1 {
				t.Error("two alike answers are made at once")
			}
			defer now.Add(-1)
			n := made.Add(1)
			time.Sleep(time.Second)
			w.Header().Set("X-Of", r.URL.Path)
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, n)
		}), under)
		want := func(n int32) {
			t.Helper()
			if w := get(t.Context(), h, "/a"); w.Body.String() != fmt.Sprint(n) ||
				w.Code != http.StatusAccepted || w.Header().Get("X-Of") != "/a" {
				t.Errorf("%d %q, want answer %d", w.Code, w.Body, n)
			}
		}
		var asking sync.WaitGroup
		asking.Go(func() { want(1) })
		synctest.Wait()
		for range 1000 {
			asking.Go(func() { want(2) })
		}
		asking.Wait()
		want(3)
		if len(h.lines) > 0 || len(under.texts) > 0 || under.total != 0 {
			t.Errorf("left are %v, %v, %d bytes", h.lines, under.texts, under.total)
		}
	})
}

// Making an answer ends when all its clients have gone, and not before.
func TestAnAnswerThatNobodyWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended []time.Duration
		began := time.Now()
		under := newUnderWay(maxUnderWay)
		h := newWhole(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-time.After(10 * time.Second):
			}
			ended = append(ended, time.Since(began))
			_, _ = io.WriteString(w, "late")
		}), under)
		var asking sync.WaitGroup
		ask := func(patience time.Duration) {
			asking.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				get(ctx, h, "/a")
			})
			synctest.Wait()
		}
		ask(time.Second)     // the first, alone, ends with its client
		ask(2 * time.Second) // the second is made from 1 s on for these three
		ask(4 * time.Second)
		ask(3 * time.Second)
		asking.Wait()
		want := []time.Duration{time.Second, 4 * time.Second}
		if !slices.Equal(ended, want) {
			t.Errorf("answers ended after %v, want %v", ended, want)
		}
		if len(h.lines) > 0 || len(under.texts) > 0 || under.total != 0 {
			t.Errorf("left are %v, %v, %d bytes", h.lines, under.texts, under.total)
		}
	})
}

// Answers to different requests are made a few at a time. A request that does not get its turn is
// told so.
func TestFewAnswersAreMadeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, top atomic.Int32
		h := newWhole(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			top.Store(max(top.Load(), now.Add(1)))
			defer now.Add(-1)
			time.Sleep(20 * time.Second)
		}), newUnderWay(maxUnderWay))
		var busy atomic.Int32
		var asking sync.WaitGroup
		for i := range 4 * maxMaking {
			asking.Go(func() {
				if get(t.Context(), h, fmt.Sprint("/?", i)).Code == http.StatusServiceUnavailable {
					busy.Add(1)
				}
			})
		}
		asking.Wait()
		if top.Load() != maxMaking || busy.Load() != 2*maxMaking {
			t.Errorf("%d at once, %d were told to come again", top.Load(), busy.Load())
		}
	})
}

// A client that does not read is disconnected after ten seconds, even from a long answer.
func TestDeafClientIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := newUnderWay(maxUnderWay)
		e := &endpoint{server: newHTTPServer(newWhole(http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) }),
			under))}
		listener := make(pipes, 1)
		served := make(chan error, 1)
		go func() { served <- e.server.Serve(listener) }()
		client, server := net.Pipe()
		listener <- server
		if _, err := client.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(pieceTimeout + time.Second)
		synctest.Wait()
		if len(under.texts) > 0 || under.total != 0 {
			t.Errorf("%d bytes are held", under.total)
		}
		_ = client.Close()
		close(listener)
		<-served
		_ = e.server.Close()
	})
}

// Answers that nobody reads are bounded in total. Those that are read arrive whole, whatever else
// is held, on HTTP/1 and on HTTP/2 streams.
func TestDeafClientsHaveABound(t *testing.T) {
	const size, most = 4 << 20, 20 << 20 // the kernel buffers a part of each
	cert, pool := certificate(t)
	under := newUnderWay(most)
	var made atomic.Int32
	h := newWhole(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte{byte(made.Add(1))}, size))
	}), under)
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	defer s.CloseClientConnections()
	for _, two := range []bool{false, true} {
		for i := range 40 {
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool},
				ForceAttemptHTTP2: two}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport}
			deaf, err := client.Get(fmt.Sprint(s.URL, "/?", i))
			if err != nil {
				t.Fatal(err)
			}
			defer deaf.Body.Close()
			if held := under.held(); held > most {
				t.Fatalf("%d bytes are held", held)
			}
			good, err := client.Get(fmt.Sprint(s.URL, "/?good", i))
			if err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, good.Body); n != size || err != nil {
				t.Fatalf("one who reads got %d bytes: %v", n, err)
			}
			good.Body.Close()
		}
	}
}

// held returns the number of bytes being sent.
func (u *underWay) held() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.total
}

// h2 is a connection on which a test sends HTTP/2 frames.
type h2 struct {
	*http2.Framer
	fields bytes.Buffer
}

func dialH2(t *testing.T, address string, pool *x509.CertPool) *h2 {
	t.Helper()
	c, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	out := &h2{Framer: http2.NewFramer(c, c)}
	encoder := hpack.NewEncoder(&out.fields)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", "/x"},
		{":authority", address}} {
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return out
}

// A connection that cancels requests without end is closed before most of them are served, and the
// streams of a connection are bounded.
func TestRapidReset(t *testing.T) {
	cert, pool := certificate(t)
	var asked atomic.Int32
	s, _ := start(t, Config{Listeners: []Listener{{
		Address: anyPort, TLS: &tls.Config{Certificates: []tls.Certificate{cert},
			NextProtos: []string{"h2"}},
		Routes: []route.Route{{Method: "GET", Pattern: "/x", Stream: true, Handler: http.HandlerFunc(
			func(_ http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				<-r.Context().Done()
			})}},
	}}})
	for name, started := range map[string]bool{"at once": false, "when they have begun": true} {
		asked.Store(0)
		began := time.Now()
		c := dialH2(t, s.Addrs()[0].String(), pool)
		streams, closed := make(chan uint32, 1), make(chan struct{})
		go c.listen(streams, closed)
		if most := <-streams; most != maxStreams {
			t.Errorf("%d streams at once", most)
		}
		ended := func() bool {
			select {
			case <-closed:
				return true
			default:
				return false
			}
		}
		for id := uint32(1); !ended(); id += 2 {
			before := asked.Load()
			if c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndStream: true,
				EndHeaders: true, BlockFragment: c.fields.Bytes()}) != nil {
				break
			}
			for started && asked.Load() == before && !ended() {
				time.Sleep(time.Millisecond)
			}
			if c.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
				break
			}
		}
		<-closed
		most := resetsAtOnce + maxStreams + resetsPerSecond*(1+int(time.Since(began)/time.Second))
		if n := int(asked.Load()); n > most {
			t.Errorf("%s: %d requests that were given up were looked at", name, n)
		}
	}
}

// listen reads frames until the connection ends; streams receives the bound on streams.
func (c *h2) listen(streams chan<- uint32, closed chan<- struct{}) {
	defer close(closed)
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			return
		}
		if settings, ok := frame.(*http2.SettingsFrame); ok && !settings.IsAck() {
			most, _ := settings.Value(http2.SettingMaxConcurrentStreams)
			streams <- most
		}
	}
}

// A stream survives whatever other users hold: more idle connections than allowed, or the full
// number of streams.
func TestStreamsAreCutLast(t *testing.T) {
	release := make(chan struct{})
	s, _ := start(t, Config{Listeners: []Listener{{Address: anyPort,
		Authorize: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(w, WithUser(r, r.Header.Get("User")))
			})
		},
		Routes: []route.Route{{Method: "GET", Pattern: "/x", Stream: true, Handler: Long(http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "first")
				<-release
				_, _ = io.WriteString(w, "last")
			}), time.Minute)}},
	}}})
	address := s.Addrs()[0].String()
	ask := func(user, path string) *http.Response {
		t.Helper()
		transport := &http.Transport{IdleConnTimeout: time.Hour}
		t.Cleanup(transport.CloseIdleConnections)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("User", user)
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	stream := ask("admin", "/x")
	if _, err := io.ReadFull(stream.Body, make([]byte, len("first"))); err != nil {
		t.Fatal(err)
	}
	for range bounded.Connections() + 10 {
		if _, err := io.Copy(io.Discard, ask("other", "/healthz").Body); err != nil {
			t.Fatal(err)
		}
	}
	for range bounded.Connections() + 10 {
		ask("other", "/x")
	}
	close(release)
	if last, err := io.ReadAll(stream.Body); err != nil || string(last) != "last" {
		t.Errorf("the stream has %q, %v", last, err)
	}
}
