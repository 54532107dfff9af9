package objects

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// server is an API server for the requests that nodes make for pods' objects. Like the real one it
// sends those of a watch that a field selector names, and only them.
type server struct {
	t      *testing.T
	client kubernetes.Interface

	mu       sync.Mutex
	version  int
	objects  map[string]metav1.Object // by resource/namespace/name
	watches  map[*watcher]bool
	opened   map[string]int // watches, by resource/namespace/name; gets have "GET " before it
	refuse   int            // the code of each answer; 0: none is refused
	tokens   []authenticationv1.TokenRequest
	lifetime time.Duration // of tokens
	bundles  []certificatesv1.ClusterTrustBundle
}

type watcher struct {
	of     func(path string) bool
	events chan []byte
}

func newServer(t *testing.T) *server {
	s := &server{t: t, objects: map[string]metav1.Object{}, watches: map[*watcher]bool{},
		opened: map[string]int{}, lifetime: time.Hour}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	t.Cleanup(h.CloseClientConnections)
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: h.URL, QPS: 1000, Burst: 1000,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.client = client
	return s
}

func (s *server) put(o metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := pathOf(o)
	kind := "ADDED"
	if _, has := s.objects[path]; has {
		kind = "MODIFIED"
	}
	s.version++
	o.SetResourceVersion(fmt.Sprint(s.version))
	o.SetUID(types.UID(path))
	s.objects[path] = o
	s.sendLocked(kind, path, o)
}

func (s *server) remove(o metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	path := pathOf(o)
	o.SetResourceVersion(fmt.Sprint(s.version))
	delete(s.objects, path)
	s.sendLocked("DELETED", path, o)
}

// cut ends all watches, and refuses what comes with the code; 0: no longer.
func (s *server) cut(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = code
	for w := range s.watches {
		close(w.events)
		delete(s.watches, w)
	}
}

func (s *server) sendLocked(kind, path string, o metav1.Object) {
	for w := range s.watches {
		if w.of(path) {
			w.events <- event(kind, o)
		}
	}
}

func event(kind string, o any) []byte {
	text, err := json.Marshal(map[string]any{"type": kind, "object": o})
	if err != nil {
		panic(err)
	}
	return append(text, '\n')
}

// watching is how many watches are open, for one path or all ("").
func (s *server) watching(path string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		if path == "" || w.of(path) {
			n++
		}
	}
	return n
}

func (s *server) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened[what]
}

func pathOf(o metav1.Object) string {
	resource := "configmaps"
	switch o := o.(type) {
	case *v1.ConfigMap:
		o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	case *v1.Secret:
		resource, o.TypeMeta = "secrets", metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
	case *v1.Service:
		resource, o.TypeMeta = "services", metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
	case *nodev1.RuntimeClass:
		resource = "runtimeclasses"
		o.TypeMeta = metav1.TypeMeta{APIVersion: "node.k8s.io/v1", Kind: "RuntimeClass"}
	}
	return resource + "/" + o.GetNamespace() + "/" + o.GetName()
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	s.mu.Lock()
	code := s.refuse
	s.mu.Unlock()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case code != 0:
		status(w, code, "refused by the test")
	case strings.HasSuffix(r.URL.Path, "/token"):
		s.token(w, r)
	case strings.Contains(r.URL.Path, "clustertrustbundles"):
		s.trust(w, r, parts)
	case strings.Contains(r.URL.Path, "runtimeclasses"):
		s.get(w, "runtimeclasses//"+parts[4])
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r, parts)
	case len(parts) == 6:
		s.get(w, parts[4]+"/"+parts[3]+"/"+parts[5])
	default:
		// Watches bring what there is at their begin.
		status(w, http.StatusBadRequest, "the test has no lists")
	}
}

func status(w http.ResponseWriter, code int, message string) {
	reason := metav1.StatusReasonForbidden
	if code == http.StatusNotFound {
		reason = metav1.StatusReasonNotFound
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure",
		Code: int32(code), Reason: reason, Message: message,
	})
}

func (s *server) get(w http.ResponseWriter, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened["GET "+path]++
	if o, has := s.objects[path]; has {
		_ = json.NewEncoder(w).Encode(o)
		return
	}
	status(w, http.StatusNotFound, "not found")
}

func (s *server) watch(w http.ResponseWriter, r *http.Request, parts []string) {
	prefix, selector := "services/", r.URL.Query().Get("fieldSelector")
	if len(parts) == 5 {
		prefix = parts[4] + "/" + parts[3] + "/"
		name, ok := strings.CutPrefix(selector, "metadata.name=")
		if !ok {
			status(w, http.StatusForbidden, "a node may watch single objects only")
			return
		}
		prefix += name
	} else if selector != "spec.clusterIP!=None" {
		status(w, http.StatusForbidden, "headless services are none of its business")
		return
	}
	one := &watcher{events: make(chan []byte, 1000), of: func(path string) bool {
		return path == prefix || strings.HasSuffix(prefix, "/") && strings.HasPrefix(path, prefix)
	}}
	s.mu.Lock()
	s.opened[prefix]++
	for path, o := range s.objects {
		if one.of(path) {
			one.events <- event("ADDED", o)
		}
	}
	mark := map[string]any{"apiVersion": "v1", "kind": map[bool]string{true: "ConfigMap",
		false: "Secret"}[strings.HasPrefix(prefix, "configmaps")],
		"metadata": map[string]any{"resourceVersion": fmt.Sprint(s.version),
			"annotations": map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
	if prefix == "services/" {
		mark["kind"] = "Service"
	}
	one.events <- event("BOOKMARK", mark)
	s.watches[one] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watches, one)
	}()
	for {
		select {
		case <-r.Context().Done():
			return
		case text, open := <-one.events:
			if !open {
				return
			}
			_, _ = w.Write(text)
			w.(http.Flusher).Flush()
		}
	}
}

func (s *server) token(w http.ResponseWriter, r *http.Request) {
	var request authenticationv1.TokenRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		s.t.Error(err)
	}
	request.Name = strings.Split(r.URL.Path, "/")[6]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = append(s.tokens, request)
	request.APIVersion, request.Kind = "authentication.k8s.io/v1", "TokenRequest"
	seconds := int64(s.lifetime.Seconds())
	request.Spec.ExpirationSeconds = &seconds
	request.Status.Token = fmt.Sprint("token ", len(s.tokens))
	request.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(s.lifetime))
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(request)
}

func (s *server) trust(w http.ResponseWriter, r *http.Request, parts []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened["bundles"]++
	list := certificatesv1.ClusterTrustBundleList{}
	list.APIVersion, list.Kind = "certificates.k8s.io/v1", "ClusterTrustBundleList"
	for _, b := range s.bundles {
		b.APIVersion, b.Kind = list.APIVersion, "ClusterTrustBundle"
		if len(parts) == 5 && parts[4] == b.Name {
			_ = json.NewEncoder(w).Encode(b)
			return
		}
		signer := r.URL.Query().Get("fieldSelector")
		if signer == "spec.signerName="+b.Spec.SignerName {
			list.Items = append(list.Items, b)
		}
	}
	if len(parts) == 5 {
		status(w, http.StatusNotFound, "not found")
		return
	}
	_ = json.NewEncoder(w).Encode(list)
}

// start runs objects of the server until the test ends.
func (s *server) start(cfg Config) *Objects {
	cfg.Client = s.client
	if cfg.Changed == nil {
		cfg.Changed = func(types.UID) {}
	}
	o := New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- o.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
	return o
}

// eventually waits until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain: ", what)
		}
	}
}
