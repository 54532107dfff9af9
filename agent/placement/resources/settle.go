package resources

import (
	"context"
	"errors"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/placement/resize"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology/podspec"
)

// followed knows of each pod that runs how far it has what it is allocated.
type followed struct {
	mu   sync.Mutex // guards pods and their fields, except anew
	pods map[types.UID]*progress
}

// progress holds what is known of one pod.
type progress struct {
	due  bool   // it was allocated other resources, and Settled was not called without an error since
	said string // the gist of the last error that Settled was called with since then
	// has holds its present resources, if it is due and lacks some of the new ones.
	has podspec.Resources
	// given is the spec of which all that runs of the pod had the resources in the last round; nil: there is none.
	given *v1.Pod
	// anew names the containers that are being started anew; Run owns it.
	anew sets.Set[string]
}

// of returns what is known of a pod, a new record if nothing is. The caller holds mu.
func (f *followed) of(uid types.UID) *progress {
	p := f.pods[uid]
	if p == nil {
		p = &progress{}
		f.pods[uid] = p
	}
	return p
}

func (f *followed) add(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of(uid).due = true
}

// due lists the pods that are due.
func (f *followed) due() (uids []types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid, p := range f.pods {
		if p.due {
			uids = append(uids, uid)
		}
	}
	return uids
}

// told records the gist of what Settled is called with for a pod; "": it has all. It reports whether that is news.
func (f *followed) told(uid types.UID, what string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.of(uid)
	if what == "" {
		p.due, p.said, p.has = false, "", podspec.Resources{}
		return true
	}
	news := p.said != what
	p.said = what
	return news
}

// confirm records what all that runs of each pod has been given, and forgets pods of which nothing runs.
func (f *followed) confirm(found map[types.UID][]live) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid := range found {
		f.of(uid)
	}
	for uid, p := range f.pods {
		p.given = given(found[uid])
		if len(found[uid]) == 0 && !p.due {
			delete(f.pods, uid)
		}
	}
}

// given returns the spec of which all that runs of a pod has the resources; nil: there is none.
func given(all []live) *v1.Pod {
	if len(all) == 0 || slices.ContainsFunc(all, func(c live) bool { return c.record.given != c.spec }) {
		return nil
	}
	return all[0].spec
}

// Behind returns what containers of the pod, and the pod, have that do not have all of what the pod is allocated,
// without containers if that is not known yet. is: there may be some.
func (l *Loop) Behind(uid types.UID, allocated podspec.Resources) (has podspec.Resources, is bool) {
	l.followed.mu.Lock()
	defer l.followed.mu.Unlock()
	p := l.followed.pods[uid]
	if p == nil {
		return podspec.Resources{}, true
	}
	return p.has, p.due || p.given == nil || allocated.In(p.given) != p.given
}

// Follow has a round look at a pod that was allocated other resources, and Settled called.
func (l *Loop) Follow(uid types.UID) {
	l.followed.add(uid)
	l.Wake()
}

// settle calls Settled for the pods that were due when the round began.
func (l *Loop) settle(ctx context.Context, due []types.UID, found []live) {
	byPod := map[types.UID][]live{}
	for _, c := range found {
		byPod[c.pod.UID] = append(byPod[c.pod.UID], c)
	}
	l.followed.confirm(byPod)
	type verdict struct {
		uid types.UID
		err error
	}
	var over []verdict
	for _, uid := range due {
		lacking, err := l.lacking(uid, byPod[uid])
		if !lacking || err != nil { // else a container is being started anew, or the round was cut short
			over = append(over, verdict{uid, err})
		}
	}
	_ = await.Each(over, parallelCalls, func(v verdict) error {
		// Statuses show what the runtime reports.
		if _, failed := l.cfg.Observer.Reread(ctx, v.uid); failed != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("A pod that was resized was not read again",
				"podUID", v.uid, "err", failed)
		}
		if l.followed.told(v.uid, gist(v.err)) {
			l.cfg.Settled(v.uid, v.err)
		}
		return nil
	})
}

// gist returns an error's text without what changes from one look to the next; "": there is no error.
func gist(err error) string {
	var inUse *inUseError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &inUse):
		return (&inUseError{whose: inUse.whose, limit: inUse.limit}).Error()
	}
	return err.Error()
}

// lacking reports whether something that runs of a pod, all of which is found, does not have what the pod was
// allocated, and what keeps it from that.
func (l *Loop) lacking(uid types.UID, found []live) (lacking bool, err error) {
	_, known := l.cfg.Pod(uid)
	l.followed.mu.Lock()
	defer l.followed.mu.Unlock()
	p := l.followed.of(uid)
	anew := p.anew
	has := podspec.Resources{Containers: map[string]v1.ResourceRequirements{}}
	for _, c := range found {
		switch {
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
	p.has = has
	if len(anew) == 0 || !known {
		p.anew = nil
		return lacking, err
	}
	p.anew = anew
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
