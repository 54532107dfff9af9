package cluster_test

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// sideAddress stands for the address of a side's answers in pods that both sides have.
const sideAddress = "answers.of.this.side"

// probeServer is a server that probes and hooks of one side ask, and what it was asked. What it probeServer is
// said by the first part of a path, of whom by the second: /fails/pod.
type probeServer struct {
	address string

	mu    sync.Mutex
	asked map[string]map[string]bool // by pod
	times map[string]int             // by path
	sick  map[string]bool            // by pod, what sicken has made so
}

// newAnswers are one server for each of so many sides, on the same port of different addresses.
func newAnswers(t *testing.T, sides int) (port int, out []*probeServer) {
	t.Helper()
	for i := range sides {
		a := &probeServer{address: fmt.Sprint("127.0.0.", 2+i), asked: map[string]map[string]bool{},
			times: map[string]int{}, sick: map[string]bool{}}
		listener, err := net.Listen("tcp", net.JoinHostPort(a.address, strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		port = listener.Addr().(*net.TCPAddr).Port
		server := httptest.NewUnstartedServer(a)
		_ = server.Listener.Close()
		server.Listener = listener
		server.Start()
		t.Cleanup(server.Close)
		out = append(out, a)
	}
	return port, out
}

func (a *probeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	if len(parts) != 3 {
		http.NotFound(w, r)
		return
	}
	first := a.note(parts[2], r)
	switch parts[1] {
	case "fails":
		w.WriteHeader(http.StatusServiceUnavailable)
	case "once-fails":
		if first {
			w.WriteHeader(http.StatusInternalServerError)
		}
	case "once-garbles":
		if first {
			garble(w)
		}
	case "well": // until it is made sick
		if a.isSick(parts[2]) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	case "elsewhere":
		http.Redirect(w, r, "/ok/"+parts[2], http.StatusFound)
	default:
		var first, last int
		n := a.count(r.URL.Path)
		if _, err := fmt.Sscanf(parts[1], failsFromTo, &first, &last); err == nil && first <= n && n <= last {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if _, err := fmt.Sscanf(parts[1], garblesTo, &last); err == nil && n <= last {
			garble(w)
		}
	}
}

// sicken has a pod fail from now on where it is asked whether it is well.
func (a *probeServer) sicken(pod string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sick[pod] = true
}

func (a *probeServer) isSick(pod string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sick[pod]
}

// garblesTo is the first part of a path whose first requests are answered by what is no HTTP.
const garblesTo = "garbles-to-%d"

// failsFromTo is the first part of a path whose requests of these numbers fail, from 1.
const failsFromTo = "fails-%d-to-%d"

// count is how often a path has been asked for.
func (a *probeServer) count(path string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.times[path]++
	return a.times[path]
}

// garble answers what is no HTTP. To say nothing would not do: on a connection that was used before,
// which the kubelet has for hooks, a client then asks once more.
func garble(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_, _ = conn.Write([]byte("none of your business\r\n\r\n"))
		_ = conn.Close()
	}
}

// note takes in a request, and says whether it is the first of its kind.
func (a *probeServer) note(pod string, r *http.Request) bool {
	text := fmt.Sprint(r.Method, " ", r.URL, " at ", r.Host)
	if strings.HasPrefix(r.UserAgent(), "kube-lifecycle/") {
		// The kubelet keeps connections of hooks, and asks for answers in short form.
		r.Header.Del("Connection")
		r.Header.Del("Accept-Encoding")
	}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		text += fmt.Sprintf("; %s: %q", name, r.Header[name])
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked[pod] == nil {
		a.asked[pod] = map[string]bool{}
	}
	first := !a.asked[pod][text]
	a.asked[pod][text] = true
	return first
}

// about is what was asked for a pod, in order of text.
func (a *probeServer) about(pod string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.asked[pod]))
}
