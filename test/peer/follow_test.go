package peer

import (
	"context"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cri"
)

// watch notes what becomes of pods as a watcher of the API server sees it, who begins anew when a
// watch ends.
func (n *node) watch() {
	n.ready, n.ended = map[string]time.Time{}, map[string]time.Time{}
	n.bound = map[string]time.Time{}
	n.gone, n.exit = map[string]time.Time{}, map[string]time.Time{}
	_, follows := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(n.cluster.Client.CoreV1().RESTClient(), "pods",
			n.cluster.Namespace, fields.Everything()),
		ObjectType: &v1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(now any) { n.saw(now.(*v1.Pod)) },
			UpdateFunc: func(_, now any) { n.saw(now.(*v1.Pod)) },
			DeleteFunc: func(last any) {
				name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(last)
				if err == nil {
					n.note(n.gone, strings.TrimPrefix(name, n.cluster.Namespace+"/"))
				}
			},
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		follows.RunWithContext(ctx)
	}()
	n.t.Cleanup(func() {
		cancel()
		<-done
	})
}

// note records when something first happened to a pod.
func (n *node) note(in map[string]time.Time, pod string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, is := in[pod]; !is {
		in[pod] = time.Now()
	}
}

func (n *node) saw(pod *v1.Pod) {
	if pod.Spec.NodeName != "" {
		n.note(n.bound, pod.Name)
	}
	if pod.Status.Phase == v1.PodSucceeded {
		n.note(n.ended, pod.Name)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
			n.note(n.ready, pod.Name)
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
