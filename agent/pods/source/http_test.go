package source

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/internal/complaint"
)

// answers is the answer of a server in memory.
type answers struct {
	status int
	body   string
	err    error
}

// memoryServer gives the same answer until the next is set.
type memoryServer struct {
	mu   sync.Mutex
	next answers
}

func (s *memoryServer) set(a answers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = a
}

func (s *memoryServer) RoundTrip(*http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.next
	if a.err != nil {
		return nil, a.err
	}
	return &http.Response{StatusCode: a.status, Status: http.StatusText(a.status),
		Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

func item(name, image string) string {
	return `{"metadata":{"name":"` + name + `"},"spec":{"containers":[{"name":"c","image":"` +
		image + `"}]}}`
}

func podList(items ...string) string {
	return `{"apiVersion":"v1","kind":"PodList","items":[` + strings.Join(items, ",") + `]}`
}

func TestHTTPFollowsAnswers(t *testing.T) {
	tests := []struct {
		answer answers
		sets   []string // delivered because of this answer; nil: none
		reason []string // of the problems; "": one is over
	}{
		{answers{500, "x", nil}, nil, []string{manifest.Unreadable}},
		{answers{500, "x", nil}, nil, nil},
		{answers{0, "", errors.New("connection refused")}, nil, []string{manifest.Unreadable}},
		{answers{200, manifestOf("a"), nil}, []string{"a-node"}, []string{""}},
		{answers{200, manifestOf("a"), nil}, nil, nil},
		{answers{404, "", nil}, nil, []string{manifest.Unreadable}},
		{answers{200, "kind: [", nil}, nil, []string{manifest.InvalidManifest}},
		{answers{200, podList(item("a", "i"), item("b", "i")), nil}, []string{"a-node", "b-node"},
			[]string{""}},
		{answers{200, podList(item("a", "j"), item("b", ""), item("c", "")), nil},
			[]string{"a-node", "b-node"}, []string{manifest.FailedValidation, manifest.FailedValidation}},
		{answers{200, podList(item("a", "j"), item("b", "k"), `{"foo":1}`), nil},
			[]string{"a-node", "b-node"}, []string{manifest.FailedValidation, manifest.IgnoredField, ""}},
		{answers{200, "", nil}, []string{}, []string{manifest.InvalidManifest, ""}},
		{answers{200, "", nil}, nil, nil},
		{answers{200, strings.Repeat("#", manifest.MaxBytes+1), nil}, nil, []string{manifest.Unreadable}},
		{answers{200, podList(item("b", "")), nil}, []string{}, []string{manifest.FailedValidation, ""}},
	}
	synctest.Test(t, func(t *testing.T) {
		var server memoryServer
		var reasons []string
		var sets [][]string
		h := NewHTTP(HTTPConfig{
			URL: "http://u:secret@host/x", Node: "node", Every: 20 * time.Second,
			Report: func(p complaint.Problem) {
				reasons = append(reasons, p.Reason)
				if strings.Contains(p.Name+p.Message, "secret") {
					t.Errorf("the password is told: %+v", p)
				}
			},
		})
		h.client.Transport = &server
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		for i, tt := range tests {
			reasons, sets = nil, nil
			server.set(tt.answer)
			if i == 0 {
				go func() {
					done <- h.Run(ctx, func(pods []*v1.Pod) {
						sets = append(sets, append([]string{}, names(pods)...))
					})
				}()
			} else {
				time.Sleep(20 * time.Second)
			}
			synctest.Wait()
			var want [][]string
			if tt.sets != nil {
				want = [][]string{tt.sets}
			}
			if diff := cmp.Diff(want, sets); diff != "" {
				t.Errorf("answer %d: sets -want +got:\n%s", i, diff)
			}
			if diff := cmp.Diff(tt.reason, reasons); diff != "" {
				t.Errorf("answer %d: problems -want +got:\n%s", i, diff)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestHTTPRequest uses a real server.
func TestHTTPRequest(t *testing.T) {
	asked := make(chan *http.Request, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r:
		default:
		}
		_, _ = io.WriteString(w, manifestOf("a"))
	}))
	defer server.Close()
	h := NewHTTP(HTTPConfig{URL: server.URL + "/pods?x=1", Node: "node", Every: time.Hour,
		Header: http.Header{"X-Token": {"one", "two"}, "host": {"other"}}})
	ctx, cancel := context.WithCancel(t.Context())
	sets := make(chan []*v1.Pod, 10)
	done := make(chan error)
	go func() { done <- h.Run(ctx, func(pods []*v1.Pod) { sets <- pods }) }()
	pod := (<-sets)[0]
	if pod.Name != "a-node" || len(pod.Spec.Tolerations) != 0 {
		t.Errorf("pod %s with tolerations %v", pod.Name, pod.Spec.Tolerations)
	}
	r := <-asked
	if r.Method != "GET" || r.Host != "other" || r.URL.String() != "/pods?x=1" ||
		!cmp.Equal(r.Header["X-Token"], []string{"one", "two"}) {
		t.Errorf("request %s %s of %s, header %v", r.Method, r.URL, r.Host, r.Header)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestHTTPHangingServer: the feed ends during a request.
func TestHTTPHangingServer(t *testing.T) {
	release, arrived := make(chan struct{}), make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(release)
	h := NewHTTP(HTTPConfig{URL: server.URL, Node: "node", Every: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- h.Run(ctx, func([]*v1.Pod) { t.Error("a set from nothing") }) }()
	<-arrived
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
