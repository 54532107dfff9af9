package statuses

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/topology/podspec"
)

// errLost is the error of a client whose request or answer was lost.
var errLost = errors.New("connection lost")

// fakeAPI is an API server with the pods of one node in one namespace. It never changes a pod in
// place, so pods that it returned stay as they were.
type fakeAPI struct {
	pods     map[string]*v1.Pod
	revision int
	history  [][]*v1.Pod // sets after each change, the newest last
	// others are the conditions that other clients have written, by UID and type.
	others map[types.UID]map[v1.PodConditionType]v1.ConditionStatus
	wrong  error // a forbidden operation that happened
	wrote  int   // number of requests that changed something
	made   int   // number of created pods
	// halfway interrupts deletions after the pod was marked.
	halfway bool
}

// restore restores the state of some changes ago, including versions. New versions are above all
// earlier ones, as is recommended for restores.
func (a *fakeAPI) restore(ago int) {
	set := a.history[max(0, len(a.history)-1-ago)]
	a.pods, a.revision = map[string]*v1.Pod{}, a.revision+1000
	for _, was := range set {
		pod := ptr.To(*was) // a list is read again
		a.pods[pod.Name] = pod
		for t := range a.others[pod.UID] {
			delete(a.others[pod.UID], t)
		}
		for _, c := range pod.Status.Conditions {
			if a.others[pod.UID] != nil && strings.HasPrefix(string(c.Type), "example.com/") {
				a.others[pod.UID][c.Type] = c.Status
			}
		}
	}
	a.history = nil
	a.remember()
}

func newFakeAPI() *fakeAPI {
	return &fakeAPI{pods: map[string]*v1.Pod{}, history: [][]*v1.Pod{nil},
		others: map[types.UID]map[v1.PodConditionType]v1.ConditionStatus{}}
}

// put stores a new version of a pod.
func (a *fakeAPI) put(pod *v1.Pod) *v1.Pod {
	a.revision++
	pod.ResourceVersion = strconv.Itoa(a.revision)
	a.pods[pod.Name] = pod
	a.remember()
	return pod
}

func (a *fakeAPI) remove(name string) {
	a.revision++
	delete(a.pods, name)
	a.remember()
}

func (a *fakeAPI) remember() {
	set := slices.SortedFunc(maps.Values(a.pods), func(x, y *v1.Pod) int {
		return compareNames(x.Name, y.Name)
	})
	a.history = append(a.history, set)
	if len(a.history) > 40 {
		a.history = a.history[10:]
	}
}

func compareNames(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	default:
		return 0
	}
}

// create creates a pod with a new UID.
func (a *fakeAPI) create(pod *v1.Pod) (*v1.Pod, error) {
	if a.pods[pod.Name] != nil {
		return nil, apierrors.NewAlreadyExists(v1.Resource("pods"), pod.Name)
	}
	made := *pod
	a.made++
	made.UID = types.UID("api-" + strconv.Itoa(a.made))
	made.Status = v1.PodStatus{Phase: v1.PodPending}
	return a.put(&made), nil
}

func (a *fakeAPI) get(name string) (*v1.Pod, error) {
	if pod := a.pods[name]; pod != nil {
		return pod, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("pods"), name)
}

// tell answers a node's request for a pod. A node may not ask for a pod that does not exist.
func (a *fakeAPI) tell(name string) (*v1.Pod, error) {
	pod, err := a.get(name)
	if err != nil {
		err = apierrors.NewForbidden(v1.Resource("pods"), name, errors.New("no relationship"))
	}
	return pod, err
}

// patch writes the status of one version of a pod.
func (a *fakeAPI) patch(q Request) (*v1.Pod, error) {
	was, err := a.get(q.Pod.Name)
	if err != nil {
		return nil, err
	}
	if was.UID != q.Pod.UID || was.ResourceVersion != q.Pod.ResourceVersion {
		return nil, conflict(q.Pod.Name)
	}
	if podspec.Ended(was.Status.Phase) && q.Status.Phase != was.Status.Phase {
		a.wrong = fmt.Errorf("pod %s went from %s to %s", was.UID, was.Status.Phase, q.Status.Phase)
	}
	if same(was.Status, q.Status) {
		a.wrong = fmt.Errorf("a patch of pod %s changes nothing", was.UID)
	}
	next := *was
	next.Status = q.Status
	a.wrote++
	return a.put(&next), nil
}

// delete deletes a pod for good if it has this UID and, if given, this version.
func (a *fakeAPI) delete(pod *v1.Pod, version string) error {
	name := pod.Name
	was, err := a.get(name)
	if err != nil {
		return err
	}
	if was.UID != pod.UID || version != "" && was.ResourceVersion != version {
		return conflict(name)
	}
	a.wrote++
	switch {
	case a.halfway:
		a.mark(was)
		return errLost
	case len(was.Finalizers) > 0:
		a.mark(was)
	default:
		a.remove(name)
	}
	return nil
}

// mark is the first of two steps in which a pod is deleted for good.
func (a *fakeAPI) mark(pod *v1.Pod) {
	next := *pod
	next.ObjectMeta = deletedWithin(pod, 0)
	a.put(&next)
}

func conflict(name string) error {
	return apierrors.NewConflict(v1.Resource("pods"), name, errors.New("it is another one"))
}

// writeCondition writes a condition as another client.
func (a *fakeAPI) writeCondition(pod *v1.Pod, c v1.PodCondition) {
	next := *pod
	next.Status.Conditions = append(slices.DeleteFunc(slices.Clone(pod.Status.Conditions),
		func(was v1.PodCondition) bool { return was.Type == c.Type }), c)
	if a.others[pod.UID] == nil {
		a.others[pod.UID] = map[v1.PodConditionType]v1.ConditionStatus{}
	}
	a.others[pod.UID][c.Type] = c.Status
	a.put(&next)
}

// wantsDeleted deletes a pod with a grace period.
func (a *fakeAPI) wantsDeleted(pod *v1.Pod) {
	if pod.DeletionTimestamp != nil {
		return
	}
	next := *pod
	next.ObjectMeta = deletedWithin(pod, 30)
	a.put(&next)
}

func deletedWithin(pod *v1.Pod, seconds int64) metav1.ObjectMeta {
	meta := pod.ObjectMeta
	meta.DeletionTimestamp = ptr.To(metav1.Unix(1, 0))
	meta.DeletionGracePeriodSeconds = &seconds
	return meta
}
