package podsource

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology/podspec"
)

// secondLook is the delay of the second request for a list that would end all pods.
const secondLook = time.Second

// pods lists the pods of all namespaces. It accepts only a PodList as answer: the client's own List
// takes any object for an empty list.
type pods struct {
	corev1.PodInterface
	client corev1.CoreV1Interface
}

func newPods(client kubernetes.Interface) pods {
	core := client.CoreV1()
	return pods{core.Pods(metav1.NamespaceAll), core}
}

// List lists pods.
func (p pods) List(ctx context.Context, o metav1.ListOptions) (*v1.PodList, error) {
	found, err := p.client.RESTClient().Get().Resource("pods").
		VersionedParams(&o, scheme.ParameterCodec).Do(ctx).Get()
	if err != nil {
		return nil, fmt.Errorf("list the node's pods: %w", err)
	}
	list, is := found.(*v1.PodList)
	if !is {
		return nil, fmt.Errorf("list the node's pods: the API server sent a %T where a PodList "+
			"belongs; what runs stays as it is", found)
	}
	return list, nil
}

// believe returns nil if a list may be used. A list without any of the running pods would end them
// all: the API server, not its cache, is asked again, and must confirm it.
func (f *Feed) believe(ctx context.Context, all pods, list []*v1.Pod) error {
	runs := f.lacks(list)
	if runs == 0 {
		return nil
	}
	log := klog.FromContext(ctx)
	log.Info("The API server's list has none of the pods that run here; it is asked for again "+
		"before they are ended", "running", runs, "listed", len(list))
	if !await.For(ctx, secondLook) {
		return ctx.Err()
	}
	again, err := all.List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", f.cfg.Node).String()})
	if err != nil {
		return fmt.Errorf("a list would end all pods that run, and a second one cannot be had: %w", err)
	}
	second := make([]*v1.Pod, len(again.Items))
	for i := range again.Items {
		second[i] = &again.Items[i]
	}
	if again.ResourceVersion == "" || f.lacks(second) == 0 {
		return fmt.Errorf("a list has none of the %d pods that run, and a second one says otherwise",
			runs)
	}
	log.Info("The API server's second list has none of the pods that run here either; they are ended",
		"running", runs)
	return nil
}

// fromAPI returns the pods of the API server that run, as their newest sandboxes tell.
func fromAPI(all []cri.Pod) sets.Set[types.UID] {
	out := sets.New[types.UID]()
	for _, p := range all {
		if p.Running() && len(p.Sandboxes) > 0 &&
			p.Sandboxes[0].Annotations[podspec.AnnotationSource] == podspec.APISource {
			out.Insert(p.UID)
		}
	}
	return out
}

// lacks returns the number of running pods if the list has none of them; 0: it has one, or nothing
// runs.
func (f *Feed) lacks(list []*v1.Pod) int {
	if f.cfg.Running == nil {
		return 0
	}
	runs := fromAPI(f.cfg.Running())
	if slices.ContainsFunc(list, func(p *v1.Pod) bool { return runs.Has(p.UID) }) {
		return 0
	}
	return runs.Len()
}
