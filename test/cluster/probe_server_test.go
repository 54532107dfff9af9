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
	"time"
)

// sideAddress stands for the address of a node's probe server in pods of both nodes.
const sideAddress = "answers.of.this.side"

// probeServer answers probes and hooks of one node, and records the requests. The first part of a
// path selects the answer, the second names the pod: /fails/pod.
type probeServer struct {
	address string

	mu    sync.Mutex
	asked map[string]map[string]bool // by pod
	times map[string]int             // by path
	sick  map[string]bool            // by pod, as sicken set it
}

// newProbeServers returns a server for each node, on the same port of different addresses.
func newProbeServers(t *testing.T, sides int) (port int, out []*probeServer) {
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
	case "late":
		time.Sleep(1500 * time.Millisecond)
	case "once-fails":
		if first {
			w.WriteHeader(http.StatusInternalServerError)
		}
	case "once-garbles":
		if first {
			garble(w)
		}
	case "well": // until sicken
		if a.isSick(parts[2]) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	case "elsewhere":
		r.URL.Path = "/ok/" + parts[2]
		http.Redirect(w, r, r.URL.RequestURI(), http.StatusFound)
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

// sicken makes a pod's checks under /well fail from now on.
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

// garblesTo is the first part of a path whose first requests get an answer that is not HTTP.
const garblesTo = "garbles-to-%d"

// failsFromTo is the first part of a path whose requests with these numbers, from 1, fail.
const failsFromTo = "fails-%d-to-%d"

// count counts a request of a path, and returns its number.
func (a *probeServer) count(path string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.times[path]++
	return a.times[path]
}

// garble writes an answer that is not HTTP. Closing the connection would not do: on a reused
// connection, which the kubelet has for hooks, a client then repeats the request.
func garble(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_, _ = conn.Write([]byte("none of your business\r\n\r\n"))
		_ = conn.Close()
	}
}

// note records a request, and reports whether it is the first of its kind.
func (a *probeServer) note(pod string, r *http.Request) bool {
	text := fmt.Sprint(r.Method, " ", r.URL, " at ", r.Host, " over ", r.Proto)
	if strings.HasPrefix(r.UserAgent(), "kube-lifecycle/") {
		// The kubelet keeps connections of hooks, and accepts compressed answers.
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

// about returns the requests for a pod, sorted.
func (a *probeServer) about(pod string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.asked[pod]))
}
