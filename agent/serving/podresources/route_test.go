package podresources

import (
	"net/http/httptest"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// The routes give the same answers as the socket.
func TestRoutes(t *testing.T) {
	s, err := New(Config{Socket: filepath.Join(t.TempDir(), "s"), Snapshot: detailed})
	if err != nil {
		t.Fatal(err)
	}
	defer s.listener.Close()
	conn, _ := serve(t)
	client := podresourcesv1.NewPodResourcesListerClient(conn)
	list, err := client.List(t.Context(), &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	all, err := client.GetAllocatableResources(t.Context(),
		&podresourcesv1.AllocatableResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]proto.Message{"/podresources": list, "/podresources/allocatable": all}
	if len(list.PodResources) == 0 || len(all.Devices) == 0 {
		t.Fatalf("the socket answers %v, %v", list, all)
	}
	for _, r := range s.Routes() {
		w := httptest.NewRecorder()
		r.Handler.ServeHTTP(w, httptest.NewRequest(r.Method, r.Pattern, nil))
		got := want[r.Pattern].ProtoReflect().New().Interface()
		if err := protojson.Unmarshal(w.Body.Bytes(), got); err != nil ||
			!proto.Equal(got, want[r.Pattern]) {
			t.Errorf("%s answers %s: %v, want %v", r.Pattern, w.Body, err, want[r.Pattern])
		}
	}
}
