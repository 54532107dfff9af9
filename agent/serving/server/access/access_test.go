package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
)

// paths maps paths of the node API to the subresources that allow them.
var paths = map[string][]string{
	"/healthz": {"healthz", "proxy"}, "/healthz/syncloop": {"healthz", "proxy"},
	"/pods": {"pods", "proxy"}, "/runningpods/": {"pods", "proxy"},
	"/allocatedPods": {"pods", "proxy"}, "/allocatedPods/a/b/c": {"pods", "proxy"},
	"/configz": {"configz", "proxy"},
	"/stats":   {"stats"}, "/stats/summary": {"stats"},
	"/metrics": {"metrics"}, "/metrics/cadvisor": {"metrics"}, "/metrics/resource": {"metrics"},
	"/metrics/probes": {"metrics"}, "/metrics/slis": {"metrics"},
	"/logs/": {"log"}, "/logs/syslog": {"log"},
	"/checkpoint/a/b/c": {"checkpoint"}, "/statusz": {"statusz"}, "/flagz": {"configz"},
	"/run/a/b/c": {"proxy"}, "/exec/a/b/c": {"proxy"}, "/attach/a/b/c": {"proxy"},
	"/portForward/a/b": {"proxy"}, "/containerLogs/a/b/c": {"proxy"},
	"/debug/pprof/": {"proxy"}, "/debug/flags/v": {"proxy"},
	"/placements": {"proxy"}, "/problems": {"proxy"}, "/plugins": {"proxy"}, "/drivers": {"proxy"},
	"/csidrivers": {"proxy"}, "/events": {"proxy"}, "/free": {"proxy"},
	"/debug/admission/a/b": {"proxy"}, "/debug/fit": {"proxy"}, "/debug/shortage": {"proxy"},
	"/": {"proxy"}, "/metricsfoo": {"proxy"}, "/podsx": {"proxy"}, "//stats": {"proxy"},
}

// apiServer runs an API server. Tokens equal the names of their users; allowed holds their rights.
func apiServer(t *testing.T, allowed map[string][]string) (Reviewer, *reviews) {
	t.Helper()
	asked := &reviews{allowed: allowed}
	s := httptest.NewServer(asked)
	t.Cleanup(s.Close)
	c, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c, asked
}

// reviews answers TokenReviews and SubjectAccessReviews, and records the latter.
type reviews struct {
	allowed map[string][]string
	// hold, if it is there, has a value for each SubjectAccessReview that is answered.
	hold  chan struct{}
	mu    sync.Mutex
	asked []authorizationv1.ResourceAttributes
}

func (s *reviews) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var token authenticationv1.TokenReview
	var rights authorizationv1.SubjectAccessReview
	raw, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(raw, &token) != nil || json.Unmarshal(raw, &rights) != nil {
		http.Error(w, "not a review", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	if token.Kind == "TokenReview" {
		_, token.Status.Authenticated = s.allowed[token.Spec.Token]
		token.Status.User.Username = token.Spec.Token
		_ = json.NewEncoder(w).Encode(token)
		return
	}
	what := *rights.Spec.ResourceAttributes
	s.mu.Lock()
	s.asked = append(s.asked, what)
	s.mu.Unlock()
	if s.hold != nil {
		<-s.hold
	}
	for _, right := range s.allowed[rights.Spec.User] {
		if right == what.Verb+" "+what.Subresource {
			rights.Status.Allowed = true
		}
	}
	if slices.Contains(s.allowed[rights.Spec.User], "lost") {
		rights.Status.Denied, rights.Status.Allowed = true, true // a contradiction
	}
	_ = json.NewEncoder(w).Encode(rights)
}

func config(reviewer Reviewer) Config {
	c := Config{Node: "node1", Reviewer: reviewer}
	c.Authentication.Anonymous.Enabled = ptr.To(false)
	c.Authentication.Webhook.Enabled = ptr.To(true)
	c.Authentication.Webhook.CacheTTL.Duration = 2 * time.Minute
	c.Authorization.Mode = kubeletv1beta1.KubeletAuthorizationModeWebhook
	c.Authorization.Webhook.CacheAuthorizedTTL.Duration = 5 * time.Minute
	c.Authorization.Webhook.CacheUnauthorizedTTL.Duration = 30 * time.Second
	return c
}

func ask(t *testing.T, a *Access, method, path, token string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(method, "http://node1"+path, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	a.Authorize(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "in")
	})).ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// TestEveryPath: without credentials the answer is 401, without sufficient rights 403, and each
// sufficient right is enough. Every method has its verb.
func TestEveryPath(t *testing.T) {
	rights := map[string][]string{"none": nil}
	for _, sub := range []string{
		"stats", "metrics", "log", "checkpoint", "statusz", "healthz", "configz", "pods", "proxy",
		"spec",
	} {
		for _, verb := range []string{"get", "create", "update", "patch", "delete"} {
			rights[sub] = append(rights[sub], verb+" "+sub)
		}
	}
	server, _ := apiServer(t, rights)
	a, err := New(config(server))
	if err != nil {
		t.Fatal(err)
	}
	for path, enough := range paths {
		for method, verb := range map[string]string{
			"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch",
			"DELETE": "delete",
		} {
			if code, body := ask(t, a, method, path, ""); code != 401 || body != "Unauthorized" {
				t.Errorf("%s %s without credentials: %d %q", method, path, code, body)
			}
			for token := range rights {
				code, body := ask(t, a, method, path, token)
				if strings.Contains(" "+strings.Join(enough, " ")+" ", " "+token+" ") {
					if code != 200 || body != "in" {
						t.Errorf("%s %s with %s: %d %q", method, path, token, code, body)
					}
					continue
				}
				want := "Forbidden (user=" + token + ", verb=" + verb +
					", resource=nodes, subresource(s)=[" + strings.Join(enough, " ") + "])\n"
				if code != 403 || body != want {
					t.Errorf("%s %s with %s: %d %q, want 403 %q", method, path, token, code, body,
						want)
				}
			}
		}
	}
}

// Reviews name the node, and their answers are cached.
func TestReviews(t *testing.T) {
	server, reviews := apiServer(t, map[string][]string{"ann": {"get proxy"}})
	a, err := New(config(server))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if code, body := ask(t, a, "GET", "/pods", "ann"); code != 200 {
			t.Fatalf("%d %s", code, body)
		}
	}
	asked := reviews.asked
	if len(asked) != 2 || asked[0].Subresource != "pods" || asked[1].Subresource != "proxy" ||
		asked[0].Name != "node1" || asked[0].Resource != "nodes" || asked[0].Group != "" ||
		asked[0].Version != "v1" || asked[0].Verb != "get" {
		t.Errorf("the API server was asked %v", asked)
	}
	if code, body := ask(t, a, "GET", "/pods", "unknown"); code != 401 {
		t.Errorf("a token that nobody knows: %d %s", code, body)
	}
}

// Requests that are given up before it is known whether they are allowed cost one question: its answer
// is what the next one is let in by.
func TestGivenUp(t *testing.T) {
	server, reviews := apiServer(t, map[string][]string{"ann": {"get pods"}})
	reviews.hold = make(chan struct{})
	a, err := New(config(server))
	if err != nil {
		t.Fatal(err)
	}
	questions := func() int {
		reviews.mu.Lock()
		defer reviews.mu.Unlock()
		return len(reviews.asked)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var given sync.WaitGroup
	for i := range 20 {
		given.Go(func() {
			r := httptest.NewRequestWithContext(ctx, "GET", "http://node1/pods", nil)
			r.Header.Set("Authorization", "Bearer ann")
			a.Authorize(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
		})
		for i == 0 && questions() == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	cancel()
	time.Sleep(100 * time.Millisecond) // so that all of them hear of it before the answer comes
	reviews.hold <- struct{}{}
	close(reviews.hold)
	given.Wait()
	if code, body := ask(t, a, "GET", "/pods", "ann"); code != 200 || questions() != 1 {
		t.Errorf("%d %s after %d questions, want 200 after one", code, body, questions())
	}
}

// A contradictory answer of the API server is our error, not the client's.
func TestNoReview(t *testing.T) {
	server, _ := apiServer(t, map[string][]string{"lost": {"lost"}})
	a, err := New(config(server))
	if err != nil {
		t.Fatal(err)
	}
	code, body := ask(t, a, "POST", "/stats/summary", "lost")
	want := "Authorization error (user=lost, verb=create, resource=nodes, subresource=stats)"
	if code != 500 || body != want {
		t.Errorf("%d %q, want 500 %q", code, body, want)
	}
}

// TestNobody: New refuses settings under which nobody could be allowed, and says what to change. It
// accepts the others.
func TestNobody(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.crt")
	newAuthority(t, "first").write(t, ca)
	server, _ := apiServer(t, nil)
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"standalone": {func(c *Config) { c.Reviewer = nil }, "--kubeconfig"},
		"standalone, certificates": {func(c *Config) {
			c.Reviewer, c.Authentication.X509.ClientCAFile = nil, ca
		}, "AlwaysAllow"},
		"nobody known": {func(c *Config) { *c.Authentication.Webhook.Enabled = false },
			"clientCAFile"},
		"standalone, certificates, all may": {func(c *Config) {
			c.Reviewer, c.Authentication.X509.ClientCAFile = nil, ca
			c.Authorization.Mode = kubeletv1beta1.KubeletAuthorizationModeAlwaysAllow
		}, ""},
		"strangers": {func(c *Config) {
			c.Reviewer, *c.Authentication.Anonymous.Enabled = nil, true
			c.Authorization.Mode = kubeletv1beta1.KubeletAuthorizationModeAlwaysAllow
		}, ""},
		"cluster": {func(*Config) {}, ""},
	} {
		c := config(server)
		tc.change(&c)
		switch _, err := New(c); {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.want != "" && (!errors.Is(err, ErrNobody) || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, want ErrNobody with %s", name, err, tc.want)
		}
	}
}

// TestBadBundle: the error names the unusable bundle and says what to name instead. Reading it
// neither blocks nor goes on without end.
func TestBadBundle(t *testing.T) {
	server, _ := apiServer(t, nil)
	dir := t.TempDir()
	for name, text := range map[string]string{"empty": "", "garbage": "no certificate"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{dir + "/none", dir + "/empty", dir + "/garbage", dir + "/pipe", dir,
		"/dev/zero"} {
		c := config(server)
		c.Authentication.X509.ClientCAFile = file
		_, err := New(c)
		if err == nil || !strings.Contains(err.Error(), "clientCAFile (--client-ca-file) "+file+": ") ||
			!strings.Contains(err.Error(), "; name a file with the certificates") {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// Unauthenticated clients are system:anonymous, with that user's rights.
func TestAnonymous(t *testing.T) {
	server, _ := apiServer(t, map[string][]string{"system:anonymous": {"get healthz"}})
	c := config(server)
	if Warning(c) != "" {
		t.Errorf("warning: %s", Warning(c))
	}
	*c.Authentication.Anonymous.Enabled = true
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if code, body := ask(t, a, "GET", "/healthz", ""); code != 200 {
		t.Errorf("%d %s", code, body)
	}
	if code, body := ask(t, a, "GET", "/pods", ""); code != 403 ||
		!strings.Contains(body, "user=system:anonymous") {
		t.Errorf("%d %s", code, body)
	}
	c.Authorization.Mode = kubeletv1beta1.KubeletAuthorizationModeAlwaysAllow
	if !strings.Contains(Warning(c), "--anonymous-auth") {
		t.Errorf("warning: %q", Warning(c))
	}
}

// authority signs client certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true,
		BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key}
}

func (a authority) write(t *testing.T, path string) {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// client returns a certificate of the user in those groups.
func (a authority) client(t *testing.T, user string, groups ...string) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: user, Organization: groups},
		NotAfter:    time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// TestClientCertificates: certificates of the bundle's authorities are accepted, and a replaced
// bundle takes effect.
func TestClientCertificates(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	first, second := newAuthority(t, "first"), newAuthority(t, "second")
	first.write(t, file)
	server, _ := apiServer(t, map[string][]string{"ann": {"get stats"}})
	c := config(server)
	c.Authentication.X509.ClientCAFile = file
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	with := func(cert *x509.Certificate) int {
		r := httptest.NewRequest("GET", "https://node1/stats/summary", nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
		w := httptest.NewRecorder()
		a.Authorize(http.NotFoundHandler()).ServeHTTP(w, r)
		return w.Code
	}
	ann, bob := first.client(t, "ann"), first.client(t, "bob")
	stranger := second.client(t, "ann")
	if with(ann) != 404 || with(bob) != 403 || with(stranger) != 401 {
		t.Errorf("of the bundle %d and %d, of another %d", with(ann), with(bob), with(stranger))
	}
	before := a.ClientCAs()
	second.write(t, file)
	deadline := time.Now().Add(2 * time.Minute)
	for with(stranger) != 404 {
		if time.Now().After(deadline) {
			t.Fatal("the new bundle does not count")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if with(ann) != 401 || before.Equal(a.ClientCAs()) {
		t.Errorf("certificates of the bundle that was: %d", with(ann))
	}
	if err := os.WriteFile(file, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if with(stranger) != 404 {
		t.Error("a bundle that cannot be read took the last good one's place")
	}
}
