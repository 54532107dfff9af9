package resources

import (
	"context"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/placement/resize"
	"github.com/numalet/numalet/topology/podspec"
)

// followed holds the pods that were allocated other resources.
type followed struct {
	mu   sync.Mutex           // guards pods
	pods map[types.UID]string // with the last error that was told of
	// has holds the present resources of each pod that lacks some of its new ones.
	has map[types.UID]podspec.Resources
	// given holds the specs of which all that runs of a pod has the resources, as of the last round.
	given map[types.UID]*v1.Pod
	// anew names the containers that are being started anew; Run owns it.
	anew map[types.UID]sets.Set[string]
}

func newFollowed() followed {
	return followed{pods: map[types.UID]string{}, has: map[types.UID]podspec.Resources{},
		anew: map[types.UID]sets.Set[string]{}}
}

func (f *followed) add(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.pods[uid]; !known {
		f.pods[uid] = ""
	}
}

func (f *followed) list() []types.UID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.pods))
}

// told records what was said of a pod; "": it has all, and is followed no longer.
func (f *followed) told(uid types.UID, what string) (news bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	news = f.pods[uid] != what || what == ""
	if f.pods[uid] = what; what == "" {
		delete(f.pods, uid)
		delete(f.has, uid)
	}
	return news
}

// note records what a pod has that does not have all yet.
func (f *followed) note(uid types.UID, has podspec.Resources) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.has[uid] = has
}

// confirm records which pods have all that they are allocated.
func (f *followed) confirm(found []live) {
	given := make(map[types.UID]*v1.Pod, len(found))
	for _, c := range found {
		if before, seen := given[c.pod.UID]; !seen || before != nil {
			given[c.pod.UID] = nil
			if c.record.given == c.spec {
				given[c.pod.UID] = c.spec
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.given = given
}

// Behind returns what containers of the pod, and the pod, have that do not have all of what the pod is allocated,
// without containers if that is not known yet. is: there may be some.
func (l *Loop) Behind(uid types.UID, allocated podspec.Resources) (has podspec.Resources, is bool) {
	l.followed.mu.Lock()
	defer l.followed.mu.Unlock()
	_, is = l.followed.pods[uid]
	given := l.followed.given[uid]
	return l.followed.has[uid], is || given == nil || allocated.In(given) != given
}

// Follow has a round look at a pod that was allocated other resources, and Settled called.
func (l *Loop) Follow(uid types.UID) {
	l.followed.add(uid)
	l.Wake()
}

// settle tells of the pods that were followed when the round began.
func (l *Loop) settle(ctx context.Context, followed []types.UID, found []live) {
	l.followed.confirm(found)
	for _, uid := range followed {
		lacking, err := l.lacking(uid, found)
		if lacking && err == nil {
			continue // a container is being started anew, or the round was cut short
		}
		// Statuses show what the runtime reports.
		if _, failed := l.cfg.Observer.Reread(ctx, uid); failed != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("A pod that was resized was not read again",
				"podUID", uid, "err", failed)
		}
		what := ""
		if err != nil {
			what = err.Error()
		}
		if l.followed.told(uid, what) {
			l.cfg.Settled(uid, err)
		}
	}
}

// lacking reports whether something that runs of a pod does not have what the pod was allocated, and what keeps
// it from that.
func (l *Loop) lacking(uid types.UID, found []live) (lacking bool, err error) {
	anew := l.followed.anew[uid]
	has := podspec.Resources{Containers: map[string]v1.ResourceRequirements{}}
	for _, c := range found {
		switch {
		case c.pod.UID != uid:
			continue
		case c.record.given == c.spec:
			anew.Delete(c.Name)
			continue
		case c.restarts():
			anew = anew.Union(sets.New(c.Name))
		default:
			lacking = true
			if err == nil {
				err = c.record.unmoved.err
			}
		}
		if given := c.record.given; given != nil && c.ID != "" {
			has.Containers[c.Name] = podspec.ResourcesOf(given).Containers[c.Name]
		} else if given != nil {
			has.Pod, has.Volumes = given.Spec.Resources, podspec.ResourcesOf(given).Volumes
		}
	}
	l.followed.note(uid, has)
	if _, known := l.cfg.Pod(uid); len(anew) == 0 || !known {
		delete(l.followed.anew, uid)
		return lacking, err
	}
	l.followed.anew[uid] = anew
	return true, err
}

// restarts reports whether a container is to be started anew to have its resources.
func (c live) restarts() bool {
	if c.ID == "" || c.spec == nil || c.record.given == nil || c.record.given == c.spec {
		return false
	}
	of, _ := podspec.Find(c.spec, c.Name)
	was, _ := podspec.Find(c.record.given, c.Name)
	return of != nil && was != nil && resize.Restarts(of, was.Resources)
}
