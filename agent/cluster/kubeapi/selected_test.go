package kubeapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/numalet/numalet/internal/oneline"
)

// talker is an API server that says no in many lines: to lists and writes at once, to watches in an
// event.
func talker(t *testing.T) kubernetes.Interface {
	t.Helper()
	said := apierrors.NewForbidden(v1.Resource("pods"), "x", nil).Status()
	said.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	said.Message = strings.Repeat("denied\n", 100_000)
	whole, err := json.Marshal(said)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.FormValue("watch") != "" {
			_, _ = w.Write([]byte(`{"type":"ERROR","object":` + string(whole) + "}\n"))
			return
		}
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write(whole)
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// What the API server says comes to reflectors and recorders, who log it, as a line; of what kind it
// is they still see.
func TestAnswersAreShort(t *testing.T) {
	client := talker(t)
	var heard error
	all := cache.ToListerWatcherWithContext(Selected(client, client.CoreV1().Pods(""), fields.Everything(),
		func(err error) { heard = err }))
	short := func(what, text string, forbidden bool) {
		if len(text) > oneline.Most+200 || strings.Contains(text, "\n") ||
			!strings.Contains(text, "denied denied") || !forbidden {
			t.Errorf("%s: %d bytes, forbidden %v: %.100q", what, len(text), forbidden, text)
		}
	}
	_, err := all.ListWithContext(t.Context(), metav1.ListOptions{})
	short("a list", err.Error(), apierrors.IsForbidden(err))
	if !apierrors.IsForbidden(heard) {
		t.Errorf("who asked heard %v", heard)
	}
	w, err := all.WatchWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e := <-w.ResultChan()
	if e.Type != watch.Error {
		t.Fatalf("the watch begins with %v", e.Type)
	}
	err = apierrors.FromObject(e.Object)
	short("a watch", err.Error(), apierrors.IsForbidden(err))
	_, err = EventSink(client).Create(&v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}})
	if _, ok := err.(*apierrors.StatusError); !ok { //nolint:errorlint // as the recorder asks
		t.Errorf("an event: %T", err)
	}
	short("an event", err.Error(), apierrors.IsForbidden(err))
}
