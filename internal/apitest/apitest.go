// Package apitest has an API server in memory with one pod, for tests where no real one can run.
package apitest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

const patience = 3 * time.Minute

// Server is an API server with one pod and no services. It keeps what else is created, and forgets all else.
type Server struct {
	*httptest.Server

	mu      sync.Mutex // guards the fields below
	version int
	pod     *v1.Pod
	objects map[string][]byte // by path
	changed chan struct{}     // closed and replaced when the pod changes
}

// Start returns the server, and the path of a kubeconfig for it. It ends with the test.
func Start(t *testing.T, pod *v1.Pod) (a *Server, kubeconfig string) {
	t.Helper()
	a = &Server{pod: pod, objects: map[string][]byte{}, changed: make(chan struct{})}
	a.Change(func(*v1.Pod) {})
	a.Server = httptest.NewServer(http.HandlerFunc(a.answer))
	t.Cleanup(func() { a.CloseClientConnections(); a.Close() })
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: a,
clusters: [{name: a, cluster: {server: %q}}],
users: [{name: a, user: {token: a}}], contexts: [{name: a, context: {cluster: a, user: a}}]}`, a.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return a, kubeconfig
}

// Change changes the pod.
func (a *Server) Change(how func(*v1.Pod)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	a.pod = a.pod.DeepCopy()
	how(a.pod)
	a.pod.ResourceVersion = strconv.Itoa(a.version)
	a.pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	close(a.changed)
	a.changed = make(chan struct{})
}

// Pod returns the pod, which is never written to, and a channel that is closed when it changes.
func (a *Server) Pod() (*v1.Pod, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pod, a.changed
}

// Await waits until the pod is as it should be, for a time that suits a slow machine.
func (a *Server) Await(t *testing.T, otherwise string, is func(*v1.Pod) bool) {
	t.Helper()
	for late := time.After(patience); ; {
		pod, changed := a.Pod()
		if is(pod) {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("%s: %+v", otherwise, pod.Status)
		}
	}
}

func (a *Server) answer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	pods, watched := strings.HasSuffix(r.URL.Path, "/pods"), r.URL.Query().Get("watch") != ""
	pod, _ := a.Pod()
	switch {
	case watched && pods && r.URL.Query().Get("sendInitialEvents") == "":
		a.watch(w, r)
	case watched:
		refuse(w, http.StatusUnprocessableEntity)
	case pods:
		send(w, v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"},
			ListMeta: metav1.ListMeta{ResourceVersion: pod.ResourceVersion}, Items: []v1.Pod{*pod}})
	case strings.Contains(r.URL.Path, "/pods/"):
		a.patch(w, r)
	default:
		a.keep(w, r)
	}
}

// watch sends the pod each time it changes.
func (a *Server) watch(w http.ResponseWriter, r *http.Request) {
	for since := r.URL.Query().Get("resourceVersion"); r.Context().Err() == nil; {
		pod, changed := a.Pod()
		if pod.ResourceVersion != since {
			since = pod.ResourceVersion
			send(w, map[string]any{"type": "MODIFIED", "object": pod})
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
		}
	}
}

// patch answers what is asked about the pod, and takes its status.
func (a *Server) patch(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if r.Method == http.MethodPatch && err == nil {
		a.Change(func(p *v1.Pod) {
			was, _ := json.Marshal(p)
			if was, err = strategicpatch.StrategicMergePatch(was, body, v1.Pod{}); err == nil {
				*p = v1.Pod{}
				err = json.Unmarshal(was, p)
			}
		})
	}
	if err != nil {
		refuse(w, http.StatusBadRequest)
		return
	}
	pod, _ := a.Pod()
	send(w, pod)
}

// keep stores what is created, and returns it.
func (a *Server) keep(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	path := strings.TrimSuffix(r.URL.Path, "/status")
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		body, err := io.ReadAll(r.Body)
		var named metav1.PartialObjectMetadata
		if err != nil || json.Unmarshal(body, &named) != nil {
			refuse(w, http.StatusBadRequest)
			return
		}
		if r.Method == http.MethodPost {
			path += "/" + named.Name
			w.WriteHeader(http.StatusCreated)
		}
		a.objects[path] = body
	}
	if a.objects[path] == nil && strings.HasSuffix(path, "/services") {
		send(w, v1.ServiceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"},
			ListMeta: metav1.ListMeta{ResourceVersion: "1"}})
		return
	}
	if a.objects[path] == nil {
		refuse(w, http.StatusNotFound)
		return
	}
	_, _ = w.Write(a.objects[path])
}

func send(w http.ResponseWriter, what any) { _ = json.NewEncoder(w).Encode(what) }

func refuse(w http.ResponseWriter, code int) {
	w.WriteHeader(code)
	reason := map[int]metav1.StatusReason{http.StatusNotFound: metav1.StatusReasonNotFound}[code]
	send(w, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Code: int32(code),
		Status: metav1.StatusFailure, Reason: reason})
}
