package slices

import (
	"context"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/cluster/requests"
	"github.com/numalet/numalet/internal/await"
)

// everyDriver stands for all drivers of the node.
const everyDriver = ""

// Gone has the slices of a driver deleted, which has had no usable plugin for a while. It does not
// block.
func (s *Slices) Gone(driver string) {
	if driver != everyDriver {
		s.gone.Put(driver)
	}
}

// removal is due until it has succeeded.
type removal struct {
	at    time.Time
	pause time.Duration // the last one
}

// remove deletes the node's slices once, and then those of drivers that are gone, until ctx ends.
// Failed requests are repeated after pauses, as the kubelet's: 1 s to 5 min.
func (s *Slices) remove(ctx context.Context, registered func() bool, usable func() []string) {
	for !registered() && await.For(ctx, firstPause) {
		continue
	}
	due := map[string]removal{everyDriver: {at: time.Now()}}
	for ctx.Err() == nil {
		var next time.Time
		for driver, r := range due {
			if !time.Now().Before(r.at) {
				if s.removed(ctx, driver, usable()) {
					delete(due, driver)
					continue
				}
				r.pause = await.Pauses{First: firstPause, Last: lastPause}.Next(r.pause)
				r.at = time.Now().Add(wait.Jitter(r.pause, 0.2)) // many nodes begin together
				due[driver] = r
			}
			next = await.Earlier(next, r.at)
		}
		select {
		case <-ctx.Done():
		case <-await.At(next):
		case <-s.gone.Wake():
			for _, driver := range s.gone.Take() {
				if _, there := due[driver]; !there {
					due[driver] = removal{at: time.Now()}
				}
			}
		}
	}
}

// which selects the slices to delete. Drivers that are usable by now maintain their slices, so these
// stay. nil: there is nothing to delete.
func (s *Slices) which(driver string, usable []string) fields.Selector {
	if driver != everyDriver {
		if slices.Contains(usable, driver) {
			return nil
		}
		return fields.AndSelectors(s.own,
			fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorDriver, driver))
	}
	of := s.own
	for _, name := range usable {
		of = fields.AndSelectors(of,
			fields.OneTermNotEqualSelector(resourcev1.ResourceSliceSelectorDriver, name))
	}
	return of
}

// removed deletes slices, and reports whether nothing is left to do.
func (s *Slices) removed(ctx context.Context, driver string, usable []string) bool {
	of := s.which(driver, usable)
	if of == nil {
		return true
	}
	asked, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := s.resource.DeleteCollection(asked, metav1.DeleteOptions{},
		metav1.ListOptions{FieldSelector: of.String()})
	log := klog.FromContext(ctx).WithValues("which", of.String())
	switch {
	case err == nil:
		log.Info("ResourceSlices were deleted until their drivers publish them again")
	case apierrors.IsNotFound(err): // the API server has no such API
	case ctx.Err() != nil:
		return false
	default:
		log.Info("ResourceSlices are not deleted yet; it is tried again",
			"err", requests.Short(err))
		return false
	}
	return true
}
