package peer

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cri"
)

// watch notes what becomes of pods as a watcher of the API server sees it.
func (n *node) watch() {
	n.ready, n.ended = map[string]time.Time{}, map[string]time.Time{}
	n.gone, n.exit = map[string]time.Time{}, map[string]time.Time{}
	ctx, cancel := context.WithCancel(context.Background())
	w, err := n.cluster.Client.CoreV1().Pods(n.cluster.Namespace).Watch(ctx, metav1.ListOptions{})
	n.must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			if pod, ok := e.Object.(*v1.Pod); ok {
				n.saw(e.Type, pod, time.Now())
			}
		}
	}()
	n.t.Cleanup(func() {
		cancel()
		w.Stop()
		<-done
	})
}

func (n *node) saw(what watch.EventType, pod *v1.Pod, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	note := func(in map[string]time.Time) {
		if _, is := in[pod.Name]; !is {
			in[pod.Name] = now
		}
	}
	if what == watch.Deleted {
		note(n.gone)
	}
	if pod.Status.Phase == v1.PodSucceeded {
		note(n.ended)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
			note(n.ready)
		}
	}
}

// followExits notes when the runtime says that containers ended.
func (n *node) followExits(endpoint string) {
	client, err := cri.Connect(n.t.Context(), cri.Config{RuntimeEndpoint: endpoint})
	n.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	events := make(chan *runtimeapi.ContainerEventResponse, 1000)
	done := make(chan struct{})
	go func() {
		_ = client.Runtime().GetContainerEvents(ctx, events, nil) // it ends with ctx
		close(done)
	}()
	noted := make(chan struct{})
	go func() {
		defer close(noted)
		for {
			select {
			case <-ctx.Done():
				return
			case e := <-events:
				n.exited(e)
			}
		}
	}()
	n.t.Cleanup(func() {
		cancel()
		<-noted
		<-done
		_ = client.Close()
	})
}

func (n *node) exited(e *runtimeapi.ContainerEventResponse) {
	pod := e.GetPodSandboxStatus().GetMetadata().GetName()
	if e.GetContainerEventType() != runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT ||
		pod == "" || e.GetContainerId() == e.GetPodSandboxStatus().GetId() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, is := n.exit[pod]; !is {
		n.exit[pod] = time.Unix(0, e.GetCreatedAt())
	}
}
