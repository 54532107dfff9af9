package faults

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
)

const podJSON = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"n"}}`

// setup returns a client through a proxy of a server with one pod; its watches send the pod at once
// and then wait. calls counts the requests that came through.
func setup(t *testing.T) (client kubernetes.Interface, p *Proxy, calls *atomic.Int64) {
	t.Helper()
	calls = new(atomic.Int64)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprint(w, podJSON)
			return
		}
		fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", podJSON)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	c := Config{
		Kubeconfig:  filepath.Join(dir, "kubeconfig"),
		Certificate: filepath.Join(dir, "crt"), Key: filepath.Join(dir, "key"),
		Random: rand.New(rand.NewPCG(1, 1)),
	}
	writeFiles(t, c, server.URL, server.TLS.Certificates[0])
	p, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	through, err := p.Redirect(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", through)
	if err != nil {
		t.Fatal(err)
	}
	if client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return client, p, calls
}

// writeFiles writes the server's certificate, which is also for 127.0.0.1, for the proxy.
func writeFiles(t *testing.T, c Config, url string, own tls.Certificate) {
	t.Helper()
	key, err := keyutil.MarshalPrivateKeyToPEM(own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate[0]})
	for file, text := range map[string][]byte{c.Certificate: crt, c.Key: key} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err = clientcmd.WriteToFile(api.Config{
		Clusters:       map[string]*api.Cluster{"c": {Server: url, CertificateAuthorityData: crt}},
		Contexts:       map[string]*api.Context{"c": {Cluster: "c"}},
		CurrentContext: "c",
	}, c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, client kubernetes.Interface, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	p, err := client.CoreV1().Pods("n").Get(ctx, "a", metav1.GetOptions{})
	if err == nil && p.Name != "a" {
		err = fmt.Errorf("got %+v", p)
	}
	return err
}

func follow(t *testing.T, client kubernetes.Interface) watch.Interface {
	t.Helper()
	w, err := client.CoreV1().Pods("n").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// next returns the next event of a watch; its type is "" if the watch has ended.
func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e := <-w.ResultChan():
		return e
	case <-time.After(time.Minute):
		t.Fatal("nothing comes of the watch")
		return watch.Event{}
	}
}

// TestAnswers: requests get the set answer, take effect only with Late, and pass again afterwards.
func TestAnswers(t *testing.T) {
	client, p, calls := setup(t)
	for code, is := range map[int]func(error) bool{
		http.StatusInternalServerError: apierrors.IsInternalError,
		http.StatusConflict:            apierrors.IsConflict,
		http.StatusGone:                apierrors.IsResourceExpired,
		http.StatusServiceUnavailable:  apierrors.IsServiceUnavailable,
		http.StatusTeapot: func(err error) bool {
			return err != nil && strings.Contains(err.Error(), "418")
		},
	} {
		for _, late := range []bool{false, true} {
			p.Set(Trouble{Share: 1, Answer: code, Late: late})
			before := calls.Load()
			if err := get(t, client, time.Minute); !is(err) {
				t.Errorf("%d is answered as %v", code, err)
			}
			if took := calls.Load() > before; took != late {
				t.Errorf("%d, late %v: it took effect: %v", code, late, took)
			}
		}
	}
	p.Set(Trouble{Share: 1, Answer: http.StatusInternalServerError, Which: Watches})
	if err := get(t, client, time.Minute); err != nil {
		t.Errorf("while only watches are in trouble: %v", err)
	}
	p.Set(Trouble{})
	if err := get(t, client, time.Minute); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestWatches: watches deliver events, end when they are cut or interrupted, and report by an event
// that their version is too old.
func TestWatches(t *testing.T) {
	client, p, _ := setup(t)
	w := follow(t, client)
	if e := next(t, w); e.Type != watch.Added || e.Object.(*v1.Pod).Name != "a" {
		t.Errorf("the first event is %+v", e)
	}
	p.Cut()
	for e := next(t, w); e.Type != ""; e = next(t, w) { // it may say why
		if e.Type != watch.Error {
			t.Errorf("after the cut there came %+v", e)
		}
	}
	p.Set(Trouble{Share: 1, Which: Watches, Lasts: 50 * time.Millisecond, Slow: time.Millisecond})
	w = follow(t, client)
	next(t, w)
	for e := next(t, w); e.Type != ""; e = next(t, w) {
		if e.Type != watch.Error {
			t.Errorf("when it was broken off there came %+v", e)
		}
	}
	p.Set(Trouble{Share: 1, Which: Watches, Answer: http.StatusGone})
	e := next(t, follow(t, client))
	if e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("of a version that is too old it says %+v", e)
	}
}

// TestHang: requests wait until the trouble is over.
func TestHang(t *testing.T) {
	client, p, calls := setup(t)
	p.Set(Trouble{Share: 1, Hang: true})
	if err := get(t, client, 100*time.Millisecond); err == nil || calls.Load() > 0 {
		t.Errorf("it was answered: %v", err)
	}
	answered := make(chan error, 1)
	go func() { answered <- get(t, client, time.Minute) }()
	p.Set(Trouble{})
	if err := <-answered; err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestSwallow: an existing connection becomes a black hole and stays open, and a new one works.
func TestSwallow(t *testing.T) {
	client, p, calls := setup(t)
	w := follow(t, client)
	next(t, w)
	before := calls.Load()
	if count := p.Swallow(); count != 1 {
		t.Errorf("%d connections lead nowhere, want that of the client", count)
	}
	if err := get(t, client, 300*time.Millisecond); err == nil || calls.Load() != before {
		t.Errorf("a request over it: %v, %d calls came through", err, calls.Load()-before)
	}
	select {
	case e := <-w.ResultChan():
		t.Errorf("the watch has noticed: %+v", e)
	default:
	}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(p.URL(), "https://"),
		&tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatalf("another connection: %v", err)
	}
	conn.Close()
	p.Cut()
	for e := next(t, w); e.Type != ""; e = next(t, w) { // it may say why
		if e.Type != watch.Error {
			t.Errorf("after the cut there came %+v", e)
		}
	}
}
