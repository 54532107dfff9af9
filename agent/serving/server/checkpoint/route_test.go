package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
)

type runtime struct {
	asked []*runtimeapi.CheckpointContainerRequest
	fails error
}

func (r *runtime) CheckpointContainer(_ context.Context,
	req *runtimeapi.CheckpointContainerRequest) error {
	r.asked = append(r.asked, req)
	return r.fails
}

func TestRoute(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoints")
	pod := podtest.New("ns/p", podtest.UID("u"), podtest.Containers("c", "new"))
	run := &runtime{}
	route := Route(Config{
		Runtime: run, Dir: dir,
		Pod: func(namespace, name string) (*v1.Pod, bool) {
			return pod, namespace == "ns" && name == "p"
		},
		Observed: func(types.UID) (cri.Pod, bool) {
			return cri.Pod{Containers: []cri.Container{{ID: "id", Name: "c"}}}, true
		},
	})
	mux := http.NewServeMux()
	mux.Handle(route.Method+" "+route.Pattern, route.Handler)
	ask := func(path string) (int, string) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
		return w.Code, w.Body.String()
	}
	code, body := ask("/checkpoint/ns/p/c?timeout=7")
	var answer struct{ Items []string }
	if err := json.Unmarshal([]byte(body), &answer); code != 200 || err != nil ||
		len(answer.Items) != 1 {
		t.Fatalf("%d %q: %v", code, body, err)
	}
	name := regexp.MustCompile(`/checkpoint-p_ns-c-\d{4}-\d\d-\d\dT[^/]*\.tar$`)
	if got := run.asked[0]; got.Location != answer.Items[0] || !name.MatchString(got.Location) ||
		filepath.Dir(got.Location) != dir || got.ContainerId != "id" || got.Timeout != 7 {
		t.Errorf("the runtime was asked for %+v", got)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v", err)
	}
	run.fails = errors.New("no CRIU here")
	for path, want := range map[string]struct {
		code int
		body string
	}{
		"/checkpoint/ns/q/c":           {404, "pod does not exist"},
		"/checkpoint/ns/p/d":           {404, "container d does not exist"},
		"/checkpoint/ns/p/c?timeout=x": {404, "cannot parse value of timeout parameter"},
		"/checkpoint/ns/p/c":           {500, "checkpointing of ns/p/c failed (no CRIU here)"},
		"/checkpoint/ns/p/new": {500,
			`checkpointing of ns/p/new failed (container "new" not found)`},
	} {
		if code, body := ask(path); code != want.code || body != want.body {
			t.Errorf("%s: %d %q, want %d %q", path, code, body, want.code, want.body)
		}
	}
}
