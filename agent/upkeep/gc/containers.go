package gc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// Containers bounds the total number of exited containers in the runtime. How many stay of each
// container of a running pod is decided by the pod's worker.
type Containers struct {
	// Most is the bound; negative: none. Containers that were created less than Age ago stay.
	Most int
	Age  time.Duration
	// Running returns the pods in the runtime.
	Running func() []cri.Pod
	// Pod returns the spec of a pod, with the status that its source has of it.
	Pod func(types.UID) (*v1.Pod, bool)
	// Remove removes a pod's exited container.
	Remove func(ctx context.Context, pod cri.Pod, id string) error
}

// Look removes what exceeds the bound.
func (c Containers) Look(ctx context.Context) error {
	if c.Most < 0 {
		return nil
	}
	_, err := c.remove(ctx)
	return err
}

// Free removes all that is not needed, however few and young, and returns how many those were.
func (c Containers) Free(ctx context.Context) (removed int, err error) {
	c.Most, c.Age = 0, 0
	return c.remove(ctx)
}

func (c Containers) remove(ctx context.Context) (removed int, err error) {
	var errs []error
	for _, r := range c.excess(c.Running(), time.Now()) {
		if ctx.Err() != nil {
			break
		}
		if err := c.Remove(ctx, r.pod, r.ID); err != nil {
			errs = append(errs, fmt.Errorf("remove a container of pod %s: %w", r.pod.UID, err))
			continue
		}
		removed++
	}
	return removed, errors.Join(errs...)
}

// record is an exited container.
type record struct {
	cri.Container
	pod  cri.Pod
	last bool // the newest of its name
}

// ended reports whether the API server knows that a pod has ended, so that its containers are not
// needed. The status of a static pod is made of what the runtime has after a restart.
func (c Containers) ended(uid types.UID) bool {
	pod, known := c.Pod(uid)
	return known && pod.Annotations[podspec.AnnotationSource] == podspec.APISource &&
		podspec.Ended(pod.Status.Phase)
}

// excess returns the containers to remove, the oldest first. The newest of each name in a pod that
// has not ended always stays: it shows that the container ran, and how often.
func (c Containers) excess(pods []cri.Pod, now time.Time) []record {
	var out []record
	dead := 0
	for _, pod := range pods {
		ended, seen := c.ended(pod.UID), map[string]bool{}
		for _, one := range pod.Containers { // the newest first
			last := !seen[one.Name]
			seen[one.Name] = true
			if one.State != cri.ContainerExited {
				continue
			}
			dead++
			if (ended || !last) && max(now.Sub(one.CreatedAt), 0) >= c.Age {
				out = append(out, record{one, pod, last})
			}
		}
	}
	// The newest of each name tell most, so they go last.
	slices.SortFunc(out, func(a, b record) int {
		if a.last != b.last {
			if a.last {
				return 1
			}
			return -1
		}
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return out[:min(max(dead-c.Most, 0), len(out))]
}
