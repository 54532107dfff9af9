package podsapi

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/test/scratch"
)

func serve(t *testing.T) (*Server, podsv1alpha1.PodsClient, metrics.KubeRegistry) {
	t.Helper()
	registry := metrics.NewKubeRegistry()
	path := filepath.Join(scratch.Dir(t), "pods-api", "s")
	s, err := New(Config{Socket: path, Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	conn, err := grpc.NewClient("unix://"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, podsv1alpha1.NewPodsClient(conn), registry
}

// change returns a change of a pod from one phase to another; "" stands for none.
func change(uid string, before, after v1.PodPhase) podstatus.Change {
	pod := podtest.New("ns/pod-"+uid, podtest.UID(uid))
	return podstatus.Change{Pod: pod, Before: v1.PodStatus{Phase: before},
		After: v1.PodStatus{Phase: after}}
}

// text formats a pod as "uid phase".
func text(t *testing.T, raw []byte) string {
	t.Helper()
	var pod v1.Pod
	if err := pod.Unmarshal(raw); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(pod.UID, " ", pod.Status.Phase)
}

func TestListAndGet(t *testing.T) {
	s, client, registry := serve(t)
	ctx := t.Context()
	s.Wrote(change("b", "", v1.PodPending))
	for what, call := range map[string]func() error{
		"list": func() error {
			_, err := client.ListPods(ctx, &podsv1alpha1.ListPodsRequest{})
			return err
		},
		"get": func() error {
			_, err := client.GetPod(ctx, &podsv1alpha1.GetPodRequest{PodUID: "b"})
			return err
		},
		"watch": func() error {
			w, err := client.WatchPods(ctx, &podsv1alpha1.WatchPodsRequest{})
			if err == nil {
				_, err = w.Recv()
			}
			return err
		},
	} {
		if err := call(); status.Code(err) != codes.FailedPrecondition ||
			!strings.Contains(err.Error(), "Kubelet is initializing") {
			t.Errorf("%s before the sources were heard: %v", what, err)
		}
	}
	s.Heard()
	s.Wrote(change("a", "", v1.PodPending))
	s.Wrote(change("a", v1.PodPending, v1.PodRunning))
	s.Wrote(change("c", "", v1.PodPending))
	s.Wrote(change("c", v1.PodPending, ""))
	list, err := client.ListPods(ctx, &podsv1alpha1.ListPodsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, raw := range list.Pods {
		got = append(got, text(t, raw))
	}
	if !slices.Equal(got, []string{"a Running", "b Pending"}) {
		t.Errorf("listed %q", got)
	}
	one, err := client.GetPod(ctx, &podsv1alpha1.GetPodRequest{PodUID: "a"})
	if err != nil || text(t, one.Pod) != "a Running" {
		t.Errorf("got %v, %v", one, err)
	}
	if _, err := client.GetPod(ctx,
		&podsv1alpha1.GetPodRequest{PodUID: "c"}); status.Code(err) != codes.NotFound {
		t.Errorf("one that is gone: %v", err)
	}
	families, err := registry.Gather()
	if err != nil || !strings.Contains(fmt.Sprint(families), "kubelet_pod_requests_list_total") {
		t.Errorf("metrics: %v %v", families, err)
	}
	refused := 0
	for range 50 {
		if _, err := client.GetPod(ctx, &podsv1alpha1.GetPodRequest{
			PodUID: "a"}); status.Code(err) == codes.ResourceExhausted {
			refused++
		}
	}
	t.Logf("%d of 50 calls were refused", refused)
}

func TestWatch(t *testing.T) {
	s, client, _ := serve(t)
	s.Heard()
	s.Wrote(change("a", "", v1.PodPending))
	w, err := client.WatchPods(t.Context(), &podsv1alpha1.WatchPodsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	next := func(want string) {
		t.Helper()
		e, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got := e.Type.String()
		if len(e.Pod) > 0 {
			got += " " + text(t, e.Pod)
		}
		if got != want {
			t.Errorf("event %q, want %q", got, want)
		}
	}
	next("ADDED a Pending")
	next("INITIAL_SYNC_COMPLETE")
	s.Wrote(change("a", v1.PodPending, v1.PodRunning))
	s.Wrote(change("b", "", v1.PodPending))
	s.Wrote(change("x", v1.PodPending, "")) // a pod that never existed
	s.Wrote(change("a", v1.PodRunning, ""))
	next("MODIFIED a Running")
	next("ADDED b Pending")
	next("DELETED a Running")
}

// A watcher that is too slow is disconnected, and nobody waits for it.
func TestSlowWatcher(t *testing.T) {
	m := newMeasures()
	if err := m.Register(metrics.NewKubeRegistry()); err != nil {
		t.Fatal(err)
	}
	f := newFeed(m.dropped)
	f.hear()
	_, slow, _ := f.watch()
	f.wrote(change("a", "", v1.PodPending))
	for range maxBehind {
		f.wrote(change("a", v1.PodPending, v1.PodRunning))
	}
	n := 0
	for range slow.events { // it is closed
		n++
	}
	if n != maxBehind || len(f.watchers) != 0 {
		t.Errorf("%d events, %d watchers", n, len(f.watchers))
	}
	if got, err := testutil.GetCounterMetricValue(m.dropped); got != 1 || err != nil {
		t.Errorf("%v events are counted as dropped, %v", got, err)
	}
	f.leave(slow)
}
